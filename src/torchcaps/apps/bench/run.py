"""Run benchmarks: check that both sides give the same results, time them in turns, and print a table."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from torchcaps._core.fields import as_json
from torchcaps._core.files import atomic_write
from torchcaps.apps.bench.cases import CASES, Built, Results, step
from torchcaps.apps.bench.exported import time_export
from torchcaps.apps.bench.machine import machine_lines
from torchcaps.apps.bench.measure import interleaved, machine_peaks, middle, peak_memory, peak_on_device
from torchcaps.apps.bench.steps import time_step
from torchcaps.apps.export import missing_package
from torchcaps.votes.native import describe

EXPORT, STEP = "export", "matrix-small"  # cases without a textbook version
SIDES = ("textbook", "torchcaps")
MEMORY = {  # batch sizes at which peak memory is measured; textbook only where it fits an ordinary machine
    "dense": {"textbook": (128,), "torchcaps": (32, 128, 256)},
    "em-window": {"textbook": (8,), "torchcaps": (8, 64)},
    "em-grid": {"textbook": (8,), "torchcaps": (8, 64)},
}
GROWTH: dict[str, dict[str, tuple[int, ...]]] = {
    "dense": {
        "batch": (16, 32, 64, 128, 256),
        "children": (144, 288, 576, 1152),
        "parents": (5, 10, 20, 40),
        "out_dim": (4, 8, 16, 32),
        "iterations": (1, 2, 3, 5),
    },
    "em-window": {"batch": (1, 2, 4, 8), "children": (8, 16, 32), "parents": (8, 16, 32), "iterations": (1, 2, 3, 5)},
}


def bench(
    names: tuple[str, ...],
    repeats: int,
    memory: bool = True,
    out: Path | None = None,
    device: torch.device | None = None,
) -> list[dict[str, Any]]:
    """Time these cases (default: all), print a table, and optionally write the figures to a file."""
    device = torch.device("cpu") if device is None else device
    print("\n".join(machine_lines(device)), "\n")
    with device:  # the tensors of both sides are created there
        return _bench(names, repeats, memory, out, device)


def _bench(
    names: tuple[str, ...], repeats: int, memory: bool, out: Path | None, device: torch.device
) -> list[dict[str, Any]]:
    operations, traffic = machine_peaks(device)
    print(f"peak of a matrix product {operations / 1e9:.0f} GFLOP/s, of a copy {traffic / 1e9:.0f} GB/s\n")
    print(f"{'':18}{'textbook':>26}{'torchcaps':>26}{'ratio':>9}")
    rows: list[dict[str, Any]] = []
    on_cpu = device.type == "cpu"
    for name in names or (*CASES, *((STEP, *([EXPORT] if missing_package() is None else [])) if on_cpu else ())):
        if name in (EXPORT, STEP):
            rows += time_export(repeats) if name == EXPORT else time_step(repeats)
            continue
        print(CASES[name].title)
        built = CASES[name].make()
        _check(name, built)
        if built.plan is not None:
            print(f"  {built.plan()}")
        for work in ("forward", "forward + backward") if CASES[name].forward else ("forward + backward",):
            row = _timed(name, built, work, repeats, device)
            if work != "forward" and built.operations is not None and built.bytes is not None:
                least = max(built.operations / operations, built.bytes / traffic)
                row["roofline"] = least / middle(row["seconds"]["torchcaps"])
                print(f"  {'of the roofline':16}{'':>26}{row['roofline']:>25.0%}")
            rows.append(row)
        if memory and name in MEMORY:
            rows.append(_memory(name) if on_cpu else _memory_on(name, device))
    if out is not None:
        machine = {
            "threads": torch.get_num_threads(),
            "device": device.type,
            "operations": operations,
            "bytes": traffic,
            "native": describe(),
        }
        _write(out, {"torch": torch.__version__, "machine": machine, "rows": rows})
    return rows


def _check(name: str, built: Built) -> None:
    with torch.no_grad():
        mine, expected = built.torchcaps(), built.textbook()
    torch.testing.assert_close(mine, expected, rtol=1e-3, atol=1e-4, msg=lambda text: f"{name}: {text}")


def _works(built: Built, work: str) -> dict[str, Callable[[], None]]:
    def job(run: Callable[[], Results]) -> Callable[[], None]:
        if work != "forward":
            return lambda: step(run, built.leaves)

        def forward() -> None:
            with torch.inference_mode():
                run()

        return forward

    return {"textbook": job(built.textbook), "torchcaps": job(built.torchcaps)}


def _timed(name: str, built: Built, work: str, repeats: int, device: torch.device) -> dict[str, Any]:
    times = interleaved(_works(built, work), repeats, device)
    ratio = middle(times["textbook"]) / middle(times["torchcaps"])
    cells = [f"{_ms(middle(times[side]))} ({_ms(min(times[side]))}-{_ms(max(times[side]))}) ms" for side in SIDES]
    print(f"  {work:16}{cells[0]:>26}{cells[1]:>26}{ratio:>8.1f}x", flush=True)
    return {"case": name, "work": work, "seconds": times, "ratio": ratio}


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.0f}" if seconds > 0.02 else f"{1e3 * seconds:.2f}"


def _memory(name: str) -> dict[str, Any]:
    found: dict[str, dict[int, int | None]] = {}
    for side in SIDES:
        found[side] = {batch: peak_memory(_one_step, name, side, batch) for batch in MEMORY[name][side]}
        cells = ", ".join(
            f"batch {batch}: {'-' if peak is None else f'{peak / 2**20:,.0f} MB'}"
            for batch, peak in found[side].items()
        )
        print(f"  peak memory, {side}: {cells}", flush=True)
    return {"case": name, "work": "memory", "bytes": found}


def _memory_on(name: str, device: torch.device) -> dict[str, Any]:
    """Peak memory on a GPU, at the batch sizes that both sides support."""
    found: dict[str, dict[int, int]] = {}
    for side in SIDES:
        found[side] = {batch: peak_on_device(_one_step(name, side, batch), device) for batch in MEMORY[name][side]}
        cells = ", ".join(f"batch {batch}: {peak / 2**20:,.0f} MB" for batch, peak in found[side].items())
        print(f"  peak memory, {side}: {cells}", flush=True)
    return {"case": name, "work": "memory", "bytes": found}


def _one_step(name: str, side: str, batch: int) -> Callable[[], None]:
    built = CASES[name].make(batch=batch)
    return lambda: step(getattr(built, side), built.leaves)


Curves = dict[str, dict[str, dict[str, list[float]]]]  # case, size, side: milliseconds for each value of the size


def growth(repeats: int, out: Path) -> Path:
    """A figure of the time of a layer as a function of each of its sizes."""
    curves: Curves = {}
    for name, sizes in GROWTH.items():
        for size, values in sizes.items():
            times = curves.setdefault(name, {}).setdefault(size, {side: [] for side in SIDES})
            for value in values:
                found = interleaved(_works(CASES[name].make(**{size: value}), "forward + backward"), repeats)
                for side in SIDES:
                    times[side].append(1e3 * middle(found[side]))
                shown = ", ".join(f"{side} {times[side][-1]:.0f} ms" for side in SIDES)
                print(f"{name}, {size} {value}: {shown}", flush=True)
    return draw_growth(curves, out)


def draw_growth(curves: Curves, out: Path) -> Path:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14, 6), layout="constrained")
    panels = figure.subplots(len(curves), max(len(sizes) for sizes in curves.values()), squeeze=False, sharey="row")
    for line, (name, sizes) in zip(panels, curves.items(), strict=True):
        for panel in line[len(sizes) :]:
            panel.set_axis_off()
        for panel, (size, times) in zip(line, sizes.items(), strict=False):
            values = GROWTH[name][size]
            for side, style, color in zip(SIDES, ("o--", "o-"), ("#999999", "#2166ac"), strict=True):
                panel.plot(values, times[side], style, color=color, label=side)
            panel.set_xscale("log")
            panel.set_yscale("log")
            panel.minorticks_off()
            panel.set_xticks(values, [str(value) for value in values])
            panel.yaxis.set_major_formatter(lambda value, place: f"{value:,.0f}")
            panel.grid(axis="y", alpha=0.3)
            panel.set_xlabel(size.replace("out_dim", "pose size"))
        line[0].set_title(name, loc="left", fontsize=11)
        line[0].set_ylabel("forward + backward, ms")
        line[0].legend(frameon=False)
    out.parent.mkdir(parents=True, exist_ok=True)
    content = io.BytesIO()
    figure.savefig(content, dpi=110, format=out.suffix[1:] or "png")
    atomic_write(out, content.getvalue())
    return out


def _write(path: Path, figures: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, as_json(figures, indent=1) + "\n")
    print(f"\nfigures written to {path}")
