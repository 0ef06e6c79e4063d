"""The command that jumbles parts. Heavy modules are imported inside."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from torchcaps.commands.networks import open_networks, percent, print_pictures, print_table, write_results
from torchcaps.parsing import parse

if TYPE_CHECKING:
    from torchcaps.analysis.jumble import JumbleResult


def jumble_command(words: list[str]) -> None:
    from torchcaps.options import Jumble

    examples = """\
  torchcaps jumble runs/mine
  torchcaps jumble runs/capsules --beside runs/cnn"""
    options = parse(Jumble, words, "jumble", examples)
    from torchcaps.errors import check_count

    check_count("jumble", "--count", options.count)
    networks = open_networks("jumble", options.run, options.beside, options.data_dir, options.device)
    from torchcaps.analysis.jumble import jumble_test, jumbled_sets
    from torchcaps.analysis.shown import some, varied

    data = some(networks.test, options.count, options.seed)
    results = {name: jumble_test(model, data, options.seed) for name, model in networks.models.items()}
    summary = {
        "data": networks.run.config.data,
        "examples": len(data),
        "runs": {name: _summary(found) for name, found in results.items()},
    }
    if options.json:
        print(json.dumps(summary, indent=2, allow_nan=False))
    else:
        print(f"{networks.run.config.data}, test: {len(data):,} examples\n")
        rows = [_row(name, result) for name, found in results.items() for result in found.values()]
        print_table(["run", "images", "confidence", "of the truth", "accuracy (95 % interval)"], rows)
        print()
        for name, found in results.items():
            print(f"{name} {_verdict(found)}")
    folder = networks.run.folder / "jumble"
    write_results(folder, summary)
    from torchcaps.plots.jumble import confidence_figure, jumble_figure
    from torchcaps.plots.style import save_figures

    model = next(iter(networks.models.values()))
    few = varied(data, 6)
    figures = {
        "examples.png": jumble_figure(jumbled_sets(few, options.seed), jumble_test(model, few, options.seed)),
        "confidence.png": confidence_figure(results),
    }
    print_pictures(save_figures(figures, folder))


def _row(name: str, result: JumbleResult) -> list[str]:
    sure, true = (f"{float(values.mean()):.2f}" for values in (result.confidence, result.true_confidence))
    return [name, result.kind, sure, true, percent(result.accuracy, result.interval)]


def _verdict(found: dict[str, JumbleResult]) -> str:
    """stays as sure, becomes less sure, or unsure: by the mean confidence on shuffled images against whole ones."""
    from torchcaps.analysis.jumble import sureness

    share = sureness(found)
    word = "stays as sure" if share >= 0.9 else "becomes less sure" if share > 0.5 else "becomes unsure"
    shuffled = f"{word} when parts are shuffled ({share:.0%} of its confidence)"
    if "side by side" not in found:
        return f"{shuffled}."
    both = found["side by side"].accuracy
    return f"{shuffled}, and names both of two things side by side in {both:.0%} of images."


def _summary(found: dict[str, JumbleResult]) -> dict[str, object]:
    from torchcaps.analysis.jumble import sureness

    kinds = {
        kind: {
            "confidence": float(result.confidence.mean()),
            "true_confidence": float(result.true_confidence.mean()),
            "accuracy": result.accuracy,
            "interval_95": list(result.interval),
        }
        for kind, result in found.items()
    }
    return {"sureness": sureness(found), "images": kinds}
