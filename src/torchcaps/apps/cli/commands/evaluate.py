"""torchcaps evaluate: test a run. Heavy modules are imported inside."""

from __future__ import annotations

import csv
import io
import sys
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from torchcaps._core.fields import as_json
from torchcaps._core.files import atomic_write
from torchcaps._core.neutral import csv_cell, shown
from torchcaps.apps.cli.parsing import parse
from torchcaps.runs.config import Folder

if TYPE_CHECKING:
    from torchcaps.analysis.evaluate import Evaluation
    from torchcaps.data import Examples


@dataclass(frozen=True)
class Evaluate:
    """Test a run: accuracy and error with 95 % interval, a table of classes; figures are saved in the run folder."""

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """The run folder."""
    data: Annotated[str | None, arg(metavar="DATA", help_behavior_hint="")] = None
    """Other data than those of the run: a name, a folder or a file. All examples of a folder or file are used."""
    baseline: bool = False
    """Also fit baselines of scikit-learn, in seconds: for texts a logistic regression on TF-IDF features, for images a
    support vector machine and a random forest on edges and colors."""
    part: Literal["test", "validation", "train"] = "test"
    """Part of the data."""
    patches: bool = False
    """For networks that crop (--option crop): average the outputs for 13 windows of each image."""
    data_dir: Folder = None
    """Folder of data sets by name."""
    device: Annotated[str, arg(metavar="NAME")] = "auto"
    """Device: auto, cpu, cuda or mps."""
    json: bool = False
    """Print JSON instead of tables."""
    pictures: bool = True
    """Draw the confusion matrix, mistakes and reconstructions."""


def evaluate_command(words: list[str]) -> None:
    examples = """\
  torchcaps evaluate runs/mine
  torchcaps evaluate runs/translated --data affnist
  torchcaps evaluate runs/stars --baseline"""
    options = parse(Evaluate, words, "evaluate", examples)
    from torchcaps._core.device import choose_device
    from torchcaps._core.errors import input_error
    from torchcaps.analysis.evaluate import evaluate
    from torchcaps.data import Strings
    from torchcaps.runs.card import write_card
    from torchcaps.runs.parts import parts_for
    from torchcaps.runs.run import Run

    device = choose_device("evaluate", options.device)
    run = Run.open(options.run)
    parts = parts_for(run, options.data, options.data_dir)
    wanted: dict[str, Any] = {options.part: getattr(parts, options.part)}
    if options.part == "test" and parts.novel is not None:
        wanted = {"familiar viewpoints": parts.test, "novel viewpoints": parts.novel}
    empty = [name for name, data in wanted.items() if not len(data)]
    if empty:
        raise input_error("evaluate", f"examples in the {empty[0]} part", "none", "Choose another --part or --data.")
    several = run.metadata.labels_per_image > 1
    if options.baseline and (run.metadata.kind == "arrays" or several or options.data is not None):
        got = "--data beside it" if options.data else "pairs of images" if several else f"one on {run.metadata.kind}"
        expected = "a run on texts, or on images of one class each, and its own data"
        raise input_error("--baseline", expected, got, "Drop --baseline.")
    if options.baseline and run.metadata.kind == "texts" and isinstance(parts.train.texts, Strings):
        got = f"{len(parts.train):,} that are read from a file"
        raise input_error(
            "--baseline", "training texts that fit in memory", got, "Drop --baseline, or raise TORCHCAPS_DATA_BYTES."
        )
    model = run.load_model().to(device)
    if options.patches:
        from torchcaps.models import Patches

        model = Patches(model)
    results = {name: evaluate(model, data) for name, data in wanted.items()}
    source = options.data or run.config.data
    if options.baseline:
        from torchcaps.analysis.baselines import baselines

        results |= baselines(parts.train, next(iter(wanted.values())))
    summary = {"data": source, **{name: _summary(result) for name, result in results.items()}}
    if options.json:
        print(as_json(summary))
    else:
        for name, result in results.items():
            _show(f"{shown(source)}, {name}", result)
    own = options.data is None and options.part == "test" and not options.patches
    named = f"{Path(source).stem}-{options.part}" + ("-patches" if options.patches else "")
    folder = run.path("evaluation", *([] if own else [named]))
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(folder / "results.json", as_json(summary) + "\n")
    wrong = _mistakes(next(iter(wanted.values())), next(iter(results.values())))
    atomic_write(folder / "mistakes.csv", wrong)
    if own:
        write_card(run)
    if options.pictures:
        from torchcaps.plots.evaluation import evaluation_pictures

        print(f"mistakes by name: {folder / 'mistakes.csv'}", file=sys.stderr)
        first, result = next(iter(wanted.values())), next(iter(results.values()))
        for path in evaluation_pictures(model, first, result, folder, run.metadata.temperature):
            print(f"picture: {path}", file=sys.stderr)


