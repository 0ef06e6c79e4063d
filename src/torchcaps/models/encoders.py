"""Pretrained networks as encoders of images: normalized images in, a feature map [b c h w] out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from torchcaps._core.errors import input_error
from torchcaps.models.base import CapsuleModel, feature_shape
from torchcaps.models.frozen import Pretrained
from torchcaps.models.textmodel import TextModel
from torchcaps.models.tokens import TextEncoder

PREFIXES = (0, 1, 2, 5)  # tokens before those of the patches: none, class, distillation, class and four registers


class Encoder(Pretrained):
    """A pretrained network as an encoder: images [b c h w] from 0 to 1 to a feature map [b c h w] or a vector [b c].

    An encoder is frozen at first: its parameters have no gradients, and it stays in evaluation mode, so that the
    statistics of batch norm do not change. `tune` makes it learn with the rest.

    network: from normalized images to [b c h w], [b c], token vectors [b t c] in rows of patches, or an object with one
    of them as `last_hidden_state`. Class tokens and registers before the patches are left out. source: where it came
    from, as `load_encoder` takes it. mean, std: of the channels, by which images are normalized. size: the usual side
    of images, if any. patch: the side of a patch, if known. channels: those that the network takes; gray images are
    repeated. native: the side of images that the network computes as they are; for others it is told to interpolate its
    positions, by the argument interpolate_pos_encoding.
    """

    mean: Tensor
    std: Tensor
    program: Any = None  # of torch.export, if the network is one

    def __init__(
        self,
        network: nn.Module,
        source: str,
        *,
        mean: Sequence[float] = (0.0,),
        std: Sequence[float] = (1.0,),
        size: int | None = None,
        patch: int | None = None,
        channels: int | None = None,
        native: int | None = None,
    ) -> None:
        super().__init__(network, source)
        self.size, self.patch, self.channels, self.native = size, patch, channels, native
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1), persistent=False)

    def forward(self, images: Float[Tensor, "b c h w"]) -> Tensor:
        if images.shape[1] == 1 and self.channels not in (None, 1):
            images = images.expand(-1, self.channels or 1, -1, -1)
        height, width = images.shape[-2:]
        foreign = self.native is not None and (height, width) != (self.native, self.native)
        more = {"interpolate_pos_encoding": True} if foreign else {}
        found = self.network((images - self.mean) / self.std, **more)
        features = getattr(found, "last_hidden_state", found)
        if isinstance(features, Tensor) and features.ndim == 3:
            return token_map(self.source, features, (height, width), self.patch)
        return features  # checked by feature_shape


def token_map(owner: str, tokens: Float[Tensor, "b t c"], sides: tuple[int, int], patch: int | None) -> Tensor:
    """Token vectors of the patches of images as a map [b c h w], without tokens before them.

    sides: the height and width of the images. patch: the side of a patch; None, or more patches than there are tokens,
    for a grid in the proportions of the images.
    """
    count = tokens.shape[1]
    grid = None if patch is None else (sides[0] // patch, sides[1] // patch)
    if grid is None or math.prod(grid) > count:
        grid = next((found for prefix in PREFIXES if (found := _grid(count - prefix, sides))), None)
    if grid is None or not math.prod(grid):
        remedy = "Give one that returns a map [b c h w] or a vector [b c]."
        expected = f"an encoder with a token for each patch of images of {sides[0]} x {sides[1]}"
        raise input_error(owner, expected, f"{count} tokens", remedy)
    patches = tokens[:, count - math.prod(grid) :]
    return patches.transpose(1, 2).unflatten(2, grid)


def _grid(count: int, sides: tuple[int, int]) -> tuple[int, int] | None:
    """Rows and columns of so many patches in the proportions of an image; None if there are none."""
    shortest = math.gcd(*sides)
    unit = (sides[0] // shortest, sides[1] // shortest)
    times = math.isqrt(max(0, count) // math.prod(unit))
    grid = (times * unit[0], times * unit[1])
    return grid if times and math.prod(grid) == count else None


def encoder_of(model: Any) -> Encoder | TextEncoder | None:
    """The pretrained encoder of a network of capsules or of texts; None if it has none."""
    encoder = model.encoder if isinstance(model, CapsuleModel | TextModel) else None
    return encoder if isinstance(encoder, Encoder | TextEncoder) else None


def head_of(model: CapsuleModel | TextModel) -> CapsuleModel | TextModel:
    """The network behind its encoder, from its features to capsules. It shares all parameters.

    Features are maps [b c h w] of images, or the vectors [b t c] of tokens, zero after the end of a text.
    """
    head = copy(model)
    head._modules = {**model._modules, "encoder": nn.Identity()}
    if isinstance(head, CapsuleModel) and isinstance(model, CapsuleModel):
        head.image_shape = feature_shape(type(model).__name__, model.encoder, model.image_shape)
    return head
