"""Heads: which class capsules speak, and the decoders that draw what they say."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from torchcaps._core.errors import check_range, input_error, shape_text
from torchcaps._core.types import Capsules, check_capsules, check_labels, truth_of

COARSE = 8  # places of a decoder's first map along each side, at most


def class_mask(activations: Float[Tensor, "b y"], labels: Tensor | None = None, *, top: int | None = None) -> Tensor:
    """Ones for the capsules that stay, zeros for the others. activations: of class capsules, [b y].

    By label: class indices [b] give [b y]; several of them, [b n] with n other than y, give [b n y], one mask for each;
    truth values [b y] keep several capsules together. By prediction (no labels): the most active capsule [b y], or with
    `top` the most active ones, one mask for each, [b top y].
    """
    batch, classes = activations.shape
    if labels is None:
        if top is None:
            return truth_of(activations.argmax(-1), classes, activations.dtype)
        check_range("class_mask", "top", top, 1, classes)
        return truth_of(activations.topk(top, dim=-1).indices, classes, activations.dtype)
    if top is not None:
        raise input_error("class_mask", "labels or top", "both", "Drop one of them.")
    if not isinstance(labels, Tensor):
        raise input_error(
            "class_mask", "labels as a tensor", f"a {type(labels).__name__}", "Pass torch.tensor(labels)."
        )
    if labels.shape == activations.shape:
        return labels.to(activations.dtype)
    whole = not labels.is_floating_point() and labels.dtype != torch.bool
    if not whole or labels.ndim not in (1, 2) or labels.shape[0] != batch:
        expected = f"class indices [b] or [b n] with b={batch}, or truth values [b y] = {shape_text(activations.shape)}"
        got = f"{shape_text(labels.shape)} of {labels.dtype}"
        raise input_error("class_mask", expected, got, "Give class indices, or one truth value for each class.")
    check_labels("class_mask", labels, classes)
    return truth_of(labels, classes, activations.dtype)


class Decoder(nn.Module):
    """The base of decoders: silence all class capsules but the chosen ones, keep each in its place, and draw.

    `decoder(capsules, labels)` masks by label, `decoder(capsules)` by prediction; see `class_mask`. The images are
    [b c h w], or [b n c h w] where n capsules are drawn apart. classes, dim: the number of class capsules and the size
    of their poses. image_shape: (channels, height, width).
    """

    def __init__(self, classes: int, dim: int, image_shape: tuple[int, int, int]) -> None:
        super().__init__()
        self.classes = classes
        self.dim = dim
        if not isinstance(image_shape, tuple | list) or len(image_shape) != 3:
            owner = type(self).__name__
            raise input_error(owner, "image_shape (channels, height, width)", image_shape, "Give three numbers.")
        self.image_shape = tuple(image_shape)

    def forward(self, capsules: Capsules, labels: Tensor | None = None, *, top: int | None = None) -> Tensor:
        check_capsules(type(self).__name__, capsules, "b y d", self.classes, self.dim)
        keep = class_mask(capsules.activations, labels, top=top)
        poses = capsules.poses if keep.ndim == 2 else capsules.poses.unsqueeze(1)
        chosen = (poses * keep.unsqueeze(-1)).flatten(-2)  # [b (y d)] or [b n (y d)]
        images = self.draw(chosen.flatten(0, -2))
        return images.unflatten(0, chosen.shape[:-1])

    def draw(self, poses: Float[Tensor, "b yd"]) -> Float[Tensor, "b c h w"]:
        """Images in [0, 1] from the class poses in a row."""
        raise NotImplementedError


class DenseDecoder(Decoder):
    """The decoder of Sabour 2017: three fully connected layers, 512 and 1024 wide, and a sigmoid.

    classes, dim, image_shape: see `Decoder`. hidden: the widths of the two inner layers.
    """

    def __init__(
        self, classes: int, dim: int, image_shape: tuple[int, int, int], hidden: tuple[int, int] = (512, 1024)
    ) -> None:
        super().__init__(classes, dim, image_shape)
        self.layers = nn.Sequential(
            nn.Linear(classes * dim, hidden[0]),
            nn.ReLU(),
            nn.Linear(hidden[0], hidden[1]),
            nn.ReLU(),
            nn.Linear(hidden[1], math.prod(image_shape)),
            nn.Sigmoid(),
        )

    def draw(self, poses: Tensor) -> Tensor:
        return self.layers(poses).unflatten(-1, self.image_shape)


class ConvDecoder(Decoder):
    """A small convolutional decoder: a coarse map of at most 8 x 8 places, doubled until it is as large as the image.

    classes, dim, image_shape: see `Decoder`. width: half the channels of the coarse map; every doubling halves them.
    Images of up to 32 pixels take two doublings. Parameters and memory grow with the image's sides, not with its area
    times the number of classes, as those of `DenseDecoder` do.
    """

    def __init__(self, classes: int, dim: int, image_shape: tuple[int, int, int], width: int = 32) -> None:
        super().__init__(classes, dim, image_shape)
        channels, height, image_width = self.image_shape
        doublings = max(2, math.ceil(math.log2(max(height, image_width) / COARSE)))
        scale = 2**doublings
        self.coarse = (2 * width, -(-height // scale), -(-image_width // scale))
        self.expand = nn.Linear(classes * dim, math.prod(self.coarse))
        widths = [max(min(2 * width, 8), 2 * width >> step) for step in range(doublings)]
        layers: list[nn.Module] = []
        for before, after in zip(widths, [*widths[1:], channels], strict=True):
            layers += [nn.ReLU(), nn.Upsample(scale_factor=2), nn.Conv2d(before, after, 3, padding=1)]
        self.layers = nn.Sequential(*layers, nn.Sigmoid())

    def draw(self, poses: Tensor) -> Tensor:
        _, height, width = self.image_shape
        return self.layers(self.expand(poses).unflatten(-1, self.coarse))[..., :height, :width]
