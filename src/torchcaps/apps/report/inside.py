"""Sections on what the capsules of a network do."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torchcaps._core import pages
from torchcaps._core.errors import input_error
from torchcaps._core.fields import read_object
from torchcaps.analysis.ablate import ABLATIONS, ablate
from torchcaps.analysis.health import health, sample
from torchcaps.analysis.layers import routes
from torchcaps.analysis.overlap import take_apart
from torchcaps.analysis.perturb import perturb
from torchcaps.analysis.reconstruct import draw_triples
from torchcaps.analysis.trees import routing_tree, trace_image, tree_maps
from torchcaps.analysis.verdicts import ablation_verdicts, health_verdicts
from torchcaps.apps.report.subject import Subject
from torchcaps.losses import loss_of_classes
from torchcaps.models import CapsuleModel, draws, readout_of
from torchcaps.plots.capsules import apart_figure, sheet_figure, triples_figure
from torchcaps.plots.evaluation import spread
from torchcaps.plots.health import ablations_figure, entropy_figure
from torchcaps.plots.trees import tree_figure

TERMS = (
    "Capsules of one layer, the children, are shared among those of the next, their parents; the shares of a child are "
    "its couplings, and routing chooses them for each example. A dead capsule is active on no example; a starved one "
    "receives less than a tenth of an even share. Entropy tells how even shares are: 1 is even, 0 all to one parent. "
    "Whether routing matters for the answers is told by the lines on accuracy below."
)


def reconstructions(subject: Subject) -> str:
    if not draws(subject.model):
        return ""
    test, classes = subject.parts.test, subject.run.metadata.classes
    if subject.run.metadata.labels_per_image > 1:
        figure = apart_figure(take_apart(subject.model, test), classes)
        words = "Images of two objects, segmented: each is reconstructed from its class capsule."
    else:
        figure = triples_figure(draw_triples(subject.model, test), classes)
        words = (
            "Below each image is its reconstruction, with (label, prediction, reconstructed class). Mistakes are shown "
            "twice: from the predicted class and from the true one."
        )
    return (
        pages.heading("Reconstructions")
        + pages.paragraph(words)
        + pages.picture(figure, "images and their reconstructions")
    )


def dimensions(subject: Subject) -> str:
    if not draws(subject.model):
        return ""
    (row,) = spread(subject.result, 1).tolist() or [0]
    image = subject.parts.test.batch(_row(row)).inputs[0]
    figure = sheet_figure(perturb(subject.model, image), subject.run.metadata.classes)
    words = "Each row changes one dimension of the winning pose; the effect on the reconstruction is its meaning."
    title = pages.heading("What the dimensions of a pose mean")
    return title + pages.paragraph(words) + pages.picture(figure, "reconstructions while one dimension changes")


def trees(subject: Subject) -> str:
    if not isinstance(subject.model, CapsuleModel):
        return ""
    parts = []
    for row in spread(subject.result, 3).tolist():
        image = subject.parts.test.batch(_row(row)).inputs[0]
        tree = routing_tree(trace_image(subject.model, image))
        figure = tree_figure(tree, subject.run.metadata.classes, tree_maps(subject.model, image, tree))
        parts.append(pages.picture(figure, f"the routing tree of test image {row}"))
    words = "The strongest paths from parts of an image to its class; wider lines are stronger couplings."
    return pages.heading("Routing trees") + pages.paragraph(words) + "".join(parts)


def routing_health(subject: Subject) -> str:
    if not routes(subject.model):
        return ""
    data = sample(subject.parts.test, subject.count)
    found = health(subject.model, data, loss_of_classes(subject.run.config.loss, readout_of(subject.model)))
    known = subject.parts.validation if len(subject.parts.validation) else subject.parts.train
    without = ablate(subject.model, data, sample(known, subject.count))
    moves = any(len(layer.couplings.entropy) > 1 for layer in found.layers)
    verdicts = [*health_verdicts(found), *ablation_verdicts(without)]
    rows = [(row.kind, row.layer, f"{row.accuracy:.2%}", f"{100 * row.lost:+.1f}") for row in without.rows]
    return "".join(
        [
            pages.heading("Health of the routing"),
            pages.paragraph(f"{TERMS} On {found.examples:,} test examples."),
            pages.listing(verdicts),
            pages.picture(entropy_figure(found), "entropy of couplings by layer and iteration") if moves else "",
            pages.heading("Without parts of the routing", 3),
            pages.paragraph(f"The trained network as it is reaches {without.accuracy:.2%} on them."),
            pages.table(rows, ["ablation", "layer", "accuracy", "points lost"]),
            pages.listing([f"{kind}: {what}" for kind, what in ABLATIONS.items()]),
            pages.picture(ablations_figure(without), "accuracy without parts of the routing"),
        ]
    )


@dataclass(frozen=True)
class Question:
    """A command that analyzes a run: the text of its section, and the figures that it saves, with their captions."""

    title: str
    words: str
    pictures: dict[str, str]


QUESTIONS = {
    "attack": Question(
        "Attacks",
        "Images changed towards a wrong prediction, by at most epsilon in every pixel.",
        {"curve.png": "accuracy under attack", "examples.png": "attacked images with their predictions"},
    ),
    "jumble": Question(
        "Jumbled parts",
        "A capsule should not be active if all parts of an object are present, but in wrong places.",
        {"examples.png": "jumbled images with their predictions", "confidence.png": "histograms of the confidence"},
    ),
    "strange": Question(
        "Strange images",
        "Out-of-distribution images, detected by the reconstruction error and by the confidence of the prediction.",
        {"roc.png": "ROC curve: strange images found over false alarms"},
    ),
}


def question(name: str, subject: Subject) -> str:
    """The results of a command for this run, if it was run."""
    asked, run = QUESTIONS[name], subject.run
    if not run.path(name, "results.json").exists():
        return ""
    found = read_object(run.path(name, "results.json"), f"what {name} found")
    verdicts, examples = found.get("verdicts", []), found.get("examples")
    if not isinstance(examples, int) or not isinstance(verdicts, list):
        got = f"results of {name} without examples or verdicts"
        raise input_error("report", f"what torchcaps {name} writes", got, f"Call torchcaps {name} again.")
    drawn = {run.path(name, file): alt for file, alt in asked.pictures.items() if run.path(name, file).exists()}
    return "".join(
        [
            pages.heading(asked.title),
            pages.paragraph(f"{asked.words} On {examples:,} test images."),
            pages.listing([str(line) for line in verdicts]) if verdicts else "",
            *(pages.image_file(path, alt) for path, alt in drawn.items()),
        ]
    )


def _row(row: int) -> Tensor:
    return torch.tensor([row])
