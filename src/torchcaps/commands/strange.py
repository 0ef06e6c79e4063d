"""The command that looks for strange images. Heavy modules are imported inside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchcaps.commands.networks import open_networks, print_pictures, print_table, write_results
from torchcaps.parsing import parse

if TYPE_CHECKING:
    from torchcaps.analysis.shown import Shown
    from torchcaps.analysis.strange import Roc
    from torchcaps.options import Strange

ALIKE = 0.01  # areas that differ by less are called alike


def strange_command(words: list[str]) -> None:
    from torchcaps.options import Strange

    examples = """\
  torchcaps strange runs/mine
  torchcaps strange runs/mnist --against fashion-mnist kmnist noise"""
    options = parse(Strange, words, "strange", examples)
    from torchcaps.errors import check_count, complaint

    check_count("strange", "--count", options.count)
    if not options.against:
        raise complaint("strange", "one or more --against", "none", "Name some, or drop --against.")
    networks = open_networks("strange", options.run, (), options.data_dir, options.device)
    from torchcaps.analysis.shown import some
    from torchcaps.analysis.strange import MADE, strange_images, strange_test

    (model,) = networks.models.values()
    data = some(networks.test, options.count, options.seed)
    folder = options.data_dir or networks.run.config.data_dir
    others = {word: _other_data(options, word, data, folder) for word in options.against if word not in MADE}
    kinds = dict.fromkeys(options.against)
    strange = {
        word: others[word] if word in others else strange_images(model, data, word, options.seed) for word in kinds
    }
    results = strange_test(model, data, strange)
    summary = {
        "data": networks.run.config.data,
        "examples": len(data),
        "against": {
            kind: {"examples": len(strange[kind]), **{word: _summary(curve) for word, curve in found.items()}}
            for kind, found in results.items()
        },
    }
    if options.json:
        print(json.dumps(summary, indent=2, allow_nan=False))
    else:
        print(f"{networks.run.config.data}, test: {len(data):,} examples are known\n")
        rows = [
            [kind, f"{len(strange[kind]):,}", word, f"{curve.area:.3f}", f"{curve.found_at():.1%}"]
            for kind, found in results.items()
            for word, curve in found.items()
        ]
        print_table(["strange", "examples", "detector", "area", "found at 5% false alarms"], rows)
        print()
        for kind, found in results.items():
            print(_verdict(kind, found))
    target = networks.run.folder / "strange"
    write_results(target, summary)
    from torchcaps.plots.strange import roc_figure
    from torchcaps.plots.style import save_figures

    print_pictures(save_figures({"roc.png": roc_figure(results, strange)}, target))


def _other_data(options: Strange, word: str, data: Shown, folder: Path | None) -> Shown:
    """Images of another data set, in the shape that the run knows."""
    from torchcaps.analysis.shown import some
    from torchcaps.analysis.strange import as_shown
    from torchcaps.data import Splits, TextSet, open_data
    from torchcaps.errors import complaint

    height, width = data.images.shape[-2:]
    path = Path(word).expanduser()
    size = height if path.is_dir() and height == width else None  # pictures of many sizes must be made alike
    found = open_data(word, folder=folder, size=size)
    part: Any = found.test if isinstance(found, Splits) else found
    if isinstance(part, TextSet):
        raise complaint(
            "--against", "images, noise, jumbled, attacked or scattered", f"{word}, which are texts", "Choose another."
        )
    return as_shown(some(part, options.count, options.seed).images, data)


def _summary(curve: Roc) -> dict[str, float]:
    return {"area": curve.area, "found_at_5_percent_false_alarms": curve.found_at()}


def _verdict(kind: str, found: dict[str, Roc]) -> str:
    if len(found) == 1:
        return f"{kind}: the run has no decoder, so there is its confidence alone."
    first, second = found["reconstruction"].area, found["confidence"].area
    if abs(first - second) < ALIKE:
        return f"{kind}: both detectors do alike (areas {first:.3f} and {second:.3f})."
    better, worse = ("reconstruction error", "confidence") if first > second else ("confidence", "reconstruction error")
    areas = f"{max(first, second):.3f} against {min(first, second):.3f}"
    return f"{kind}: the {better} tells more than the {worse} (area {areas})."
