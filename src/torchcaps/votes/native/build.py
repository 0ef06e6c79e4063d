"""From `votes.c` to functions that can be called: compiled once for each size of poses, on the user's own machine.

As `torch.compile` does, this needs a C compiler; where there is none, torchcaps computes the same with torch alone.
TORCHCAPS_NATIVE=0 does without, TORCHCAPS_NATIVE=1 insists on it and says why it cannot be had.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

import torch

from torchcaps._core.errors import input_error
from torchcaps.votes.native import cache
from torchcaps.votes.native.compiler import CompilerError, compiled
from torchcaps.votes.native.fork import survive_forks

VARIABLE = "TORCHCAPS_NATIVE"
SOURCE = Path(__file__).with_name("votes.c")
SOURCES = (SOURCE, *map(SOURCE.with_name, ("vectors.h", "competition.h", "shared.h")))
LARGEST = 64  # numbers of a pose or vote that the functions hold at a time
NAMES = {torch.float32: "float", torch.float64: "double"}
FLAGS = {  # what torch itself found that the processor can do
    "AVX2": ("-mavx2", "-mfma"),
    "AVX512": ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma"),
}

VECTORS = {"AVX2": 32, "AVX512": 64}  # bytes


class Geometry(NamedTuple):
    """A pose is a matrix of rows x inner numbers, the matrix of a pair one of inner x columns."""

    rows: int
    inner: int
    columns: int

    @property
    def in_dim(self) -> int:
        return self.rows * self.inner

    @property
    def out_dim(self) -> int:
        return self.rows * self.columns


def widest(dtype: torch.dtype) -> int:
    """How many examples the functions work on at a time: two vectors of the processor."""
    return 2 * VECTORS.get(torch.backends.cpu.get_cpu_capability(), 16) // dtype.itemsize


def library(geometry: Geometry, dtype: torch.dtype, lanes: int | None = None) -> ctypes.CDLL | str:
    """The functions of `votes.c` for poses of this size and blocks of so many examples, or why there are none."""
    wish = os.environ.get(VARIABLE, "")
    if wish not in ("", "0", "1"):
        raise input_error(VARIABLE, "0 or 1", repr(wish), "Unset it to use what the machine has.")
    if wish == "0":
        return f"{VARIABLE} is 0"
    if dtype not in NAMES:
        return f"{dtype} is neither float32 nor float64"
    if max(geometry.in_dim, geometry.out_dim) > LARGEST:
        return f"poses have more than {LARGEST} numbers"
    found = _built(geometry, dtype, widest(dtype) if lanes is None else lanes)
    if isinstance(found, str) and wish == "1":
        raise input_error(VARIABLE, "a C compiler with OpenMP for TORCHCAPS_NATIVE=1", found, "Set it to 0.")
    return found


def describe() -> str:
    """One sentence on whether votes are computed natively here."""
    if os.environ.get(VARIABLE) == "0":
        return f"off ({VARIABLE}=0)"
    found = _built(Geometry(4, 4, 4), torch.float32, widest(torch.float32))
    if isinstance(found, str):
        return f"off ({found})"
    trouble = cache.trouble()
    return "on" if trouble is None else f"on, but built anew by each process ({trouble})"


@functools.cache
def _built(geometry: Geometry, dtype: torch.dtype, lanes: int) -> ctypes.CDLL | str:
    """The library, or in a few words why there is none."""
    if sys.platform != "linux":
        return f"not tried on {sys.platform}"
    try:
        functions = _build(geometry, dtype, lanes)
        survive_forks(functions)
        return functions
    except CompilerError as error:
        return str(error)
    except FileNotFoundError as error:
        return f"there is no {error.filename}" if error.filename else str(error)
    except (OSError, ValueError) as error:
        return f"the C compiler failed: {str(error) or type(error).__name__}"


def _build(geometry: Geometry, dtype: torch.dtype, lanes: int) -> ctypes.CDLL:
    sizes = {
        "REAL": NAMES[dtype],
        "REAL_BYTES": dtype.itemsize,
        "LANES": lanes,
        "ROWS": geometry.rows,
        "INNER": geometry.inner,
        "COLS": geometry.columns,
    }
    command = [
        *(shlex.split(os.environ.get("CC", "")) or ["cc"]),
        *("-std=gnu11", "-O3", "-shared", "-fPIC", "-fopenmp"),
        *FLAGS.get(torch.backends.cpu.get_cpu_capability(), ()),
        *(f"-D{name}={value}" for name, value in sizes.items()),
    ]
    made_from = b"".join(each.read_bytes() for each in SOURCES) + shlex.join(command).encode()
    name = f"votes-{hashlib.sha256(made_from).hexdigest()[:20]}.so"
    kept = cache.find(name)
    if kept is not None:
        return cache.load(kept)
    made = compiled(SOURCE, command)
    functions = cache.load(made)
    cache.keep(name, made)
    return functions
