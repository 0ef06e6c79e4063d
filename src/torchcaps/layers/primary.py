"""Primary capsules: from a feature map to the first capsules, each made of the channels of one site.

Vectors with a squash: Sabour, Frosst, Hinton 2017. Matrices with a sigmoid activation: Hinton, Sabour, Frosst 2018.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from torchcaps._core.errors import check_choice, input_error, shape_text
from torchcaps._core.types import GRIDS, Capsules
from torchcaps.functional import SQUASHES, length, squash
from torchcaps.routing.checks import check_idle

CONVOLUTIONS: dict[int, Any] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


class PrimaryCapsules(nn.Module):
    """Features [b c h w] (or [b c t], [b c z h w]) to a grid of capsules [b h w i e].

    in_channels, kernel_size, stride, padding, groups: those of the convolution (depthwise: groups=in_channels).
    out_capsules, out_dim: the types of capsules at one position and the size of their poses. squash: of vectors, by
    name. dimensions: the number of axes of the grid.
    kind: "vector" (squashed poses, activations are lengths) or "matrix" (poses as they come, activations from a
    sigmoid of their own).
    """

    def __init__(
        self,
        in_channels: int,
        out_capsules: int,
        out_dim: int,
        kernel_size: int | tuple[int, ...] = 1,
        stride: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] = 0,
        *,
        kind: str = "vector",
        squash: str = "quadratic",
        groups: int = 1,
        dimensions: int = 2,
    ) -> None:
        super().__init__()
        check_choice("PrimaryCapsules", "kind", kind, ["vector", "matrix"])
        check_choice("PrimaryCapsules", "squash", squash, list(SQUASHES))
        check_choice("PrimaryCapsules", "dimensions", dimensions, list(CONVOLUTIONS))
        check_idle("PrimaryCapsules", 'with kind="matrix"', squash=kind == "matrix" and squash != "quadratic")
        convolution = CONVOLUTIONS[dimensions]
        self.in_channels = in_channels
        self.out_capsules = out_capsules
        self.out_dim = out_dim
        self.dimensions = dimensions
        self.squash = squash
        self.poses = convolution(in_channels, out_capsules * out_dim, kernel_size, stride, padding, groups=groups)
        self.activations: nn.Module | None = None
        if kind == "matrix":
            self.activations = convolution(in_channels, out_capsules, kernel_size, stride, padding, groups=groups)

    if TYPE_CHECKING:

        def __call__(self, features: Tensor) -> Capsules: ...

    def forward(self, features: Float[Tensor, "b c *grid"]) -> Capsules:
        if not isinstance(features, Tensor):
            got = f"a {type(features).__name__}"
            raise input_error("PrimaryCapsules", "a feature map as a tensor", got, "Pass what an encoder gives.")
        if features.ndim != self.dimensions + 2 or features.shape[1] != self.in_channels:
            expected = f"features [b c {GRIDS[self.dimensions]}] with c={self.in_channels}"
            remedy = "Give a feature map of that shape, or set in_channels and dimensions."
            raise input_error("PrimaryCapsules", expected, shape_text(features.shape), remedy)
        poses = rearrange(self.poses(features), "b (i e) ... -> b ... i e", i=self.out_capsules).contiguous()
        if self.activations is None:
            poses = squash(poses, self.squash)
            return Capsules(poses, length(poses))
        return Capsules(poses, rearrange(self.activations(features), "b i ... -> b ... i").sigmoid())
