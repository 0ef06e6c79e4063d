"""torchcaps bench: timings of layers and models. Heavy modules are imported inside."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from torchcaps.apps.cli.parsing import parse
from torchcaps.runs.config import Count


@dataclass(frozen=True)
class Bench:
    """Time layers and models against textbook implementations with equal results, in turns."""

    cases: Annotated[Positional[tuple[str, ...]], arg(metavar="CASE...")] = ()
    """dense, dense-last, em-window, em-grid, capsnet, matrix, text, matrix-small, export (onnxruntime against torch);
    default: all of them."""
    repeats: int = 5
    """Timed repeats of each; shown are the median, the shortest and the longest."""
    threads: Count = None
    """Number of threads; default: that of torch."""
    memory: bool = True
    """Also measure peak memory, in separate processes."""
    json: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """Also write the figures to this file."""
    growth: Annotated[Path | None, arg(metavar="PICTURE", help_behavior_hint="")] = None
    """Instead, draw how the time grows with batch, children, parents, pose size and iterations."""
    device: Annotated[str, arg(metavar="NAME")] = "cpu"
    """cpu or cuda; results of both sides are compared first."""


def bench_command(words: list[str]) -> None:
    examples = "  torchcaps bench\n  torchcaps bench dense em-window --repeats 9 --json out/bench.json"
    options = parse(Bench, words, "bench", examples)
    from torchcaps._core.errors import check_choice, check_count, input_error

    check_count("bench", "repeats", options.repeats)
    import torch

    from torchcaps._core.device import choose_device
    from torchcaps.apps.bench import CASES, EXPORT, STEP, bench, growth

    for name in options.cases:
        check_choice("bench", "case", name, [*CASES, STEP, EXPORT])
    if options.threads is not None:
        check_count("bench", "threads", options.threads)
        torch.set_num_threads(options.threads)
    if options.growth is not None:
        if options.device != "cpu":
            raise input_error("--growth", "no --device beside it", options.device, "Drop one of them.")
        print(f"picture: {growth(options.repeats, options.growth)}")
        return
    device = choose_device("bench", options.device)
    bench(options.cases, options.repeats, options.memory, options.json, device)
