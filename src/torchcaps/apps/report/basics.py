"""Sections on data, training and accuracy."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from torchcaps._core import pages
from torchcaps.analysis.evaluate import evaluate
from torchcaps.apps.report.subject import Subject
from torchcaps.plots.evaluation import confusion_figure, examples_figure, worst_mistakes
from torchcaps.plots.training import training_figure
from torchcaps.runs.config import command_of
from torchcaps.runs.run import Run


def summary(subject: Subject) -> str:
    run, result = subject.run, subject.result
    low, high = result.error_interval
    numbers = sum(parameter.numel() for parameter in subject.model.parameters())
    rows = run.rows()
    minutes = sum(float(row["seconds"]) for row in rows) / 60
    tiles = [
        (f"{result.accuracy:.2%}", f"of {result.count:,} test examples right"),
        (f"{1 - result.accuracy:.2%}", f"error, 95 % interval {low:.2%} to {high:.2%}"),
        (f"{numbers:,}", "parameters"),
        (f"{len(rows)} epochs", f"{minutes:,.1f} minutes of training"),
    ]
    routing = f", routing {run.config.routing}" if run.config.routing else ""
    what = pages.paragraph(f"The network {run.model_name}{routing}, trained on {_data(run)}.", "soft")
    return f"{pages.heading(run.name, 1)}{what}{pages.tiles(tiles)}"


def _data(run: Run) -> str:
    return Path(run.config.data).name


def data_section(subject: Subject) -> str:
    parts = {name: part for name, part in subject.parts._asdict().items() if part is not None and len(part)}
    sizes = ", ".join(f"{len(part):,} for {name}" for name, part in parts.items())
    shape = subject.run.metadata.image_shape
    what = "texts" if shape is None else f"images of {' x '.join(map(str, shape))}"
    words = pages.paragraph(f"{what.capitalize()} in {len(subject.run.metadata.classes)} classes: {sizes}.")
    counted = {name: part.counts() for name, part in parts.items() if hasattr(part, "counts")}
    if not counted or len(subject.run.metadata.classes) > 60:
        return pages.heading("Data") + words
    rows = [
        [label, *(f"{counts.get(label, 0):,}" for counts in counted.values())] for label in subject.run.metadata.classes
    ]
    return pages.heading("Data") + words + pages.table(rows, ["class", *counted])


def training(subject: Subject) -> str:
    rows = subject.run.rows()
    figure = training_figure(rows)
    return pages.heading("Training") + pages.picture(figure, f"loss and accuracy over {len(rows)} epochs")


def test(subject: Subject) -> str:
    result = subject.result
    rows = [
        (name, f"{count:,}", _share(recall), _share(precision)) for name, count, recall, precision in result.per_class()
    ]
    parts = [pages.heading("Test"), pages.table(rows, ["class", "examples", "recall", "precision"])]
    if result.many:
        found = result.scores()
        parts.append(pages.table([(name.replace("_", " "), f"{value:.2%}") for name, value in found.items()]))
    if result.labels.shape[-1] == 1:
        parts.append(pages.picture(confusion_figure(result), "confusion matrix"))
    return "".join(parts)


def viewpoints(subject: Subject) -> str:
    """For training on some viewpoints: the accuracy on novel ones."""
    if subject.parts.novel is None:
        return ""
    results = {"familiar": subject.result, "novel": evaluate(subject.model, subject.parts.novel)}
    rows = []
    for name, result in results.items():
        low, high = (1 - end for end in reversed(result.error_interval))
        rows.append((name, f"{result.count:,}", f"{result.accuracy:.2%}", f"{low:.2%} to {high:.2%}"))
    words = pages.paragraph("Novel viewpoints are not in the training data.")
    table = pages.table(rows, ["viewpoints", "examples", "accuracy", "95 % interval"])
    return pages.heading("New viewpoints") + words + table


def _share(value: float) -> str:
    return "-" if value != value else f"{value:.2%}"


def cases(subject: Subject) -> str:
    title = pages.heading("Right and wrong")
    if subject.parts.test.kind == "images":
        figure = examples_figure(subject.model, subject.parts.test, subject.result)
        return title + pages.picture(figure, "right and wrong predictions")
    rows = []
    for row in worst_mistakes(subject.result, 10).tolist():
        truth = _names(subject, subject.result.shown[row])
        answer = _names(subject, subject.result.said[row])
        rows.append((truth, answer, f"{float(subject.result.activations[row].max()):.2f}", _short(subject, row)))
    if not rows:
        return title + pages.paragraph("All predictions are right.")
    return title + pages.table(rows, ["truth", "answer", "activation", "text" if subject.texts else "row"])


def _names(subject: Subject, true: Tensor) -> str:
    return ", ".join(name for name, there in zip(subject.result.classes, true.tolist(), strict=True) if there) or "-"


def _short(subject: Subject, row: int) -> str:
    text = subject.parts.test.texts[row] if subject.texts else f"{row:,}"
    return text if len(text) <= 300 else f"{text[:300]} …"


def words(subject: Subject) -> str:
    """For texts: which words decided, for some right predictions."""
    from torchcaps.analysis.explain import LEGEND, explain_texts, html_section
    from torchcaps.models import TextCapsules

    if not isinstance(subject.model, TextCapsules):
        return ""
    right = subject.result.right.nonzero().squeeze(-1)[:6].tolist()
    texts = [subject.parts.test.texts[row][:600] for row in right]
    sections = "".join(html_section(one, 3) for several in explain_texts(subject.run, texts, top=3) for one in several)
    return pages.heading("Which words decided") + pages.paragraph(LEGEND) + sections


def commands(subject: Subject) -> str:
    run = subject.run
    if run.config.model is None or run.metadata.in_python:  # there is no command that reproduces it
        return ""
    lines = [command_of(run.config), f"torchcaps evaluate {run.folder}", f"torchcaps report {run.folder}"]
    made = [name for name in ("attack", "jumble", "strange") if run.path(name, "results.json").exists()]
    lines += [f"torchcaps {name} {run.folder}" for name in made]
    return pages.heading("How this was made") + pages.commands(lines)
