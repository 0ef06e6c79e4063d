"""torchcaps predict: classify pictures and texts. Heavy modules are imported inside."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from torchcaps._core.fields import as_json
from torchcaps._core.files import atomic_write
from torchcaps._core.neutral import csv_cell, shown
from torchcaps.apps.cli.commands.texts import TextInputs, shortened, texts_of
from torchcaps.apps.cli.parsing import parse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchcaps.analysis.predict import Prediction
    from torchcaps.data.rows import Row

UNKNOWN = "do not know"


@dataclass(frozen=True)
class Predict(TextInputs):
    """Classify pictures or texts with a trained run."""

    inputs: Annotated[Positional[tuple[str, ...]], arg(metavar="INPUT...")]
    """Picture files and folders. For texts: the texts themselves, files of texts (tables, or a text in each line), or -
    for the lines of standard input."""
    device: Annotated[str, arg(metavar="NAME")] = "auto"
    """Device: auto, cpu, cuda or mps."""
    top_k: Annotated[int, arg(metavar="N")] = 1
    """Show the N most likely classes with their probabilities."""
    threshold: Annotated[float | None, arg(metavar="P", help_behavior_hint="")] = None
    """Answer "do not know" where the probability of the class is below P."""
    csv: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """Also write a CSV table: input, class, probability, and the probability of every class; rows of a table keep its
    columns."""


def predict_command(words: list[str]) -> None:
    examples = """\
  torchcaps predict runs/mine new.png more/
  torchcaps predict runs/mine new.png --json
  torchcaps predict runs/stars "a film to fall in love with" more.csv
  cat new.txt | torchcaps predict runs/stars -"""
    options = parse(Predict, words, "predict", examples)
    from torchcaps._core.device import choose_device
    from torchcaps._core.errors import input_error
    from torchcaps.analysis.predict import collect, picture_answers, text_answers
    from torchcaps.runs.run import Run

    if not options.inputs:
        raise input_error("predict", "files or texts after the run", "none", "Name at least one.")
    device = choose_device("predict", options.device)
    run = Run.open(options.run)
    files = [Path(name) for name in options.inputs]
    found: Iterator[Any]
    cells: list[Row] = []  # of the tables that texts come from
    if run.metadata.kind != "texts":
        found = picture_answers(run, run.load_model().to(device), files)
    else:
        texts = _noted(texts_of("predict", options, run), cells if options.csv is not None else None)
        found = text_answers(run, run.load_model().to(device), texts)
    first = next(found)  # errors come before any output
    _check(options, first)
    found = (_told(answer, options) for answer in chain([first], found))
    if options.csv is not None:
        found = _written(found, options.csv, cells)
    if options.json:
        print("[")
        for number, answer in enumerate(found):
            print(",\n" if number else "", indent(as_json(_as_dict(answer, run.metadata.kind)), "  "), sep="", end="")
        print("\n]")
        return
    if run.metadata.kind == "texts":
        for answer in found:
            told = f"{shown(', '.join(answer.labels)) or '-':<16}  {_sure(answer):<10}"
            print(f"{told}  {answer.unknown:>4.0%} unknown  {shortened(answer.source)}")
        return
    width = max(4, *(len(shown(name)) for name in collect(files)))
    word = "confidence" if first.probabilities is None else "probability"
    last = "" if first.fits is None else "  reconstruction"
    print(f"{'file':<{width}}  {'class':<16}  {word}{last and last.rjust(len(last) + 11 - len(word))}")
    for answer in found:
        fit = {True: "  fits", False: "  does not fit", None: ""}[answer.fits]
        sure = f"{_sure(answer):<11}" if fit else _sure(answer)
        print(f"{shown(answer.source):<{width}}  {shown(', '.join(answer.labels)):<16}  {sure}{fit}")


def _check(options: Predict, answer: Prediction) -> None:
    """Raise an `InputError` for options that would do nothing, or cannot be met."""
    from torchcaps._core.errors import check_count, check_range, input_error

    check_count("predict", "top_k", options.top_k)
    if options.threshold is not None:
        check_range("predict", "threshold", options.threshold, 0, 1)
    if answer.probabilities is None and (options.top_k > 1 or options.threshold is not None):
        option = "--top-k" if options.top_k > 1 else "--threshold"
        expected = "a run with probabilities: one class for each example, trained by this version"
        raise input_error(option, expected, "one without", f"Drop {option}, or train again.")


def _told(answer: Prediction, options: Predict) -> Prediction:
    """The prediction as --top-k and --threshold want it. A text of which no word is known has no answer."""
    if answer.unknown == 1:
        first = None if answer.probabilities is None else answer.probabilities[:1]
        return replace(answer, labels=(UNKNOWN,), confidence=answer.confidence[:1], probabilities=first)
    if answer.probabilities is None:
        return answer
    if options.threshold is not None and answer.probabilities[0] < options.threshold:
        return replace(answer, labels=(UNKNOWN,), probabilities=answer.probabilities[:1])
    if options.top_k == 1:
        return answer
    labels, shares = zip(*answer.likely[: options.top_k], strict=True)
    return replace(answer, labels=labels, probabilities=shares)


def _sure(answer: Prediction) -> str:
    values = answer.confidence if answer.probabilities is None else answer.probabilities
    return ", ".join(f"{value:.2f}" for value in values)


def _noted(texts: Iterator[tuple[str, Row]], cells: list[Row] | None) -> Iterator[str]:
    """The texts; if a list is given, the cells of their rows are added to it."""
    for text, row in texts:
        if cells is not None:
            cells.append(row)
        yield text


def _written(found: Iterator[Prediction], path: Path, cells: list[Row]) -> Iterator[Prediction]:
    """The same predictions; when all are there, they are in a CSV file too, after the cells of their rows, if any."""
    answers = []
    for answer in found:
        answers.append(answer)
        yield answer
    classes = sorted(name for name, _ in answers[0].likely)
    file = io.StringIO()
    table = csv.writer(file, lineterminator="\n")
    columns = list(dict.fromkeys(name for row in cells for name in row))
    texts = ["unknown words"] if answers[0].unknown is not None else []
    shares = [f"probability of {name}" for name in classes]
    table.writerow(map(csv_cell, [*columns, "input", "class", "probability", *texts, *shares]))
    for answer, row in zip(answers, cells or [{}] * len(answers), strict=True):
        likely = dict(answer.likely)
        sure = answer.confidence if answer.probabilities is None else answer.probabilities
        own = ["" if row.get(name) is None else csv_cell(str(row[name])) for name in columns]
        told = [csv_cell(answer.source), csv_cell("; ".join(answer.labels)), "; ".join(map(str, sure))]
        table.writerow([*own, *told, *([answer.unknown] if texts else []), *(likely[name] for name in classes)])
    atomic_write(path, file.getvalue())


def _as_dict(answer: Prediction, kind: str) -> dict[str, object]:
    """A prediction as JSON: a text, or a file and whether its reconstruction fits."""
    told: dict[str, object] = {"labels": answer.labels, "confidence": answer.confidence}
    if answer.probabilities is not None:
        told |= {"probabilities": answer.probabilities, "likely": dict(answer.likely)}
    return (
        {"text": answer.source, **told, "unknown": answer.unknown}
        if kind == "texts"
        else {"file": answer.source, **told, "fits": answer.fits}
    )
