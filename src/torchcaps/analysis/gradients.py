"""Where a change of pixels changes an answer most: gradients of the odds of classes.

What an attack climbs are the log-odds of the wrong classes, not the loss of training: the margin and spread losses are
flat where their margins are met, so that most images have no gradient at all and a network seems robust that is not.
The odds are those of a softmax over scores: the logits of a plain network, the logarithm of activations that share one,
and the logit of other activations, which undoes the flat ends of squash and sigmoid. Their gradient points where that
of cross-entropy on these scores does, and does not die away as the answer grows sure.
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
    """What a softmax may be taken of: the logits of a plain network, or what the activations come from."""
    if model.readout == "logit":
        return capsules.poses.squeeze(-1)
    ends = torch.finfo(capsules.activations.dtype)
    inside = capsules.activations.clamp(ends.tiny, 1 - ends.eps / 2)
    return inside.log() if model.readout == "share" else torch.logit(inside)


def wrong_odds(scores: Float[Tensor, "b y"], shown: Bool[Tensor, "b y"]) -> Float[Tensor, " b"]:
    """The log-odds of the classes that are not shown against the one that is, or against the weakest, softly."""
    wrong = scores.masked_fill(shown, -torch.inf).logsumexp(-1)
    return wrong + (-scores).masked_fill(~shown, -torch.inf).logsumexp(-1)


@contextmanager
def questioned(model: ImageModel) -> Iterator[None]:
    """The model in evaluation mode, its weights constant, with the gradients of all iterations; afterwards as before.

    A network that was trained with those of the last iteration would hide what the others could tell an attack.
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
    """Where the odds of a wrong answer grow; with targets [b], where the odds of these classes do."""
    sought = shown_classes(labels if targets is None else targets, model.classes)
    with questioned(model), torch.enable_grad():
        pixels = images.detach().requires_grad_()
        odds = wrong_odds(class_scores(model, model(pixels)), sought)
        (gradient,) = torch.autograd.grad(odds.sum(), pixels)
    return gradient if targets is None else -gradient


@torch.no_grad()
def answer(model: ImageModel, images: Float[Tensor, "b c h w"]) -> Float[Tensor, "b y"]:
    """The activations of the classes in evaluation mode, on the CPU."""
    with questioned(model):
        return model(images).activations.float().cpu()
