"""The response of capsules to small changes of the image, and to the sign of their children's poses.

A pose should change with the object that it describes, while the activation stays (equivariant pose, invariant length).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import radians

import torch
from jaxtyping import Float
from torch import Tensor, nn

from torchcaps._core.types import Capsules
from torchcaps.analysis.layers import named_layers
from torchcaps.data.augment import linear_maps, warp
from torchcaps.functional import length, unit
from torchcaps.layers import RoutedLayer
from torchcaps.models import CapsuleModel

# Pixels and degrees, each in all directions.
MOVES: dict[str, list[tuple[float, float, float]]] = {
    "shift 1 pixel": [(1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0)],
    "shift 2 pixels": [(2, 0, 0), (-2, 0, 0), (0, 2, 0), (0, -2, 0)],
    "turn 5 degrees": [(0, 0, 5), (0, 0, -5)],
    "turn 10 degrees": [(0, 0, 10), (0, 0, -10)],
}


@dataclass(frozen=True)
class Response:
    """The response of capsules to a move of the image.

    angle: by how many degrees the pose of the winning class capsule turns. change: the absolute change of its
    activation. The same for primary capsules, each compared with itself and weighted by its activation.
    """

    move: str
    angle: float
    change: float
    primary_angle: float
    primary_change: float


@dataclass(frozen=True)
class Moves:
    """Responses to all moves, and for comparison the angle between poses of different images of the same prediction."""

    responses: tuple[Response, ...]
    between: float


def angles(first: Float[Tensor, "*b d"], second: Float[Tensor, "*b d"]) -> Float[Tensor, "*b"]:
    """The angle between poses in degrees; accurate for small angles, too."""
    first, second = unit(first), unit(second)
    return torch.rad2deg(2 * torch.atan2(length(first - second), length(first + second)))


def move(images: Float[Tensor, "b c h w"], right: float, down: float, degrees: float) -> Float[Tensor, "b c h w"]:
    """The images translated and rotated; their border pixels fill the gaps."""
    turn, one = images.new_full((len(images),), radians(degrees)), images.new_ones(len(images))
    return warp(images, linear_maps(turn, 0 * one, one, one), torch.stack([right * one, down * one], -1), "border")


@torch.no_grad()
def responses(model: CapsuleModel, images: Float[Tensor, "b c h w"]) -> Moves:
    """The response of the winning class capsule and the primary capsules to small moves of the images."""
    before, primary = model(images), model.children_of(images)
    winner = before.activations.argmax(-1)
    rows = torch.arange(len(images), device=images.device)
    pose, active = before.poses[rows, winner], before.activations[rows, winner]
    weight = primary.activations / primary.activations.sum().clamp(min=1e-12)
    found = []
    for name, ways in MOVES.items():
        sums = torch.zeros(4, dtype=torch.float64)
        for way in ways:
            moved = move(images, *way)
            after, parts = model(moved), model.children_of(moved)
            sums += torch.stack(
                [
                    angles(pose, after.poses[rows, winner]).mean(),
                    (after.activations[rows, winner] - active).abs().mean(),
                    (weight * angles(primary.poses, parts.poses)).sum(),
                    (weight * (parts.activations - primary.activations).abs()).sum(),
                ]
            ).cpu()
        found.append(Response(name, *(sums / len(ways)).tolist()))
    return Moves(tuple(found), _between(pose, winner))


def _between(pose: Tensor, winner: Tensor) -> float:
    """The mean angle between each image's winning pose and that of the next image with the same prediction."""
    groups = [(winner == label).nonzero().squeeze(-1) for label in winner.unique()]
    pairs = [angles(pose[group], pose[group.roll(1)]) for group in groups if len(group) > 1]
    return float(torch.cat(pairs).mean()) if pairs else 0.0


@dataclass(frozen=True)
class Mirror:
    """The mean change of class activations, and the fraction of predictions that change, if poses are negated."""

    change: float
    answers: float


@torch.no_grad()
def mirrors(model: nn.Module, inputs: Tensor) -> dict[str, Mirror]:
    """The effect of negating the poses of a layer's children, for each routed layer.

    A sum of votes without bias keeps its length if all poses change their sign, and so do agreements: such a layer
    cannot distinguish x from -x (Peer et al. 2021), and the change is exactly zero.
    """
    before = model(inputs).activations
    found = {}
    for name, layer in named_layers("mirrors", model).items():
        handle = layer.register_forward_pre_hook(_negate)
        try:
            after = model(inputs).activations
        finally:
            handle.remove()
        changed = (after.argmax(-1) != before.argmax(-1)).float()
        found[name] = Mirror(float((after - before).abs().mean()), float(changed.mean()))
    return found


def _negate(layer: RoutedLayer, arguments: tuple[Capsules]) -> tuple[Capsules]:
    children = arguments[0]
    return (children._replace(poses=-children.poses),)
