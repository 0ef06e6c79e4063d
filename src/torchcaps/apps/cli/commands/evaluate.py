"""torchcaps evaluate: test a run. Heavy modules are imported inside."""

from __future__ import annotations

import csv
import io
import sys
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from statistics import mean, stdev
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
    from torchcaps.runs.run import Run


@dataclass(frozen=True)
class Evaluate:
    """Test a run: accuracy and error with 95 % interval, a table of classes; figures are saved in the run folder."""

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """The run folder, or that of the folds of train --folds: all are tested, without figures."""
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
  torchcaps evaluate runs/stars --baseline
  torchcaps evaluate runs/ten                         all folds of train --folds 10"""
    options = parse(Evaluate, words, "evaluate", examples)
    from torchcaps._core.device import choose_device
    from torchcaps.runs.run import Run

    device = choose_device("evaluate", options.device)
    folds = fold_folders(options.run)
    if folds:
        return _evaluate_folds(options, folds, device)
    run = Run.open(options.run)
    tested = tested_run(run, options, device)
    if options.json:
        print(as_json(tested.summary))
    else:
        for name, result in tested.results.items():
            _show(f"{shown(tested.source)}, {name}", result)
    folder = _written(tested, run, options)
    if options.pictures:
        from torchcaps.plots.evaluation import evaluation_pictures

        print(f"mistakes by name: {folder / 'mistakes.csv'}", file=sys.stderr)
        for path in evaluation_pictures(tested.model, tested.data, tested.first, folder, run.metadata.temperature):
            print(f"picture: {path}", file=sys.stderr)
    return None


@dataclass(frozen=True)
class Tested:
    """The results of a run: of its network on each part, the first of which are `data`, and of baselines."""

    source: str
    model: Any
    data: Examples
    results: dict[str, Evaluation]

    @property
    def first(self) -> Evaluation:
        return next(iter(self.results.values()))

    @property
    def summary(self) -> dict[str, Any]:
        return {"data": self.source, **{name: _summary(result) for name, result in self.results.items()}}


def tested_run(run: Run, options: Evaluate, device: Any) -> Tested:
    """Evaluate a run, and baselines if they are asked for."""
    from torchcaps._core.errors import input_error
    from torchcaps.analysis.evaluate import evaluate
    from torchcaps.data import Strings
    from torchcaps.runs.parts import parts_for

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
    if options.baseline:
        from torchcaps.analysis.baselines import baselines

        results |= baselines(parts.train, next(iter(wanted.values())))
    return Tested(options.data or run.config.data, model, next(iter(wanted.values())), results)


def _written(tested: Tested, run: Run, options: Evaluate) -> Path:
    """Write the results and mistakes into the run folder; returns the folder they are in."""
    from torchcaps.runs.card import write_card

    own = options.data is None and options.part == "test" and not options.patches
    named = f"{Path(tested.source).stem}-{options.part}" + ("-patches" if options.patches else "")
    folder = run.path("evaluation", *([] if own else [named]))
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(folder / "results.json", as_json(tested.summary) + "\n")
    atomic_write(folder / "mistakes.csv", _mistakes(tested.data, tested.first))
    if own:
        write_card(run)
    return folder


def fold_folders(folder: Path) -> list[Path]:
    """The runs in a folder of folds, or nothing for another folder. Raises an `InputError` if some are not trained."""
    from torchcaps._core.errors import input_error
    from torchcaps._core.fields import read_object
    from torchcaps._core.files import inside

    if not (folder / "folds.json").exists():
        return []
    count = read_object(inside(folder, "folds.json"), "the options of folds").get("folds")
    found = [inside(folder, f"fold-{number}") for number in range(1, count + 1)] if isinstance(count, int) else []
    done = [place for place in found if (place / "outcome.json").exists()]
    if not found or len(done) < len(found):
        got = f"{len(done)} of {len(found)}"
        raise input_error(str(folder), "folds that are all trained", got, "Call the command that began them again.")
    return found


def _evaluate_folds(options: Evaluate, folds: list[Path], device: Any) -> None:
    """Evaluate the run of every fold, and show the mean and standard deviation of each result."""
    from torchcaps._core.files import inside
    from torchcaps.runs.run import Run

    summaries: dict[str, dict[str, Any]] = {}
    scores: dict[str, list[float]] = {}
    for place in folds:
        run = Run.open(place)
        tested = tested_run(run, options, device)
        _written(tested, run, options)
        summaries[place.name] = tested.summary
        measures = {
            f"{name}, {what}": value for name, each in tested.results.items() for what, value in _measures(each)
        }
        for name, value in measures.items():
            scores.setdefault(name, []).append(value)
        if not options.json:
            print(f"{place.name}: {tested.first.count:,} examples, accuracy {tested.first.accuracy:.2%}")
    means = {name: {"mean": mean(values), "deviation": stdev(values)} for name, values in scores.items()}
    if options.json:
        print(as_json({"folds": summaries, "means": means}))
    else:
        print(f"\nmean of {len(folds)} folds, and standard deviation")
        width = max(map(len, means))
        for name, found in means.items():
            print(f"  {name:<{width}}  {found['mean']:>7.2%}  {found['deviation']:>7.2%}")
    if options.data is None and options.part == "test":
        atomic_write(inside(options.run, "evaluation.json"), as_json({"folds": summaries, "means": means}) + "\n")


def _measures(result: Evaluation) -> list[tuple[str, float]]:
    """What is averaged over folds."""
    f1 = ("mean F1", result.scores()["f1_samples"]) if result.many else ("macro F1", result.macro_f1)
    return [("accuracy", result.accuracy), f1]


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
    texts: Any = getattr(data, "texts", None)
    table.writerow(["example", "label", "answer", "confidence", *([] if texts is None else ["text"])])
    for row in rows[sure[rows].argsort(descending=True, stable=True)].tolist():
        named = ["; ".join(compress(result.classes, each[row].tolist())) for each in (truth, said)]
        cells = [*(csv_cell(str(text)) for text in (names[row], *named)), f"{sure[row]:.4f}"]
        table.writerow([*cells, *([] if texts is None else [csv_cell(texts[row])])])
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
