"""The stages of a network of capsules for images: what every layer makes of one image.

The figures of the architectures in Sabour, Frosst, Hinton 2017 (figures 1 and 2) and Hinton, Sabour, Frosst 2018
(figure 1), with the tensors of a network in place of boxes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from torchcaps._core.errors import input_error
from torchcaps._core.types import Capsules
from torchcaps.analysis.evaluate import eval_mode
from torchcaps.layers import DenseDecoder, RoutedLayer
from torchcaps.layers.windowed import WindowedLayer
from torchcaps.models import CapsuleModel
from torchcaps.models.base import as_map, fit_layer
from torchcaps.votes.transforms import MatrixVotes


@dataclass(frozen=True)
class Stage:
    """A layer's output for one image.

    how: what makes it of the stage before. maps: pictures [n h w], of channels or of the activations of types of
    capsules; of a layer without a grid, its numbers [1 1 n]. poses [j d] and activations [j]: of class capsules.
    """

    name: str
    shape: tuple[int, ...]
    how: str
    maps: Tensor
    poses: Tensor | None = None
    activations: Tensor | None = None


@torch.no_grad()
def stages(model: nn.Module, image: Float[Tensor, "c h w"], owner: str = "stages") -> tuple[Stage, ...]:
    """All stages of a network for an image; the decoder draws the most active class. owner: of an error."""
    if not isinstance(model, CapsuleModel):
        remedy = "Train one on images, with --model efficient, capsnet or matrix-small."
        raise input_error(owner, "a network of capsules for images", type(model).__name__, remedy)
    with eval_mode(model):
        features = as_map(model.encoder(image.unsqueeze(0)))
        found = [Stage("image", _outside(image), "", image), _map_stage(features[0], model.encoder)]
        capsules = model.primary(features)
        found.append(_capsule_stage("primary capsules", capsules, _convolution(model.primary.poses)))
        *inner, last = model.routed_layers
        for layer in inner:
            capsules = layer(fit_layer(layer, capsules))
            found.append(_capsule_stage("convolutional capsules", capsules, _routed(layer)))
        capsules = last(fit_layer(last, capsules))
        poses, active = capsules.poses[0], capsules.activations[0]
        found.append(Stage("class capsules", tuple(poses.shape), _routed(last), poses.unsqueeze(0), poses, active))
        found += _decoded(model, capsules)
    return tuple(found)


def _outside(picture: Tensor) -> tuple[int, ...]:
    """The shape [h w c] of a picture [c h w]."""
    return (*picture.shape[1:], picture.shape[0])


def _map_stage(features: Tensor, encoder: nn.Module) -> Stage:
    convolutions = [module for module in encoder.modules() if isinstance(module, nn.Conv2d)]
    how = f"{len(convolutions)} convolutions" if len(convolutions) != 1 else _convolution(convolutions[0])
    return Stage("feature map", _outside(features), how, features)


def _capsule_stage(name: str, capsules: Capsules, how: str) -> Stage:
    return Stage(name, tuple(capsules.poses.shape[1:]), how, capsules.activations[0].movedim(-1, 0))


def _convolution(module: nn.Module) -> str:
    kernel, stride = getattr(module, "kernel_size", (1, 1)), getattr(module, "stride", (1, 1))
    return f"convolution\n{_times(kernel)}" + (f", stride {stride[0]}" if stride[0] > 1 else "")


def _routed(layer: RoutedLayer) -> str:
    votes, routing = layer.transform, layer.routing
    matrix = (math.isqrt(votes.in_dim),) * 2 if isinstance(votes, MatrixVotes) else (votes.in_dim, votes.out_dim)
    window = f"window {_times(layer.kernel_size)}\n" if isinstance(layer, WindowedLayer) else ""
    rounds = f", {routing.iterations} x" if routing.iterations > 1 else ""
    return f"{window}votes {_times(matrix)}\n{routing.name}{rounds}"


def _times(sizes: tuple[int, ...]) -> str:
    return " x ".join(map(str, sizes))


def _decoded(model: CapsuleModel, capsules: Capsules) -> list[Stage]:
    """The hidden layers of a dense decoder, and the image that a decoder draws."""
    decoder, hidden = model.decoder, []
    if decoder is None:
        return []
    inner = [module for module in decoder.modules() if isinstance(module, nn.ReLU)]
    inner = inner if isinstance(decoder, DenseDecoder) else []
    handles = [module.register_forward_hook(lambda _, given, out: hidden.append(out[0])) for module in inner]
    drawn = decoder(capsules)[0]
    for handle in handles:
        handle.remove()
    layers = [Stage("hidden", (len(each),), "linear, ReLU", each.view(1, 1, -1)) for each in hidden]
    first = "pose of the\nmost active\nclass, "
    layers = [Stage(s.name, s.shape, (first if not n else "") + s.how, s.maps) for n, s in enumerate(layers)]
    how = "linear, sigmoid" if hidden else "convolutions"
    return [*layers, Stage("reconstruction", _outside(drawn), how, drawn)]
