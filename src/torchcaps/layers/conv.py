"""Convolutional capsules: local routing, with transforms shared over positions.

Hinton, Sabour, Frosst 2018: a child competes over all (position, type) parents that see it, so that a child at a
border, seen by few windows, is shared among few. Zhao et al. 2018 compete within each window (`competition="window"`).
"""

from __future__ import annotations

import math
from typing import Any

from torchcaps._core.errors import input_error
from torchcaps.layers.residual import check_skip
from torchcaps.layers.windowed import WindowedLayer
from torchcaps.routing import Routing
from torchcaps.votes.transforms import VoteTransform
from torchcaps.votes.windows import Sizes, Windows, span_of, strided_count, windows_of


class _ConvCapsules(WindowedLayer):
    def __init__(
        self, in_capsules: int, out_capsules: int, in_dim: int, out_dim: int,
        kernel_size: int | Sizes, stride: int | Sizes = 1, padding: int | Sizes = 0, dilation: int | Sizes = 1, *,
        competition: str = "grid", votes: str | VoteTransform = "full", routing: str | Routing = "dynamic",
        **options: Any,
    ) -> None:  # fmt: skip
        sizes, where = (in_capsules, out_capsules, in_dim, out_dim), (kernel_size, stride, padding, dilation)
        super().__init__(sizes, *where, competition=competition, votes=votes, routing=routing, **options)
        owner = type(self).__name__
        got = f"padding={self.padding} for kernel_size={self.kernel_size}"
        if max(self.dilation) > 1:
            got += f" and dilation={self.dilation}"
        if any(p >= s for p, s in zip(self.padding, span_of(self.kernel_size, self.dilation), strict=True)):
            raise input_error(owner, "padding below kernel_size (dilated)", got, "Use less padding.")
        if self.skip:
            check_skip(owner, in_capsules, out_capsules, in_dim, out_dim)
            middles = [k // 2 * d for k, d in zip(self.kernel_size, self.dilation, strict=True)]
            if any(p > middle for p, middle in zip(self.padding, middles, strict=True)):
                raise input_error(owner, "padding of at most half a kernel for skip=True", got, "Use less padding.")

    def _sees(self, kernel: Sizes, stride: Sizes, dilation: Sizes) -> tuple[int, int]:
        return math.prod(kernel), strided_count(kernel, stride, dilation)

    def windows(self, grid: Sizes) -> Windows:
        found = windows_of(grid, self.kernel_size, self.stride, self.padding, self.dilation)
        if min(found.out) < 1:
            expected = f"a grid that a kernel of {found.span} fits into"
            remedy = "Use a smaller kernel_size or dilation, or padding."
            raise input_error(type(self).__name__, expected, f"a grid of {grid}", remedy)
        return found


class ConvCapsules1d(_ConvCapsules):
    """Children on a line [b t i e] to parents on a line [b t' j d].

    in_capsules, out_capsules, in_dim, out_dim, kernel_size, stride, padding, dilation, competition and further
    arguments are those of `ConvCapsules2d`.
    """

    dimensions = 1


class ConvCapsules2d(_ConvCapsules):
    """Children on a grid [b h w i e] to parents on a smaller grid [b h' w' j d].

    in_capsules, out_capsules: the types of capsules at one position. in_dim, out_dim: the sizes of poses.
    kernel_size, stride, padding and dilation are those of
    `torch.nn.Conv2d`: a number, or one for each axis. competition: "grid" (a child is shared among all parents that see
    it) or "window" (each window routes for itself). The couplings are [b h' w' k i j], k running over the kernel row by
    row. Children that no window sees are left out; those outside the grid (padding) are masked.
    Where children carry a mask, parents do too: a parent is real if its window holds a real child and would be there
    on a grid that ends with the last real position, so the length of the padding never changes a result. Parents that
    are not real have zero poses and activations.
    Further arguments are those of `DenseCapsules`.
    """

    dimensions = 2


class ConvCapsules3d(_ConvCapsules):
    """Children on a grid [b z h w i e] to parents [b z' h' w' j d].

    in_capsules, out_capsules, in_dim, out_dim, kernel_size, stride, padding, dilation, competition and further
    arguments are those of `ConvCapsules2d`.
    """

    dimensions = 3
