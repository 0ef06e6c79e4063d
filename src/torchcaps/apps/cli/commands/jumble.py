"""torchcaps jumble: confidence on images with shuffled parts. Heavy modules are imported inside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchcaps._core.fields import as_json
from torchcaps._core.neutral import shown
from torchcaps.apps.cli.commands.networks import RunsBeside, percent, print_pictures, print_table, write_results
from torchcaps.apps.cli.parsing import parse

if TYPE_CHECKING:
    from torchcaps.analysis.jumble import JumbleResult

WIDE = 0.2  # a wider interval is inconclusive, unless all of it gives the same verdict


@dataclass(frozen=True)
class Jumble(RunsBeside):
    """Shuffle or mirror the parts of test images, or put two side by side: confidence and accuracy of a run."""


def jumble_command(words: list[str]) -> None:
    examples = """\
  torchcaps jumble runs/mine
  torchcaps jumble runs/capsules --beside runs/cnn"""
    options = parse(Jumble, words, "jumble", examples)
    from torchcaps._core.errors import check_count

    check_count("jumble", "--count", options.count)
    networks = options.networks("jumble")
    from torchcaps.analysis.images import some, varied
    from torchcaps.analysis.jumble import jumble_test, jumbled_sets, no_pairs

    data = some(networks.test, options.count, options.seed)
    sets = jumbled_sets(data, options.seed)
    results = {name: jumble_test(model, sets) for name, model in networks.models.items()}
    verdicts = [f"{name} {_verdict(found)}" for name, found in results.items()]
    if why := no_pairs(data):
        verdicts.append(f"Side by side is left out: {why}.")
    summary = {
        "data": networks.run.config.data,
        "examples": len(data),
        "runs": {name: _summary(found) for name, found in results.items()},
        "verdicts": verdicts,
    }
    if options.json:
        print(as_json(summary))
    else:
        print(f"{shown(networks.run.config.data)}, test: {len(data):,} examples\n")
        rows = [_row(name, result) for name, found in results.items() for result in found.values()]
        print_table(["run", "images", "confidence", "of the truth", "accuracy (95 % interval)"], rows)
        print("", *verdicts, sep="\n")
    folder = networks.run.path("jumble")
    write_results(folder, summary)
    from torchcaps.plots.jumble import confidence_figure, jumble_figure
    from torchcaps.plots.style import save_figures

    figures = {
        "examples.png": jumble_figure(sets, next(iter(results.values())), varied(data, 6)),
        "confidence.png": confidence_figure(results),
    }
    print_pictures(save_figures(figures, folder))


def _row(name: str, result: JumbleResult) -> list[str]:
    sure, true = (f"{float(values.mean()):.2f}" for values in (result.confidence, result.true_confidence))
    return [name, result.kind, sure, true, percent(result.accuracy, result.interval)]


def _verdict(found: dict[str, JumbleResult]) -> str:
    """The verdict on the confidence on shuffled images: "stays as sure", "becomes less sure" or "becomes unsure"."""
    from torchcaps.analysis.jumble import sureness

    sure = sureness(found)
    low, high = sure.interval or (0.0, float("inf"))
    if high - low > WIDE and _how_sure(low) != _how_sure(high):
        count = found["whole"].evaluation.count
        return f"was shown too few images ({count:,}) to tell how sure it stays when parts are shuffled."
    share = f"{sure.share:.0%} of its confidence, {low:.0%} to {high:.0%}"
    shuffled = f"{_how_sure(sure.share)} when parts are shuffled ({share})"
    if "side by side" not in found:
        return f"{shuffled}."
    both = found["side by side"].accuracy
    return f"{shuffled}, and names both of two objects side by side in {both:.0%} of images."


def _how_sure(share: float) -> str:
    return "stays as sure" if share >= 0.9 else "becomes less sure" if share > 0.5 else "becomes unsure"


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
    sure = sureness(found)
    return {"sureness": sure.share, "sureness_interval_95": sure.interval, "images": kinds}
