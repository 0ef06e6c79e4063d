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
    from torch import Tensor

    from torchcaps.analysis.images import InMemoryImages
    from torchcaps.analysis.strange import Roc
    from torchcaps.runs.run import Run
WORDS = {"reconstruction": "reconstruction error", "confidence": "confidence"}
WORDS["logistic regression"] = "confidence of the logistic regression"


@dataclass(frozen=True)
class Strange:
    """Detect out-of-distribution images by the reconstruction error and by the confidence; texts by the confidence."""

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """The run folder."""
    against: Annotated[tuple[str, ...], arg(metavar="WHAT...")] = ("noise", "jumbled", "attacked", "scattered")
    """noise, jumbled, attacked, scattered (the changes of an attack at other pixels); or data: a name, folder or
    file. Texts: names, tables, or files with a text in each line."""
    count: int = 1000
    """Number of random images or texts of each kind."""
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
  torchcaps strange runs/mnist --against fashion-mnist kmnist noise
  torchcaps strange runs/stars --against other.csv"""
    options = parse(Strange, words, "strange", examples)
    from torchcaps._core.errors import check_count, input_error

    check_count("strange", "--count", options.count)
    if not options.against:
        raise input_error("strange", "one or more --against", "none", "Name some, or drop --against.")
    from torchcaps.runs.run import Run

    run = Run.open(options.run)
    if run.metadata.kind == "texts":
        return _strange_texts(run, options)
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
    counts = {kind: len(images) for kind, images in strange.items()}
    return _tell(networks.run, options, results, len(data), counts, strange)


def _tell(
    run: Run,
    options: Strange,
    results: dict[str, dict[str, Roc]],
    known: int,
    counts: dict[str, int],
    images: dict[str, InMemoryImages],
) -> None:
    """Print and write the results, and draw them. known: how many examples; counts: how many of each strange kind."""
    verdicts = _verdicts(results)
    summary = {
        "data": run.config.data,
        "examples": known,
        "against": {
            kind: {"examples": counts[kind], **{word: _summary(curve) for word, curve in found.items()}}
            for kind, found in results.items()
        },
        "verdicts": verdicts,
    }
    if options.json:
        print(as_json(summary))
    else:
        print(f"{shown(run.config.data)}, test: {known:,} known examples\n")
        rows = [
            [kind, f"{counts[kind]:,}", word, _area(curve), f"{curve.found_at():.1%}"]
            for kind, found in results.items()
            for word, curve in found.items()
        ]
        print_table(["strange", "examples", "detector", "area (95 % interval)", "found at 5% false alarms"], rows)
        print("", *verdicts, sep="\n")
    target = run.path("strange")
    write_results(target, summary)
    from torchcaps.plots.strange import roc_figure
    from torchcaps.plots.style import save_figures

    print_pictures(save_figures({"roc.png": roc_figure(results, images)}, target))


def _strange_texts(run: Run, options: Strange) -> None:
    """The same for a run on texts, whose strange texts are given."""
    from torchcaps._core.device import choose_device
    from torchcaps._core.errors import input_error
    from torchcaps.analysis.strange import MADE
    from torchcaps.analysis.strange_texts import strange_text_test

    if run.metadata.many:
        got = "one with any number of them"
        raise input_error("strange", "a run on texts of one class each", got, "Choose another run.")
    made = [word for word in options.against if word in MADE]
    if made:
        raise input_error("--against", "texts for a run on texts", made[0], "Name tables or files of texts.")
    parts = run.load_parts(data_dir=options.data_dir)
    strange = {word: _other_texts(run, options, word) for word in dict.fromkeys(options.against)}
    known = parts.test.take(_few(len(parts.test), options))
    model = run.load_model().to(choose_device("strange", options.device))
    results = strange_text_test(model, parts.train, known, strange)
    _tell(run, options, results, len(known), {word: len(texts) for word, texts in strange.items()}, {})


def _other_texts(run: Run, options: Strange, word: str) -> list[str]:
    """Random texts of a file or of the test part of a data set."""
    from torchcaps._core.errors import input_error
    from torchcaps.data import Splits, open_data, texts_in
    from torchcaps.runs.rundata import columns_of

    path = Path(word).expanduser()
    if path.is_file():
        texts = [text for text in texts_in(path, columns_of(run.config)) if text.strip()]
    else:
        found = open_data(word, folder=options.data_dir or run.config.data_dir, columns=columns_of(run.config))
        part: Any = found.test if isinstance(found, Splits) else found
        if part.kind != "texts":
            raise input_error(
                "--against", "texts for a run on texts", f"{word}, which are {part.kind}", "Choose others."
            )
        texts = list(part.texts)
    if not texts:
        raise input_error(word, "texts", "none", "Choose other data.")
    return [texts[row] for row in _few(len(texts), options).tolist()]


def _few(count: int, options: Strange) -> Tensor:
    """The indices of random examples, at most as many as --count."""
    import torch

    return torch.randperm(count, generator=torch.Generator().manual_seed(options.seed))[: options.count]


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
