"""A start that depends on the data, so that every layer learns from the first step.

EM's activation is a logistic of the votes' spread times the children's mass. Both depend on the layer: averaging many
votes shrinks poses from layer to layer, and a parent in a convolution has few children where a class has hundreds. With
one temperature and one starting cost for all (as in Hinton 2018) most layers start fully active or silent, and in a
small network stay so. Measured on a batch of images, layer by layer, three things are set: the scale of the votes, so
that their standard deviation about a parent is about one (in the manner of Mishkin & Matas 2016); the inverse
temperature, in units of the layer's mass; and beta_use, so that a parent of average spread is half active.

In text capsules, a squash takes away short vectors, the more the shorter they are, and their gradients with them; layer
upon layer, with children that count as much as they are active, nothing is left. Primary poses and votes are scaled so
that the median capsule of each layer has a length that a squash neither flattens nor silences.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from torchcaps.functional import spread
from torchcaps.layers import RoutedLayer
from torchcaps.models.base import CapsuleModel, fit_layer
from torchcaps.models.text import Branch, TextCapsules
from torchcaps.routing.em import EM
from torchcaps.types import Capsules

# Inverse temperature per unit of mass: of inner layers, and of the last one, whose activations face the loss.
INNER, LAST = 1.0, 0.3


LENGTH = 0.35  # of the median capsule of a text
MOST = 8.0  # how many times larger or smaller a start may become


def calibrate(model: CapsuleModel | TextCapsules, inputs: Tensor) -> None:
    """Set the starting scales of a model from a batch of what it will learn from, in place."""
    if isinstance(model, TextCapsules):
        _calibrate_lengths(model, inputs)
    else:
        _calibrate_em(model, inputs)


@torch.no_grad()
def _calibrate_lengths(model: TextCapsules, tokens: Int[Tensor, "b t"], passes: int = 6) -> None:
    if model.loss != "margin" or any(layer.routing.averages for layer in model.routed_layers):
        return
    training = model.training
    model.eval()
    vectors, ends = model.features(tokens)
    for branch in model.branches:
        assert isinstance(branch, Branch)
        capsules, scale = branch.children_of(vectors, ends), 1.0
        for _ in range(passes):
            before, scale = scale, min(max(scale * _lengthening(capsules), 1 / MOST), MOST)
            for weight in branch.primary.poses.parameters():
                weight.mul_(scale / before)
            capsules = branch.children_of(vectors, ends)
        for layer in branch.routed_layers:
            children = fit_layer(layer, capsules)
            start = layer.votes.std
            for _ in range(passes):
                wanted = layer.votes.std * _lengthening(layer(children))
                # Many parents for few children stay short whatever the votes: routing gives each child to one of them.
                layer.votes.start_at(min(max(wanted, start / MOST), start * MOST))
            capsules = layer(children)
    model.train(training)


def _lengthening(capsules: Capsules) -> float:
    """What to multiply vectors with before their squash, so that the median length comes nearer to the one wanted."""
    lengths = capsules.activations if capsules.mask is None else capsules.activations[capsules.mask]
    ratio = float(lengths.median().clamp(1e-6, 1 - 1e-6))
    return ((LENGTH / (1 - LENGTH)) / (ratio / (1 - ratio))) ** 0.3  # routing answers more than in proportion


@torch.no_grad()
def _calibrate_em(model: CapsuleModel, images: Float[Tensor, "b c h w"], passes: int = 4) -> None:
    layers = model.routed_layers
    if all(_learned_costs(layer) is None for layer in layers):
        return
    training = model.training
    model.train()  # batch norm as in the first step
    capsules = model.children_of(images)
    for layer in layers:
        capsules = fit_layer(layer, capsules)
        if (routing := _learned_costs(layer)) is not None:
            for _ in range(passes):  # scaling votes changes couplings, and these the spread
                log_std, _ = _spread(layer, capsules, routing.variance_floor)
                layer.votes.start_at(layer.votes.std * float(torch.exp(-log_std.mean())))
            log_std, mass = _spread(layer, capsules, routing.variance_floor)
            wanted = LAST if layer is layers[-1] else INNER
            routing.inverse_temperature.fill_(wanted / (mass * routing.annealing(routing.iterations - 1)))
            routing.beta_use.copy_(-log_std.unsqueeze(-1).expand_as(routing.beta_use))
        capsules = layer(capsules)
    model.train(training)


def _learned_costs(layer: RoutedLayer) -> EM | None:
    return layer.routing if isinstance(layer.routing, EM) and layer.routing.variant > 1 else None


def _spread(layer: RoutedLayer, children: Capsules, floor: float, examples: int = 4) -> tuple[Tensor, float]:
    """Each parent type's mean logarithm of the standard deviation of its votes, [j], and the mean mass of a parent."""
    logs, shares = [], []
    for start in range(0, len(children.poses), examples):  # the votes of all would be large
        few = Capsules(*(part if part is None else part[start : start + examples] for part in children))  # type: ignore[arg-type]
        gathered = layer.gather(few)
        votes, activations = layer.vote(gathered), gathered.activations
        routed = layer.routing(votes, activations, mask=gathered.mask, over_parents=gathered.over_parents)
        weights = routed.couplings * activations.unsqueeze(-1)
        masses = weights.sum(-2) + 1e-7
        variances = spread(weights, votes, routed.poses) / masses.unsqueeze(-1) + floor
        logs.append((variances.log() / 2).mean(-1).flatten(0, -2))  # [n j]
        shares.append(masses.flatten(0, -2))
    per_parent, share = torch.cat(logs), torch.cat(shares)
    return (per_parent * share).sum(0) / share.sum(0), float(share.mean())
