"""The state of the routed layers during training: statistics of a few examples after every epoch."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import nn

from torchcaps.analysis.cost import Loss, gradient_norms
from torchcaps.analysis.evaluate import eval_mode
from torchcaps.analysis.health import STARVED, dead_below
from torchcaps.analysis.layers import children_of_layers, named_layers, routes
from torchcaps.data import Batch

EXAMPLES = 32


class Vitals(NamedTuple):
    """Statistics of one routed layer.

    activation: the mean. dead, starved: the number of parent types, of `parents`, that are active on no example, and
    that receive less than a tenth of a uniform share. entropy: of couplings in a window, 1 if they are uniform, 0 if
    each child has one parent. gradient: the norm of the loss's gradient with respect to the poses of the children; with
    respect to the layer's parameters if these poses are inputs.
    """

    activation: float
    dead: int
    starved: int
    parents: int
    entropy: float
    gradient: float

    @property
    def silent(self) -> bool:
        """Whether the layer has no active capsule, or receives no gradient."""
        return self.dead == self.parents or not self.gradient > 0


def vitals(model: nn.Module, batch: Batch, loss: Loss) -> dict[str, Vitals]:
    """The statistics of each routed layer by name; empty if there are none. Weights and random state do not change."""
    if not routes(model):
        return {}
    found = {}
    with eval_mode(model) as device:
        batch = Batch(batch.inputs.to(device), batch.labels.to(device))
        gradients = gradient_norms(model, batch, loss)
        with torch.no_grad():
            seen, _ = children_of_layers(model, batch.inputs)
            for name, layer in named_layers("vitals", model).items():
                _, activations, couplings = layer.route(seen[name])
                parents = activations.shape[-1]
                most = activations.flatten(0, -2).amax(0)
                flat = couplings.flatten(0, -2).abs().double()  # [n j]
                total = flat.sum(-1, keepdim=True)
                mass = flat.sum(0) * parents / total.sum().clamp(min=1e-30)
                shares = flat / total.clamp(min=1e-30)
                real = (total > 0).sum().clamp(min=1)  # of children that are there
                entropy = -torch.xlogy(shares, shares).sum() / real / math.log(max(2, parents))
                found[name] = Vitals(
                    float(activations.mean()),
                    int((most < dead_below(layer.routing, parents)).sum()),
                    int((mass < STARVED).sum()),
                    parents,
                    float(entropy),
                    gradients[name].poses or gradients[name].parameters,
                )
    return found
