"""Data-dependent initialization, so that every layer learns from the first step.

Votes that are too small or too large, activations that are all zero or all one, and vanishing gradients have one cause:
the initial scale of a layer does not fit its inputs. `calibrate` runs a batch through a model and sets the scale of
each capsule layer just before that layer computes, so that the next one receives realistic inputs (similar to Mishkin &
Matas 2016). Scales that a user gave are not changed.

If parents are squashed sums of votes, votes are scaled until the median parent has a length at which the squash neither
saturates nor vanishes. If parents are means of votes, votes get a standard deviation of one. If an activation is the
logistic of a cost (EM, variational), the cost is shifted so that a parent of average spread has activation one half,
and EM's inverse temperature is divided by the mean mass of the layer's parents: a parent in a convolution has few
children, a class hundreds, and with one temperature for all (as in Hinton 2018) most layers start saturated and stay
so.
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

# EM's inverse temperature per unit of mass: of inner layers, and of the last one, whose activations enter the loss.
INNER, LAST = 1.0, 0.3
LENGTH = 0.35  # of the median capsule if activations are lengths of squashed vectors
HEALTHY = (0.1, 0.85)  # a model with median lengths in this range in all layers is not changed
MOST = 8.0  # the largest factor by which vectors are scaled before the squash
PASSES = 6  # scaling votes changes couplings, and these change lengths and spreads
EXAMPLES = 4  # whose votes are in memory at a time


@torch.no_grad()
def calibrate(model: nn.Module, *inputs: Any) -> None:
    """Set the initial scales of all capsule layers of a model from a batch of its inputs, in place.

    model: any module that calls capsule layers. inputs: the arguments of the model. Values that were given to the
    constructors are not changed: `std`, and for the routing `preset`, `beta_use`, `inverse_temperature` and
    `beta_active`.
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
    """Whether activations are lengths of squashed vectors."""
    if isinstance(layer, PrimaryCapsules):
        return layer.activations is None
    return isinstance(layer, RoutedLayer) and not layer.routing.parents_are_means


def _run(model: nn.Module, inputs: tuple[Any, ...], layers: list[Any], see: Callable[[nn.Module, Any], object]) -> None:
    """Run the model with batch norm as in training, calling `see` before each layer; restore buffers and modes."""
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
    """Rescale the initial votes repeatedly by a factor that is computed each time, unless their scale was given."""
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
    """A factor for vectors before the squash that moves the median length towards LENGTH."""
    ratio = min(max(_median(capsules), 1e-6), 1 - 1e-6)
    return float(((LENGTH / (1 - LENGTH)) / (ratio / (1 - ratio))) ** 0.3)  # below 1, because routing amplifies changes


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
    """Children in chunks of a few examples, whose votes fit in memory."""
    several = zip(*(part.split(EXAMPLES) for part in children if part is not None), strict=True)
    return [layer.gather(Capsules(*part)) for part in several]


def _vote_std(layer: RoutedLayer, children: Capsules) -> float:
    """The root mean square of vote components."""
    squares = [layer.vote(part).square().mean() for part in _parts(layer, children)]
    return float(torch.stack(squares).mean().sqrt())


def _spread(layer: RoutedLayer, children: Capsules, floor: float) -> tuple[Tensor, float]:
    """Each parent type's mean logarithm of the standard deviation of its votes, [j], and the mean mass of a parent."""
    logs, shares = [], []
    for part in _parts(layer, children):
        votes, activations = layer.vote(part), part.activations
        routed = layer.routing(votes, activations, **part.beside)
        weights = routed.couplings * activations.unsqueeze(-1)
        masses = weights.sum(-2) + 1e-7
        variances = spread(weights, votes, routed.poses) / masses.unsqueeze(-1) + floor
        logs.append((variances.log() / 2).mean(-1).flatten(0, -2))  # [n j]
        shares.append(masses.flatten(0, -2))
    per_parent, share = torch.cat(logs), torch.cat(shares)
    return (per_parent * share).sum(0) / share.sum(0), float(share.mean())
