"""The command that times layers and models. Heavy modules are imported inside."""

from __future__ import annotations

from torchcaps.apps.cli.parsing import parse


def bench_command(words: list[str]) -> None:
    from torchcaps.apps.cli.options import Bench

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
