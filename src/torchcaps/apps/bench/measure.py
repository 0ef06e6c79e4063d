"""Time, peak memory, and what the machine could do."""

from __future__ import annotations

import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from torchcaps._core.memory import highest_memory

Run = Callable[[], Any]


def interleaved(runs: dict[str, Run], repeats: int, device: torch.device | None = None) -> dict[str, list[float]]:
    """Seconds of each run, in turns, so that a noisy machine is noisy for all; a first turn warms up.

    device: the one that computes; where that is no CPU, a run ends when the device has done all its work.
    """
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(repeats + 1):
        for name, run in runs.items():
            wait_for(device)
            start = time.perf_counter()
            run()
            wait_for(device)
            if turn:
                times[name].append(time.perf_counter() - start)
    return times


def wait_for(device: torch.device | None) -> None:
    """Wait until a device has done what it was asked to do."""
    if device is not None and device.type != "cpu":
        torch.get_device_module(device).synchronize()


def peak_on_device(run: Run, device: torch.device) -> int:
    """The most bytes that a run takes on a GPU, beside what was there before."""
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    run()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before


def middle(values: list[float]) -> float:
    return statistics.median(values)


def peak_memory(make: Callable[..., Run], *arguments: Any) -> int | None:
    """The bytes that a run needs beside what it was given, in a process of its own; None where that cannot be seen."""
    if sys.platform == "win32":
        return None
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_watch, args=(theirs, make, arguments, torch.get_num_threads()))
    process.start()
    theirs.close()
    try:
        found: int | None = ours.recv()
    except EOFError:
        found = None
    process.join()
    if found is None and process.exitcode != -9:  # killed with 9: the system has run out of memory
        raise RuntimeError(f"the process that measures memory ended with {process.exitcode}")
    return found


def _watch(pipe: Any, make: Callable[..., Run], arguments: tuple[Any, ...], threads: int) -> None:
    torch.set_num_threads(threads)
    run = make(*arguments)
    forget = Path("/proc/self/clear_refs")
    if forget.exists():
        forget.write_text("5")  # the highest so far is what there is now
    before = highest_memory()
    run()
    after = highest_memory()
    pipe.send(None if before is None or after is None else after - before)


def machine_peaks(device: torch.device | None = None) -> tuple[float, float]:
    """What a large matrix product and a large copy reach here: operations and bytes a second, in float32."""
    square = torch.randn(1536, 1536, device=device)
    room = torch.empty_like(square)
    product = min(interleaved({"product": lambda: torch.mm(square, square, out=room)}, 7, device)["product"])
    source = torch.ones(2**25, device=device)
    target = torch.empty_like(source)
    copy = min(interleaved({"copy": lambda: target.copy_(source)}, 7, device)["copy"])
    return 2 * 1536**3 / product, 2 * source.numel() * 4 / copy