def _summary(result: Evaluation) -> dict[str, object]:
    rows = [[None if value != value else value for value in row] for row in result.per_class()]  # JSON has no NaN
    return {
        "examples": result.count,
        "accuracy": result.accuracy,
        "error": 1 - result.accuracy,
        "error_interval_95": list(result.error_interval),
        "balanced_accuracy": result.balanced_accuracy,
        "macro_f1": result.macro_f1,
        **(result.scores() if result.many else {}),
        "classes": [dict(zip(("class", "examples", "recall", "precision"), row, strict=True)) for row in rows],
    }


def _mistakes(data: Examples, result: Evaluation) -> str:
    """The wrong predictions as CSV, the most confident first."""
    from torchcaps.analysis.evaluate import said_classes, shown_classes
    from torchcaps.data import Labeled

    names: Any = data.names if isinstance(data, Labeled) else range(len(data))
    labels = result.labels if result.many or result.labels.shape[-1] > 1 else result.labels[:, 0]
    truth, said = shown_classes(labels, len(result.classes)), said_classes(result.activations, labels)
    sure = result.activations.amax(-1)
    rows = (truth != said).any(-1).nonzero()[:, 0]
    file = io.StringIO()
    table = csv.writer(file, lineterminator="\n")
    table.writerow(["example", "label", "answer", "confidence"])
    for row in rows[sure[rows].argsort(descending=True, stable=True)].tolist():
        named = ["; ".join(compress(result.classes, each[row].tolist())) for each in (truth, said)]
        table.writerow([*(csv_cell(str(text)) for text in (names[row], *named)), f"{sure[row]:.4f}"])
    return file.getvalue()


def _show(title: str, result: Evaluation) -> None:
    low, high = result.error_interval
    exact = " (all classes of an example right)" if result.labels.shape[-1] > 1 else ""
    print(f"{title}: {result.count:,} examples")
    error = f"error {1 - result.accuracy:.2%} (95 % interval {low:.2%} to {high:.2%})"
    print(f"accuracy {result.accuracy:.2%}{exact}, {error}")
    if result.only_answer is not None:
        print(f"every example was answered with {shown(result.only_answer)}: the network has learned nothing else")
    if not result.many:
        print(f"balanced accuracy {result.balanced_accuracy:.2%}, macro F1 {result.macro_f1:.2%}")
    else:
        found = result.scores()
        for name, word in (
            ("samples", "mean over examples"),
            ("micro", "all decisions"),
            ("macro", "mean over classes"),
        ):
            parts = ", ".join(f"{what} {found[f'{what}_{name}']:.2%}" for what in ("precision", "recall", "f1"))
            print(f"{word}: {parts}")
    width = max(5, *(len(shown(name)) for name in result.classes))
    print(f"\n{'class':<{width}}  {'count':>7}  {'recall':>7}  {'precision':>9}")
    for name, count, recall, precision in result.per_class():
        shares = [f"{share:.2%}" if share == share else "-" for share in (recall, precision)]
        print(f"{shown(name):<{width}}  {count:>7,}  {shares[0]:>7}  {shares[1]:>9}")
    print()
