"""Compile every GPU kernel ahead of time, without a GPU, and print what it takes of a multiprocessor.

    python benchmarks/gpu_kernels.py            all targets
    python benchmarks/gpu_kernels.py 80         one compute capability

Registers, stack (spills) and shared memory are read from the compiled code. Occupancy is calculated from them: warps
that fit a multiprocessor at once, as a share of its most. Nothing is timed.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from torchcaps.votes.triton import kernels, mixture, softmax
from torchcaps.votes.triton.fits import NUMBERS
from torchcaps.votes.triton.products import LEARN, READ, blocks_of

WARPS = 4  # Triton's default
# For each compute capability: registers, warps, blocks and bytes of shared memory of a multiprocessor.
TARGETS = {75: (65536, 32, 16, 65536), 80: (65536, 64, 32, 167936), 90: (65536, 64, 32, 233472)}
# Rows, inner size and columns of poses and matrices; examples (or windows) and children.
SIZES = {
    "capsnet: dense 1152x8 -> 10x16": (1, 8, 16, 128, 1152),
    "efficient: dense 16x8 -> 10x16": (1, 8, 16, 64, 16),
    "matrix: convolution of 4x4 poses": (4, 4, 4, 2304, 288),
    "matrix: classes with coordinates": (4, 5, 4, 64, 512),
    "text: n-grams of 16 numbers": (1, 17, 16, 512, 48),
}
ON = {"PLACE": True, "MASSES": True, "FIRST": True, "SECOND": True}
FLAGS: dict[str, dict[str, bool]] = {
    "sums_kernel": ON,
    "moments_kernel": {"PLACE": True},
    "inner_kernel": {"LINEAR": True, "SQUARED": True, "OFFSET": True, "PLACE": True},
    "pose_gradients_kernel": {"PLAIN": True, "SCALED": True, "PIVOT": True},
    "weight_gradients_kernel": {"PLAIN": True, "SCALED": True, "PIVOT": True},
}
GRID = {"grid_softmax_kernel": {"LEAKY": True}, "grid_softmax_back_kernel": {}}
# Formulas on parents, of poses of 16 numbers, with all that they can do.
PRIOR = {"MASS_FLOOR": 1e-7, "VARIANCE_FLOOR": 1e-4, "DAMPING": 0.1, "ANNEALING": 0.05, "ACTIVE": 2500.0}
PRIOR |= dict.fromkeys(("ORIGIN", "PREVIOUS", "PRIOR", "GAIN", "MASSIVE", "WIDE"), True)
BACK = dict.fromkeys(("OF_WHOLES", "OF_MEANS", "OF_VARIANCES", "OF_PRIOR", "FOR_PREVIOUS"), True)
FITS: dict[str, dict[str, Any]] = {
    "fit_kernel": PRIOR,
    "fit_back_kernel": {**PRIOR, **BACK, "MOST": 5e7},
    "density_kernel": {"SHARPNESS": 1.0, "CONSTANT": 14.7},
    "density_back_kernel": {"SHARPNESS": 1.0, "OF_PRECISIONS": True, "OF_BESIDE": True},
}
FLOATS = ("poses", "weight", "pairs", "place", "masses", "first", "second", "means", "scatter", "linear", "squared")
FLOATS += ("offset", "found", "plain", "scaled", "pivot", "scores", "shares", "gradient")
FLOATS += ("sums", "middle", "origin", "previous", "beta_use", "beta_active", "temperature", "gain", "wholes", "prior")
FLOATS += ("variances", "precisions", "beside", "of_wholes", "of_means", "of_variances", "of_prior", "of_precisions")
FLOATS += ("of_beside", "for_masses", "for_sums", "for_scatter", "for_previous", "for_learned")


@dataclass(frozen=True)
class Usage:
    """What a compiled kernel takes. stack: bytes of a thread that do not fit registers."""

    registers: int
    stack: int
    shared: int
    occupancy: float


def compiled(kernel: Any, constants: dict[str, Any], target: GPUTarget) -> Any:
    """A kernel with these constants, compiled for a target."""
    names = kernel.arg_names
    kinds = {**dict.fromkeys(FLOATS, "*fp32"), "views": "*i64", "least": "fp32"}
    signature = {name: "constexpr" if name in constants else kinds.get(name, "i32") for name in names}
    places = {(names.index(name),): value for name, value in constants.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source = ASTSource(fn=kernel, signature=signature, constexprs=places)
        return triton.compile(source, target=target, options={"num_warps": WARPS})


def constants_of(name: str, size: tuple[int, int, int, int, int]) -> dict[str, Any]:
    """The constants that `TritonProducts` gives a kernel for these sizes."""
    blocks = blocks_of(*size, LEARN if "gradients" in name else READ)
    words = ("ROWS", "INNER", "COLS", *blocks._fields[3:])
    return {**dict(zip(words, blocks, strict=True)), **FLAGS[name], "ACC": tl.float32}


def usage(found: Any, capability: int) -> Usage:
    """What a kernel that was compiled for CUDA takes."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(found.asm["cubin"])
        file.flush()
        told = subprocess.run([tool, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True)
    numbers = re.search(r"REG:(\d+) STACK:(\d+)", told.stdout)
    assert numbers is not None, told.stdout
    registers, stack, shared = int(numbers[1]), int(numbers[2]), found.metadata.shared
    most_registers, most_warps, most_blocks, most_shared = TARGETS[capability]
    each = -(-registers // 8) * 8 * 32 * WARPS  # registers are given in eights to each thread of a warp
    blocks = min(most_registers // each, most_warps // WARPS, most_blocks, most_shared // max(1, shared + 1024))
    return Usage(registers, stack, shared, blocks * WARPS / most_warps)


def table(capability: int) -> dict[tuple[str, str], Usage]:
    """Every kernel at every size, for one compute capability."""
    target = GPUTarget("cuda", capability, 32)
    found = {}
    for size, numbers in SIZES.items():
        for name in FLAGS:
            constants = constants_of(name, numbers)
            found[size, name] = usage(compiled(getattr(kernels, name), constants, target), capability)
    for name, flags in GRID.items():
        constants = {"BJ": 32, "BC": 32, **flags}
        found["competition over a grid", name] = usage(compiled(getattr(softmax, name), constants, target), capability)
    for name, flags in FITS.items():
        constants = {**flags, "SIZE": 16, "D2": 16, "BN": NUMBERS // 16, "ACC": tl.float32}
        found["clusters of 16 dimensions", name] = usage(
            compiled(getattr(mixture, name), constants, target), capability
        )
    return found


def rocm() -> str:
    """Do the kernels compile for an AMD GPU too?"""
    target = GPUTarget("hip", "gfx90a", 64)
    done = 0
    for name in FLAGS:
        try:
            compiled(getattr(kernels, name), constants_of(name, SIZES["matrix: convolution of 4x4 poses"]), target)
        except Exception as error:  # whatever its toolchain says
            return f"gfx90a: {name} was not compiled: {str(error).splitlines()[0][:200]}"
        done += 1
    return f"gfx90a: {done} kernels compiled"


def main() -> None:
    capabilities = [int(word) for word in sys.argv[1:]] or list(TARGETS)
    for capability in capabilities:
        print(f"sm_{capability}, {WARPS} warps\n{'':36}{'registers':>24}{'stack':>7}{'shared':>8}{'occupancy':>11}")
        size = ""
        for (where, name), each in table(capability).items():
            if where != size:
                size = where
                print(size)
            print(f"  {name:<34}{each.registers:>24}{each.stack:>7}{each.shared:>8}{each.occupancy:>11.0%}")
    if len(sys.argv) == 1:
        print(rocm())


if __name__ == "__main__":
    main()
