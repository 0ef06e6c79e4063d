"""What class capsules say of an image, drawn: from the answer, from the truth, from any class.

Sabour, Frosst, Hinton 2017, figure 3: images with (label, prediction, drawn from), right ones and mistakes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from torchcaps._core.errors import input_error
from torchcaps._core.progress import bar
from torchcaps._core.types import Capsules
from torchcaps.analysis.evaluate import hits, in_eval_mode, top_classes
from torchcaps.data import Examples
from torchcaps.models import ImageModel


@dataclass(frozen=True)
class Drawing:
    """One image, and what the capsules of some classes draw of it. misfits: the mean squared error of each drawing."""

    image: Float[Tensor, "c h w"]
    labels: tuple[int, ...]
    activations: tuple[float, ...]
    drawn: Float[Tensor, "n c h w"]
    misfits: tuple[float, ...]


@dataclass(frozen=True)
class Cases:
    """Images that show m things each, the classes that are there, those answered, those drawn from, and the drawings.

    parts: what each drawing should show: the image, or the thing alone where there are several; black for a class that
    is not there.
    """

    images: Float[Tensor, "n c h w"]
    labels: Int[Tensor, "n m"]
    answers: Int[Tensor, "n m"]
    sources: Int[Tensor, "n m"]
    parts: Float[Tensor, "n m c h w"]
    drawn: Float[Tensor, "n m c h w"]

    @property
    def misfits(self) -> Float[Tensor, "n m"]:
        """The mean squared error of each drawing."""
        return (self.drawn - self.parts).square().flatten(2).mean(-1)


def check_decoder(owner: str, model: ImageModel) -> None:
    """Refuse a model that draws nothing."""
    if model.decoder is None:
        raise input_error(owner, "a model with a decoder", "none", "Train with --reconstruction above 0.")


def draw_from(model: ImageModel, capsules: Capsules, labels: Int[Tensor, "b n"]) -> Float[Tensor, "b n c h w"]:
    """What each of these classes' capsules draws, apart from the others; for any number of classes."""
    columns = [model.reconstruct(capsules, column) for column in labels.unbind(1)]
    return torch.stack(columns, 1)


@in_eval_mode
@torch.no_grad()
def draw_classes(model: ImageModel, image: Float[Tensor, "c h w"], labels: Sequence[int] | None = None) -> Drawing:
    """What the capsules of these classes draw of an image; left out, of the four most active."""
    check_decoder("draw_classes", model)
    image = image.to(next(model.parameters()).device)
    capsules = model(image[None])
    if labels is None:
        labels = top_classes(capsules.activations, min(4, model.classes))[0].tolist()
    chosen = torch.tensor([list(labels)], device=image.device)
    drawn = draw_from(model, capsules, chosen)[0]
    misfits = (drawn - image).square().flatten(1).mean(-1)
    activations = capsules.activations[0, chosen[0]]
    return Drawing(image.cpu(), tuple(labels), tuple(activations.tolist()), drawn.cpu(), tuple(misfits.tolist()))


@in_eval_mode
@torch.no_grad()
def first_answers(model: ImageModel, data: Examples, right: int, wrong: int) -> tuple[list[int], list[int]]:
    """Examples answered rightly, taking the classes in turn, and mistakes.

    They are looked for in one random order, always the same, as data may stand in the order of their classes. The
    search ends when there are enough of both, or with the data.
    """
    device = next(model.parameters()).device
    good: dict[int, list[int]] = {}
    bad: list[int] = []
    order = torch.randperm(len(data), generator=Generator().manual_seed(0)).split(64)
    for rows in bar(order, "looking for mistakes"):
        batch = data.batch(rows)
        found = hits(model(batch.inputs.to(device)).activations.cpu(), batch.labels).tolist()
        firsts = batch.labels.view(len(found), -1)[:, 0].tolist()
        for row, hit, label in zip(rows.tolist(), found, firsts, strict=True):
            (good.setdefault(label, []) if hit else bad).append(row)
        if len(good) >= min(right, model.classes) and sum(map(len, good.values())) >= right and len(bad) >= wrong:
            break
    turns = [several[turn] for turn in range(right) for _, several in sorted(good.items()) if turn < len(several)]
    return turns[:right], bad[:wrong]


@in_eval_mode
@torch.no_grad()
def draw_cases(model: ImageModel, data: Examples, rows: list[int], sources: Int[Tensor, "n m"] | None = None) -> Cases:
    """What is drawn of examples from the capsules of these classes; left out, of those that are there."""
    check_decoder("draw_cases", model)
    if not rows:
        raise input_error("draw_cases", "at least one example", "none", "Choose other data.")
    device = next(model.parameters()).device
    batch = data.batch(torch.tensor(rows))
    labels = batch.labels.view(len(rows), -1)
    sources = labels if sources is None else sources
    capsules = model(batch.inputs.to(device))
    answers = top_classes(capsules.activations, labels.shape[-1]).cpu()
    drawn = draw_from(model, capsules, sources.to(device)).cpu()
    if batch.parts is None:
        parts = batch.inputs[:, None]
    else:
        mine = (sources[:, :, None] == labels[:, None]).to(batch.parts.dtype)  # [n m m], whose part is it
        parts = torch.einsum("nsm,nm...->ns...", mine, batch.parts)
    return Cases(batch.inputs, labels, answers, sources, parts, drawn)


@torch.no_grad()
def draw_triples(model: ImageModel, data: Examples, right: int = 8, wrong: int = 4) -> Cases:
    """Images answered rightly, of all classes in turn, and mistakes, each drawn from its answer and from the truth."""
    check_decoder("draw_triples", model)
    if data.batch(torch.arange(1)).labels.ndim > 1:
        raise input_error("draw_triples", "images of one thing each", "several in each", "Take them apart: take_apart.")
    good, bad = first_answers(model, data, right, wrong)
    rows = good + [row for row in bad for _ in range(2)]
    cases = draw_cases(model, data, rows)
    sources = cases.labels.clone()
    sources[len(good) :: 2] = cases.answers[len(good) :: 2]
    return draw_cases(model, data, rows, sources)
