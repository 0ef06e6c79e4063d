"""torchcaps strange: detect out-of-distribution images. Heavy modules are imported inside."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from torchcaps._core.fields import as_json
from torchcaps._core.neutral import shown
from torchcaps.apps.cli.commands.networks import open_networks, print_pictures, print_table, write_results
from torchcaps.apps.cli.parsing import parse
from torchcaps.runs.config import Folder

if TYPE_CHECKING:
    from torchcaps.analysis.images import InMemoryImages
    from torchcaps.analysis.strange import Roc
WORDS = {"reconstruction": "reconstruction error", "confidence": "confidence"}


@dataclass(frozen=True)
class Strange:
    """Detect out-of-distribution images by the reconstruction error and by the confidence."""

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """The run folder."""
    against: Annotated[tuple[str, ...], arg(metavar="WHAT...")] = ("noise", "jumbled", "attacked", "scattered")
    """noise, jumbled, attacked, scattered (the changes of an attack at other pixels); or data: a name, folder or
    file."""
    count: int = 1000
    """Number of random images of each kind."""
    data_dir: Folder = None
    """Folder of data sets by name."""
    device: Annotated[str, arg(metavar="NAME")] = "auto"
    """Device: auto, cpu, cuda or mps."""
    seed: int = 0
    """Seed of the choice of images, of noise and of shuffled parts."""
    json: bool = False
    """Print JSON instead of a table."""


def strange_command(words: list[str]) -> None:
    examples = """\
  torchcaps strange runs/mine
  torchcaps strange runs/mnist --against fashion-mnist kmnist noise"""
    options = parse(Strange, words, "strange", examples)
    from torchcaps._core.errors import check_count, input_error

    check_count("strange", "--count", options.count)
    if not options.against:
        raise input_error("strange", "one or more --against", "none", "Name some, or drop --against.")
    networks = open_networks("strange", options.run, (), options.data_dir, options.device)
    from torchcaps.analysis.images import some
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
    verdicts = _verdicts(results)
    summary = {
        "data": networks.run.config.data,
        "examples": len(data),
        "against": {
            kind: {"examples": len(strange[kind]), **{word: _summary(curve) for word, curve in found.items()}}
            for kind, found in results.items()
        },
        "verdicts": verdicts,
    }
    if options.json:
        print(as_json(summary))
    else:
        print(f"{shown(networks.run.config.data)}, test: {len(data):,} known examples\n")
        rows = [
            [kind, f"{len(strange[kind]):,}", word, _area(curve), f"{curve.found_at():.1%}"]
            for kind, found in results.items()
            for word, curve in found.items()
        ]
        print_table(["strange", "examples", "detector", "area (95 % interval)", "found at 5% false alarms"], rows)
        print("", *verdicts, sep="\n")
    target = networks.run.path("strange")
    write_results(target, summary)
    from torchcaps.plots.strange import roc_figure
    from torchcaps.plots.style import save_figures

    print_pictures(save_figures({"roc.png": roc_figure(results, strange)}, target))


def _other_data(options: Strange, word: str, data: InMemoryImages, folder: Path | None) -> InMemoryImages:
    """Images of another data set, in the shape that the run takes."""
    from torchcaps._core.errors import input_error
    from torchcaps.analysis.images import some
    from torchcaps.analysis.strange import as_shown
    from torchcaps.data import Splits, open_data

    height, width = data.images.shape[-2:]
    path = Path(word).expanduser()
    size = (height, width) if path.is_dir() else None  # pictures of different sizes must be resized
    found = open_data(word, folder=folder, size=size)
    part: Any = found.test if isinstance(found, Splits) else found
    if part.kind == "texts":
        raise input_error(
            "--against", "images, noise, jumbled, attacked or scattered", f"{word}, which are texts", "Choose another."
        )
    return as_shown(some(part, options.count, options.seed).images, data)


def _summary(curve: Roc) -> dict[str, object]:
    return {
        "area": curve.area,
        "interval_95": list(curve.interval),
        "found_at_5_percent_false_alarms": curve.found_at(),
    }


def _area(curve: Roc) -> str:
    low, high = curve.interval
    return f"{curve.area:.3f} ({low:.3f} to {high:.3f})"


def _verdicts(results: dict[str, dict[str, Roc]]) -> list[str]:
    """Which detector is better for each kind of images; if intervals overlap, neither."""
    lines = []
    for kind, found in results.items():
        if len(found) == 1:
            return ["The run has no decoder, so its confidence is the only detector."]
        worse, better = sorted(found, key=lambda word: found[word].area)
        areas = f"(area {found[better].area:.3f} against {found[worse].area:.3f})"
        if found[worse].interval[1] >= found[better].interval[0]:
            lines.append(f"{kind}: the intervals of both detectors overlap {areas}.")
        else:
            lines.append(f"{kind}: the {WORDS[better]} is a better detector than the {WORDS[worse]} {areas}.")
    return lines
