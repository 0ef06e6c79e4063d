"""Time, peak memory, and the peak performance of the machine."""

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
    """The seconds of each run. Runs alternate, so that noise affects all alike; the first round is a warm-up.

    device: the one that computes; unless it is a CPU, a run is timed until the device has finished.
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
    """Wait until a device has finished."""
    if device is not None and device.type != "cpu":
        torch.get_device_module(device).synchronize()


def peak_on_device(run: Run, device: torch.device) -> int:
    """The peak GPU memory of a run in bytes, beside what was allocated before."""
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    run()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before


def middle(values: list[float]) -> float:
    return statistics.median(values)


def peak_memory(make: Callable[..., Run], *arguments: Any) -> int | None:
    """The peak memory of a run in bytes beside its inputs, in a separate process; None if it cannot be measured."""
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
        forget.write_text("5")  # resets the peak to the current usage
    before = highest_memory()
    run()
    after = highest_memory()
    pipe.send(None if before is None or after is None else after - before)


def machine_peaks(device: torch.device | None = None) -> tuple[float, float]:
    """The performance of a large matrix product and a large copy: operations and bytes per second, in float32."""
    square = torch.randn(1536, 1536, device=device)
    room = torch.empty_like(square)
    product = min(interleaved({"product": lambda: torch.mm(square, square, out=room)}, 7, device)["product"])
    source = torch.ones(2**25, device=device)
    target = torch.empty_like(source)
    copy = min(interleaved({"copy": lambda: target.copy_(source)}, 7, device)["copy"])
    return 2 * 1536**3 / product, 2 * source.numel() * 4 / copy
