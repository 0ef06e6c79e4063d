"""Native functions under the compiler's sanitizers: memory, undefined behavior and threads, and the right numbers."""

from __future__ import annotations

import functools
import itertools
import os
import random
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from torchcaps.votes.native.build import FLAGS, NAMES, SOURCE, Geometry
from torture.result import Result
from torture.rooms import try_layers, try_rooms

SIZES = ((1, 8, 16), (4, 4, 4), (1, 5, 6), (3, 2, 5), (1, 1, 1), (8, 8, 8), (1, 3, 7), (2, 9, 2))
GEOMETRIES = [Geometry(*sizes) for sizes in SIZES]
LANES = {torch.float32: (8, 16, 32), torch.float64: (4, 8, 16, 32)}  # examples of a block
WIDTHS = (16, 32, 64)  # bytes of a vector: with more than the processor has, the compiler makes do
FEWEST = 200  # calls for which a library is worth its compilation
FEWEST_ROUNDS = 20
MEMORY = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
THREADS = ("-fsanitize=thread",)
SECONDS = 1800  # for all calls of one library


class Library(NamedTuple):
    geometry: Geometry
    dtype: torch.dtype
    lanes: int
    width: int

    def __str__(self) -> str:
        sizes = f"{'x'.join(map(str, self.geometry))} {NAMES[self.dtype]} for {self.lanes} examples"
        return f"{sizes} in vectors of {self.width} bytes"

    @property
    def defines(self) -> list[str]:
        rows, inner, columns = self.geometry
        sizes = {"REAL": NAMES[self.dtype], "REAL_BYTES": self.dtype.itemsize, "LANES": self.lanes, "MOST": self.width}
        sizes |= {"ROWS": rows, "INNER": inner, "COLS": columns}
        flags = FLAGS.get(torch.backends.cpu.get_cpu_capability(), ())
        return [*flags, "-Wno-psabi", *(f"-D{name}={value}" for name, value in sizes.items())]


def compiler(*words: str | Path) -> str:
    command = [*(shlex.split(os.environ.get("CC", "")) or ["cc"]), "-std=gnu11", "-O1", "-g1", *map(str, words)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout.strip()


def missing(sanitizer: Sequence[str], folder: Path) -> str | None:
    """In a few words, why this sanitizer cannot be had here; None if it can."""
    source, program = folder / "empty.c", folder / "empty"
    source.write_text("int main(void) { return 0; }\n")
    try:
        compiler(*sanitizer, "-fopenmp", source, "-o", program)
        subprocess.run([*_steady(), program], check=True, capture_output=True, timeout=60)
        if sanitizer == MEMORY:
            words = [*_steady(), sys.executable, "-c", "import numpy"]
            subprocess.run(words, check=True, capture_output=True, timeout=60, env=_watched())
    except (OSError, subprocess.SubprocessError) as error:
        return f"skipped, as the compiler has no {sanitizer[0]} here ({type(error).__name__})"
    return None


@functools.cache
def _steady() -> tuple[str, ...]:
    """What starts a program at the same addresses each time: at some, older sanitizers cannot work."""
    words = ("setarch", "-R")
    try:
        subprocess.run([*words, "true"], check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.SubprocessError):  # not there, or not allowed
        return ()
    return words


def _watched() -> dict[str, str]:
    """The variables of a Python in which AddressSanitizer watches memory: it must be there before all others."""
    options = {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1"}
    return {**os.environ, "LD_PRELOAD": compiler("-print-file-name=libasan.so"), **options}


def try_calls(library: Library, calls: int, seed: int, result: Result, folder: Path) -> None:
    """So many random calls of one library, in a process of their own."""
    path = folder / "votes.so"
    compiler(*MEMORY, "-shared", "-fPIC", "-fopenmp", *library.defines, SOURCE, "-o", path)
    kind = str(library.dtype).removeprefix("torch.")
    words = ("-m", "torture.sanitized", path, calls, seed, kind, *library.geometry)
    _follow([sys.executable, *map(str, words)], _watched(), calls, str(library), result)


def try_threads(library: Library, rounds: int, seed: int, result: Result, folder: Path) -> None:
    """Several threads that call the functions of one library at once, each with several threads."""
    votes, program = folder / "votes.o", folder / "threads"
    compiler(*THREADS, "-fopenmp", "-fPIE", *library.defines, "-c", SOURCE, "-o", votes)
    driver = Path(__file__).with_name("threads.c")
    compiler(*THREADS, "-pthread", *library.defines, driver, votes, "-o", program)
    environment = {**os.environ, "TSAN_OPTIONS": "halt_on_error=1"}
    _follow([str(program), str(rounds), str(1 + seed)], environment, rounds, str(library), result)


def _follow(words: list[str], environment: dict[str, str], count: int, what: str, result: Result) -> None:
    """A line for each case that went well; after the first that did not, the process has ended with a report."""
    try:
        done = subprocess.run([*_steady(), *words], env=environment, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        result.fault(f"{what}: no end after {SECONDS} seconds")
        return
    lines = done.stdout.splitlines()
    for line in lines:
        result.ended(line)
    if done.returncode or len(lines) != count:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        reports = [line for line in said if "SUMMARY:" in line or "runtime error:" in line]
        result.fault(f"{what}: {(reports or said[-1:])[0].strip()}")


def run(calls: int, seed: int = 0) -> list[Result]:
    """So many calls, shared out over libraries; a tenth of that as rounds of threads, and the pool of buffers."""
    libraries = [
        Library(geometry, dtype, lanes, width)
        for geometry, dtype, width in itertools.product(GEOMETRIES, NAMES, WIDTHS)
        for lanes in LANES[dtype]
        if width <= lanes * dtype.itemsize <= 4 * width  # one vector to four; torchcaps uses one or two
    ]
    random.Random(seed).shuffle(libraries)
    memory, threads = Result("sanitizers", "calls, memory watched"), Result("sanitizers", "rounds, threads watched")
    rounds = max(1, calls // 10)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for result, flags, work, count, fewest in (
            (memory, MEMORY, try_calls, calls, FEWEST),
            (threads, THREADS, try_threads, rounds, FEWEST_ROUNDS),
        ):
            started = time.perf_counter()
            reason = missing(flags, folder)
            if reason:
                result.outcomes[reason] += 1
                continue
            used = libraries[: max(1, count // fewest)]
            for number, library in enumerate(used):
                share = count * (number + 1) // len(used) - count * number // len(used)
                work(library, share, seed + number, result, folder)
            result.what += f", {len(used)} {'library' if len(used) == 1 else 'libraries'}"
            result.seconds = time.perf_counter() - started
    return [memory, threads, try_rooms(calls, seed), try_layers(max(1, calls // 20), seed)]
