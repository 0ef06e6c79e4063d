"""From `votes.c` to functions that can be called: compiled once for each size of poses, on the user's own machine.

As `torch.compile` does, this needs a C compiler; where there is none, torchcaps computes the same with torch alone.
TORCHCAPS_NATIVE=0 does without, TORCHCAPS_NATIVE=1 insists on it and says why it cannot be had.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import shlex
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch

from torchcaps.errors import complaint

VARIABLE = "TORCHCAPS_NATIVE"
SOURCE = Path(__file__).with_name("votes.c")
LARGEST = 64  # numbers of a pose or vote that the functions hold at a time
NAMES = {torch.float32: "float", torch.float64: "double"}
FLAGS = {  # what torch itself found that the processor can do
    "AVX2": ("-mavx2", "-mfma"),
    "AVX512": ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma"),
}


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


def library(geometry: Geometry, dtype: torch.dtype) -> ctypes.CDLL | None:
    """The functions of `votes.c` for poses of this size; None where they cannot be had."""
    wish = os.environ.get(VARIABLE, "")
    if wish not in ("", "0", "1"):
        raise complaint(VARIABLE, "0 or 1", repr(wish), "Unset it to use what the machine has.")
    if wish == "0" or dtype not in NAMES or max(geometry.in_dim, geometry.out_dim) > LARGEST:
        return None
    found = _built(geometry, dtype)
    if isinstance(found, str):
        if wish == "1":
            raise complaint(VARIABLE, "a C compiler with OpenMP for TORCHCAPS_NATIVE=1", found, "Set it to 0.")
        return None
    return found


def describe() -> str:
    """One sentence on whether votes are computed natively here."""
    if os.environ.get(VARIABLE) == "0":
        return f"off ({VARIABLE}=0)"
    found = _built(Geometry(4, 4, 4), torch.float32)
    return f"off ({found})" if isinstance(found, str) else "on"


@cache
def _built(geometry: Geometry, dtype: torch.dtype) -> ctypes.CDLL | str:
    """The library, or in a few words why there is none."""
    if sys.platform != "linux":
        return f"not tried on {sys.platform}"
    try:
        return _build(geometry, dtype)
    except FileNotFoundError as error:
        return f"there is no {error.filename}"
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        return f"the C compiler failed: {said[0] if said else type(error).__name__}"


def _build(geometry: Geometry, dtype: torch.dtype) -> ctypes.CDLL:
    sizes = {"REAL": NAMES[dtype], "ROWS": geometry.rows, "INNER": geometry.inner, "COLS": geometry.columns}
    command = [
        *(shlex.split(os.environ.get("CC", "")) or ["cc"]),
        *("-std=gnu11", "-O3", "-shared", "-fPIC", "-fopenmp"),
        *FLAGS.get(torch.backends.cpu.get_cpu_capability(), ()),
        *(f"-D{name}={value}" for name, value in sizes.items()),
    ]
    name = f"votes-{hashlib.sha256(SOURCE.read_bytes() + shlex.join(command).encode()).hexdigest()[:20]}.so"
    try:
        folder = _folder()
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except (OSError, RuntimeError):  # no home, or a folder that cannot be written
        with tempfile.TemporaryDirectory() as elsewhere:  # a loaded library needs its file no more
            return _load(command, Path(elsewhere) / name)
    return _load(command, folder / name)


def _folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "torchcaps" / "native"


def _load(command: list[str], path: Path) -> ctypes.CDLL:
    with contextlib.suppress(OSError):  # not there yet, or half of a file
        return ctypes.CDLL(str(path))
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:  # whoever builds the same renames the same
        made = Path(folder) / path.name
        words = [*command, str(SOURCE), "-o", str(made)]
        subprocess.run(words, check=True, capture_output=True, text=True, timeout=120)
        with made.open("rb") as file:
            os.fsync(file.fileno())
        made.replace(path)
    return ctypes.CDLL(str(path))
