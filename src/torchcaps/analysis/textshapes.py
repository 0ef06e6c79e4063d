"""The shapes of all layers of a text model, from a forward pass of a text.

Zhao et al. 2018, "Investigating Capsule Networks with Dynamic Routing for Text Classification", figures 1 and 2.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor, nn

from torchcaps._core.errors import input_error
from torchcaps.analysis.evaluate import eval_mode
from torchcaps.layers import DenseCapsules
from torchcaps.models import TextCapsules
from torchcaps.models.ngrams import Branch


@dataclass(frozen=True)
class LayerShape:
    """A layer's name and its output shape for one text; shapes of capsules end in (capsules, pose)."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class TextShapes:
    """The words of a text, their vectors, the layers of every branch, and the output; noise: is there such a class?"""

    words: tuple[str, ...]
    vectors: LayerShape
    branches: tuple[tuple[LayerShape, ...], ...]
    answer: LayerShape
    noise: bool


@torch.no_grad()
def text_shapes(model: nn.Module, tokens: Int[Tensor, "1 t"], words: tuple[str, ...]) -> TextShapes:
    """The shape of every layer of a model for a text."""
    if not isinstance(model, TextCapsules):
        remedy = "Choose text, text-a or text-b."
        raise input_error("text_shapes", "a network of capsules for texts", type(model).__name__, remedy)
    with eval_mode(model):
        vectors, ends = model.features(tokens)
        branches = tuple(_layers(branch, vectors, ends) for branch in model.branches if isinstance(branch, Branch))
        answer = LayerShape("class capsules", tuple(model(tokens).poses.shape[1:]))
    return TextShapes(words, LayerShape("word vectors", tuple(vectors.mT.shape[1:])), branches, answer, model.noise)


def _layers(branch: Branch, vectors: Tensor, ends: Tensor) -> tuple[LayerShape, ...]:
    found = [LayerShape(f"{branch.ngram}-grams", tuple(branch.convolution(vectors).mT.shape[1:]))]
    capsules = branch.children_of(vectors, ends)
    found.append(LayerShape("primary capsules", tuple(capsules.poses.shape[1:])))
    *before, last = branch.routed_layers
    for layer in before:
        capsules = layer(capsules)
        found.append(LayerShape("convolutional capsules", tuple(capsules.poses.shape[1:])))
    capsules = last(capsules.flatten() if isinstance(last, DenseCapsules) else capsules)
    found.append(LayerShape("class capsules", tuple(capsules.poses.shape[1:])))
    return tuple(found)
