"""Reconstructions from class capsules: of the prediction, of the truth, of any class.

Sabour, Frosst, Hinton 2017, figure 3: images with (label, prediction, reconstructed class), right ones and mistakes.
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
    """One image, and its reconstructions from some classes. reconstruction_errors: their mean squared errors."""

    image: Float[Tensor, "c h w"]
    labels: tuple[int, ...]
    activations: tuple[float, ...]
    drawn: Float[Tensor, "n c h w"]
    reconstruction_errors: tuple[float, ...]


@dataclass(frozen=True)
class Cases:
    """Images of m objects each, their true classes, the predicted ones, the reconstructed ones, and reconstructions.

    parts: the target of each reconstruction: the image, or the object alone if there are several; black for an absent
    class.
    """

    images: Float[Tensor, "n c h w"]
    labels: Int[Tensor, "n m"]
    answers: Int[Tensor, "n m"]
    sources: Int[Tensor, "n m"]
    parts: Float[Tensor, "n m c h w"]
    drawn: Float[Tensor, "n m c h w"]

    @property
    def reconstruction_errors(self) -> Float[Tensor, "n m"]:
        """The mean squared error of each reconstruction."""
        return (self.drawn - self.parts).square().flatten(2).mean(-1)


def check_decoder(owner: str, model: ImageModel) -> None:
    """Raise an `InputError` for a model without a decoder."""
    if model.decoder is None:
        raise input_error(owner, "a model with a decoder", "none", "Train with --reconstruction above 0.")


def draw_from(model: ImageModel, capsules: Capsules, labels: Int[Tensor, "b n"]) -> Float[Tensor, "b n c h w"]:
    """The reconstruction from each of these classes alone; for any number of classes."""
    columns = [model.reconstruct(capsules, column) for column in labels.unbind(1)]
    return torch.stack(columns, 1)


@in_eval_mode
@torch.no_grad()
def draw_classes(model: ImageModel, image: Float[Tensor, "c h w"], labels: Sequence[int] | None = None) -> Drawing:
    """Reconstruct an image from each of these classes; default: from the four most active."""
    check_decoder("draw_classes", model)
    image = image.to(next(model.parameters()).device)
    capsules = model(image[None])
    if labels is None:
        labels = top_classes(capsules.activations, min(4, model.classes))[0].tolist()
    chosen = torch.tensor([list(labels)], device=image.device)
    drawn = draw_from(model, capsules, chosen)[0]
    errors = (drawn - image).square().flatten(1).mean(-1)
    activations = capsules.activations[0, chosen[0]]
    return Drawing(image.cpu(), tuple(labels), tuple(activations.tolist()), drawn.cpu(), tuple(errors.tolist()))


@in_eval_mode
@torch.no_grad()
def first_answers(model: ImageModel, data: Examples, right: int, wrong: int) -> tuple[list[int], list[int]]:
    """Correctly predicted examples, taking the classes in turn, and mistakes.

    The search goes through the data in one fixed random order, because data may be sorted by class. It ends when there
    are enough of both.
    """
    device = next(model.parameters()).device
    good: dict[int, list[int]] = {}
    bad: list[int] = []
    order = torch.randperm(len(data), generator=Generator().manual_seed(0)).split(64)
    for rows in bar(order, "searching for mistakes"):
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
    """Reconstruct examples from these classes; default: from their true ones."""
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
    """Correctly predicted images, of all classes in turn, and mistakes, reconstructed from prediction and truth."""
    check_decoder("draw_triples", model)
    if data.batch(torch.arange(1)).labels.ndim > 1:
        raise input_error("draw_triples", "images of one object each", "several in each", "Use take_apart.")
    good, bad = first_answers(model, data, right, wrong)
    rows = good + [row for row in bad for _ in range(2)]
    cases = draw_cases(model, data, rows)
    sources = cases.labels.clone()
    sources[len(good) :: 2] = cases.answers[len(good) :: 2]
    return draw_cases(model, data, rows, sources)
