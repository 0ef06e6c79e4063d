"""The capabilities of this machine and the backends of the votes engine: for `doctor` and above benchmarks."""

from __future__ import annotations

import importlib.util
import platform
from importlib.metadata import PackageNotFoundError, version

import torch

from torchcaps import __version__
from torchcaps._core.memory import available_memory
from torchcaps._core.types import Capsules
from torchcaps.layers import ConvCapsules2d, DenseCapsules, RoutedLayer
from torchcaps.votes.native import describe

PACKAGES = ("numpy", "lightning", "triton", "onnxruntime", "huggingface_hub", "transformers")


def machine_lines(device: torch.device) -> list[str]:
    """A description of this machine in a few lines, for bug reports."""
    memory = available_memory()
    lines = [
        f"torchcaps {__version__}, torch {torch.__version__}, Python {platform.python_version()}",
        f"{platform.system()} {platform.machine()}, {torch.backends.cpu.get_cpu_capability()}, "
        f"{torch.get_num_threads()} threads" + ("" if memory is None else f", {memory / 2**30:.1f} GB of memory free"),
        f"native functions: {describe()}",
        f"triton: {_triton()}",
        f"GPU: {_gpu()}",
        f"benchmarks and training on: {device.type}",
    ]
    found = [f"{name} {number}" for name in PACKAGES if (number := _version(name)) is not None]
    return [*lines, f"packages: {', '.join(found) or 'none'}"]


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _triton() -> str:
    if importlib.util.find_spec("triton") is None:
        return "not installed; on a GPU votes are then made by torch, tile by tile (pip install 'torchcaps[gpu]')"
    return f"{_version('triton') or 'there'}; its kernels serve tensors on a GPU"


def _gpu() -> str:
    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        named = torch.cuda.get_device_properties(0)
        kind = f"CUDA {torch.version.cuda}" if torch.version.hip is None else f"ROCm {torch.version.hip}"
        several = "" if torch.cuda.device_count() == 1 else f", {torch.cuda.device_count()} of them"
        room = f"{free / 2**30:.1f} of {total / 2**30:.1f} GB free"
        return f"{named.name}{several}, compute capability {named.major}.{named.minor}, {kind}, {room}"
    return "Apple's Metal (mps)" if torch.backends.mps.is_available() else "none that torch can use"


def plan_lines(device: torch.device) -> list[str]:
    """The backend that computes the votes of two common layers on this device, and why others do not."""
    cases: dict[str, tuple[RoutedLayer, Capsules]] = {
        "dense, dynamic routing": (DenseCapsules(1152, 10, 8, 16), _children((16, 1152), 8)),
        "convolution, EM routing": (
            ConvCapsules2d(8, 16, 16, 16, 3, stride=2, votes="matrix", routing="em"),
            _children((8, 12, 12, 8), 16),
        ),
    }
    lines = []
    for name, (layer, children) in cases.items():
        layer, children = layer.to(device), children.to(device)
        layer(children)  # a routing that reads more than sums is known after its first call
        plan = layer.plan(children)
        lines.append(f"{name}: votes by {plan.backend}")
        lines += [f"  not by {other}: {reason}" for other, reason in plan.refusals.items()]
    return lines


def _children(shape: tuple[int, ...], dim: int) -> Capsules:
    return Capsules(torch.randn(*shape, dim), torch.rand(*shape))
