"""A start that depends on the data, so that every layer learns from the first step.

Votes that are too small or too large, activations that are all zero or all one, and gradients that vanish on the way
down are one fault: a layer whose starting scale does not suit what it is given. `calibrate` sends a batch through a
model and sets the scale of each capsule layer just before that layer computes, so that the next one sees what it will
see in training (in the manner of Mishkin & Matas 2016). What a user gave stays as it is.

Parents that are squashed sums of votes: votes are scaled until the median parent has a length that a squash neither
flattens nor silences. Parents that are means of votes: votes get a standard deviation of one. Where an activation is a
logistic of a cost (EM, variational), the cost is moved so that a parent of average spread is half active, and EM's
inverse temperature is counted in units of the layer's mass: a parent in a convolution has few children where a class
has hundreds, and with one temperature for all (as in Hinton 2018) most layers start active or silent and stay so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps._core.types import Capsules
from torchcaps.functional import spread
from torchcaps.layers import PrimaryCapsules, RoutedLayer
from torchcaps.routing.em import EM
from torchcaps.routing.variational import Variational
from torchcaps.votes.job import Gathered

# EM's inverse temperature per unit of mass: of inner layers, and of the last one, whose activations face the loss.
INNER, LAST = 1.0, 0.3
LENGTH = 0.35  # of the median capsule where activations are lengths of squashed vectors
HEALTHY = (0.1, 0.85)  # a model with such median lengths in all layers is left as it is
MOST = 8.0  # how many times larger or smaller squashed vectors may become
PASSES = 6  # scaling votes changes couplings, and these change lengths and spreads
EXAMPLES = 4  # whose votes are held at a time


@torch.no_grad()
def calibrate(model: nn.Module, *inputs: Any) -> None:
    """Set the starting scales of all capsule layers in a model from a batch of its inputs, in place.

    model: any module that calls capsule layers. What was given when a layer was made stays: `std`, and for the routing
    `preset`, `beta_use`, `inverse_temperature` and `beta_active`.
    """
    layers = [module for module in model.modules() if isinstance(module, RoutedLayer | PrimaryCapsules)]
    if not any(isinstance(layer, RoutedLayer) for layer in layers):
        return
    order: list[nn.Module] = []
    lengths: list[float] = []

    def look(layer: nn.Module, given: Any) -> None:
        order.append(layer)
        if _squashes(layer):
            lengths.append(_median(layer.forward(given)))

    _run(model, inputs, layers, look)
    routed = [layer for layer in order if isinstance(layer, RoutedLayer)]
    healthy = all(HEALTHY[0] <= length <= HEALTHY[1] for length in lengths)
    done: set[nn.Module] = set()

    def set_scale(layer: nn.Module, given: Any) -> None:
        if layer in done or (healthy and _squashes(layer)):
            return
        done.add(layer)
        if isinstance(layer, RoutedLayer):
            _calibrate(layer, given, LAST if layer is routed[-1] else INNER)
        elif isinstance(layer, PrimaryCapsules) and _squashes(layer):
            _lengthen_primary(layer, given)

    _run(model, inputs, layers, set_scale)


def _squashes(layer: nn.Module) -> bool:
    """Are activations lengths of squashed vectors?"""
    if isinstance(layer, PrimaryCapsules):
        return layer.activations is None
    return isinstance(layer, RoutedLayer) and not layer.routing.parents_are_means


def _run(model: nn.Module, inputs: tuple[Any, ...], layers: list[Any], see: Callable[[nn.Module, Any], object]) -> None:
    """The model on these inputs, with batch norm as it would be in training; `see` is called before each layer."""
    training = {module: module.training for module in model.modules()}
    norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    buffers = [(buffer, buffer.clone()) for norm in norms for buffer in norm.buffers()]
    handles = [layer.register_forward_pre_hook(lambda layer, given: see(layer, given[0]) and None) for layer in layers]
    model.eval()
    for norm in norms:
        norm.training = training[norm]
    try:
        model(*inputs)
    finally:
        for buffer, before in buffers:
            buffer.copy_(before)
        for handle in handles:
            handle.remove()
        for module, mode in training.items():
            module.training = mode


def _calibrate(layer: RoutedLayer, children: Capsules, temperature: float) -> None:
    routing = layer.routing
    if isinstance(routing, EM) and routing.variant > 1:
        _calibrate_em(layer, routing, children, temperature)
    elif routing.parents_are_means:
        wanted = routing.prior_variance**0.5 if isinstance(routing, Variational) else 1.0
        _scale_votes(layer, lambda: wanted / max(_vote_std(layer, children), 1e-12))
        if isinstance(routing, Variational) and "beta_active" not in routing.given:
            odds = torch.logit(layer.forward(children).activations.flatten(0, -2), eps=1e-6).mean(0)
            routing.beta_active.sub_(odds / routing.inverse_temperature)
    else:
        start = layer.transform.std
        _scale_votes(layer, lambda: _lengthening(layer.forward(children)), (start / MOST, start * MOST))


def _scale_votes(
    layer: RoutedLayer, factor: Callable[[], float], bounds: tuple[float, float] = (0.0, float("inf"))
) -> None:
    """Scale the starting votes by a factor that is asked for again and again, unless their scale was given."""
    if layer.transform.std_given or layer.transform.normalize:
        return
    for _ in range(PASSES):
        wanted = layer.transform.std * factor()
        layer.transform.rescale_weights(min(max(wanted, bounds[0]), bounds[1]))


def _lengthen_primary(layer: PrimaryCapsules, features: Tensor) -> None:
    scale = 1.0
    for _ in range(PASSES):
        before, scale = scale, min(max(scale * _lengthening(layer.forward(features)), 1 / MOST), MOST)
        for weight in layer.poses.parameters():
            weight.mul_(scale / before)


def _median(capsules: Capsules) -> float:
    lengths = capsules.activations if capsules.mask is None else capsules.activations[capsules.mask]
    return float(lengths.median())


def _lengthening(capsules: Capsules) -> float:
    """What to multiply vectors with before their squash, so that the median length comes nearer to the one wanted."""
    ratio = min(max(_median(capsules), 1e-6), 1 - 1e-6)
    return float(((LENGTH / (1 - LENGTH)) / (ratio / (1 - ratio))) ** 0.3)  # routing answers more than in proportion


def _calibrate_em(layer: RoutedLayer, routing: EM, children: Capsules, temperature: float) -> None:
    def wanted() -> float:
        return float(torch.exp(-_spread(layer, children, routing.variance_floor)[0].mean()))

    _scale_votes(layer, wanted)
    log_std, mass = _spread(layer, children, routing.variance_floor)
    if "inverse_temperature" not in routing.given:
        routing.inverse_temperature.fill_(temperature / (mass * routing.annealing(routing.iterations - 1)))
    if "beta_use" not in routing.given:
        routing.beta_use.copy_(-log_std.unsqueeze(-1).expand_as(routing.beta_use))


def _parts(layer: RoutedLayer, children: Capsules) -> list[Gathered]:
    """Children a few examples at a time: the votes of all would be large."""
    several = zip(*(part.split(EXAMPLES) for part in children if part is not None), strict=True)
    return [layer.gather(Capsules(*part)) for part in several]


def _vote_std(layer: RoutedLayer, children: Capsules) -> float:
    """The root of the mean square of the votes' numbers."""
    squares = [layer.vote(part).square().mean() for part in _parts(layer, children)]
    return float(torch.stack(squares).mean().sqrt())


def _spread(layer: RoutedLayer, children: Capsules, floor: float) -> tuple[Tensor, float]:
    """Each parent type's mean logarithm of the standard deviation of its votes, [j], and the mean mass of a parent."""
    logs, shares = [], []
    for part in _parts(layer, children):
        votes, activations = layer.vote(part), part.activations
        routed = layer.routing(votes, activations, mask=part.mask, over_parents=part.over_parents)
        weights = routed.couplings * activations.unsqueeze(-1)
        masses = weights.sum(-2) + 1e-7
        variances = spread(weights, votes, routed.poses) / masses.unsqueeze(-1) + floor
        logs.append((variances.log() / 2).mean(-1).flatten(0, -2))  # [n j]
        shares.append(masses.flatten(0, -2))
    per_parent, share = torch.cat(logs), torch.cat(shares)
    return (per_parent * share).sum(0) / share.sum(0), float(share.mean())
