"""Gradients of the log-odds of wrong classes with respect to pixels, for attacks.

Attacks do not use the training loss: margin and spread losses are flat where their margins are met, so most images
would have no gradient and the network would only seem robust. The odds are those of a softmax over scores: the logits
of a plain network, the logarithm of activations that sum to one, and the logit of other activations, which compensates
for the saturation of squash and sigmoid. The gradient has the direction of that of the cross-entropy of these scores,
and does not vanish for confident predictions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from torchcaps._core.types import Capsules
from torchcaps.analysis.evaluate import eval_mode, shown_classes
from torchcaps.models import ImageModel
from torchcaps.routing import Routing


def class_scores(model: ImageModel, capsules: Capsules) -> Float[Tensor, "b y"]:
    """Scores for a softmax: the logits of a plain network, or those that correspond to the activations."""
    if model.readout == "logit":
        return capsules.poses.squeeze(-1)
    ends = torch.finfo(capsules.activations.dtype)
    inside = capsules.activations.clamp(ends.tiny, 1 - ends.eps / 2)
    return inside.log() if model.readout == "share" else torch.logit(inside)


def wrong_odds(scores: Float[Tensor, "b y"], shown: Bool[Tensor, "b y"]) -> Float[Tensor, " b"]:
    """The log-odds of all other classes against the true one, or (softly) against the weakest of the true ones."""
    wrong = scores.masked_fill(shown, -torch.inf).logsumexp(-1)
    return wrong + (-scores).masked_fill(~shown, -torch.inf).logsumexp(-1)


@contextmanager
def questioned(model: ImageModel) -> Iterator[None]:
    """A context with the model in evaluation mode, constant weights, and gradients of all iterations.

    A network trained with gradients of the last iteration only would otherwise hide part of the gradient from an
    attack.
    """
    weights = [(weight, weight.requires_grad) for weight in model.parameters()]
    routings = [(module, module.gradients) for module in model.modules() if isinstance(module, Routing)]
    model.requires_grad_(False)
    for routing, _ in routings:
        routing.gradients = "all"
    try:
        with eval_mode(model):
            yield
    finally:
        for weight, learned in weights:
            weight.requires_grad_(learned)
        for routing, gradients in routings:
            routing.gradients = gradients


def image_gradients(
    model: ImageModel, images: Float[Tensor, "b c h w"], labels: Tensor, targets: Tensor | None = None
) -> Float[Tensor, "b c h w"]:
    """The gradient of the odds of a wrong prediction; with targets [b], of the odds of these classes."""
    sought = shown_classes(labels if targets is None else targets, model.classes)
    with questioned(model), torch.enable_grad():
        pixels = images.detach().requires_grad_()
        odds = wrong_odds(class_scores(model, model(pixels)), sought)
        (gradient,) = torch.autograd.grad(odds.sum(), pixels)
    return gradient if targets is None else -gradient


@torch.no_grad()
def answer(model: ImageModel, images: Float[Tensor, "b c h w"]) -> Float[Tensor, "b y"]:
    """The class activations in evaluation mode, on the CPU."""
    with questioned(model):
        return model(images).activations.float().cpu()
