"""Convolutional capsules: local routing, with transforms shared over positions.

Hinton, Sabour, Frosst 2018: a child competes over all (position, type) parents that see it, so that a child at a
border, seen by few windows, is shared among few. Zhao et al. 2018 compete within each window (`competition="window"`).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from torchcaps._core.errors import check_choice, check_count, input_error
from torchcaps._core.types import Capsules, Routed, check_capsules
from torchcaps.layers.base import RoutedLayer
from torchcaps.layers.residual import at_centers, check_skip
from torchcaps.routing import Routing
from torchcaps.votes.job import Gathered
from torchcaps.votes.transforms import VoteTransform
from torchcaps.votes.windows import Sizes, Windows, windows_of


class ConvCapsules(RoutedLayer):
    """Children on a grid [b h w i e] to parents on a smaller grid [b h' w' j d]; in one dimension [b t i e].

    in_capsules and out_capsules count the types at one position. competition: "grid" (a child is shared among all
    parents that see it) or "window" (each window routes for itself). The couplings are [b h' w' k i j], k running over
    the kernel row by row. Children that no window sees are left out; those outside the grid (padding) are masked.
    Where children carry a mask, parents do too: a parent is real if its window holds a real child and would be there
    on a grid that ends with the last real position, so the length of the padding never changes a result.
    Further arguments are those of `DenseCapsules`.
    """

    def __init__(
        self,
        in_capsules: int,
        out_capsules: int,
        in_dim: int,
        out_dim: int,
        kernel_size: int | Sizes,
        stride: int | Sizes = 1,
        padding: int | Sizes = 0,
        *,
        dimensions: int = 2,
        competition: str = "grid",
        votes: str | VoteTransform = "full",
        routing: str | Routing = "dynamic",
        **options: Any,
    ) -> None:
        check_choice("ConvCapsules", "dimensions", dimensions, [1, 2])
        check_choice("ConvCapsules", "competition", competition, ["grid", "window"])
        kernel = _per_axis("kernel_size", kernel_size, dimensions, 1)
        strides = _per_axis("stride", stride, dimensions, 1)
        check_count("ConvCapsules", "in_capsules", in_capsules)
        views = [-(-k // s) for k, s in zip(kernel, strides, strict=True)] if competition == "grid" else []
        sizes = (math.prod(kernel) * in_capsules, out_capsules, in_dim, out_dim)
        # Half-way between the rivals at the start and those left when a child has found its window.
        options.setdefault("rivals", math.prod(views) ** 0.5 * out_capsules)
        super().__init__(*sizes, votes=votes, routing=routing, **options)
        self.kernel_size = kernel
        self.stride = strides
        self.padding = _per_axis("padding", padding, dimensions, 0)
        if any(p >= k for p, k in zip(self.padding, kernel, strict=True)):
            got = f"padding={self.padding} for kernel_size={kernel}"
            raise input_error("ConvCapsules", "padding below kernel_size", got, "Use less padding.")
        if self.skip:
            check_skip("ConvCapsules", in_capsules, out_capsules, in_dim, out_dim)
            if any(p > k // 2 for p, k in zip(self.padding, kernel, strict=True)):
                got = f"padding={self.padding} for kernel_size={kernel}"
                raise input_error(
                    "ConvCapsules", "padding of at most half a kernel for skip=True", got, "Use less padding."
                )
        self.dimensions = dimensions
        self.competition = competition
        self.in_capsules = in_capsules

    def _checked(self, children: Capsules) -> Capsules:
        axes = "b h w i e" if self.dimensions == 2 else "b t i e"
        check_capsules("ConvCapsules", children, self.dimensions + 3, axes, self.in_capsules, self.transform.in_dim)
        return children

    def _in_place(self, children: Capsules) -> Capsules:
        where = (self.kernel_size, self.stride, self.padding)
        return Capsules(*(None if part is None else at_centers(part, *where) for part in children))  # type: ignore[arg-type]

    def _gather(self, children: Capsules) -> Gathered:
        self._checked(children)
        windows = windows_of(tuple(children.poses.shape[1:-2]), self.kernel_size, self.stride, self.padding)
        if min(windows.out) < 1:
            got = f"a grid of {windows.grid}"
            expected = f"a grid that a kernel of {self.kernel_size} fits into"
            raise input_error("ConvCapsules", expected, got, "Use a smaller kernel_size, or padding.")
        mask, parent_mask = self._masks(children, windows)
        return Gathered(children, windows, across=self.competition == "grid", mask=mask, parent_mask=parent_mask)

    def _masks(self, children: Capsules, windows: Windows) -> tuple[Tensor | None, Tensor | None]:
        """Which children of each window are real, [b h' w' (k i)], and which parents, [b h' w' j]."""
        if children.mask is None and not any(self.padding):
            return None, None
        real = torch.ones_like(children.activations, dtype=torch.bool) if children.mask is None else children.mask
        seen = windows.of(real)  # [b h' w' k k i]
        mask = seen.flatten(1 + self.dimensions)
        if children.mask is None:
            return mask, None
        inside = windows.inside(real.any(-1)) & mask.any(-1)
        # A parent that is padding takes part in no competition: its window's children are masked in that window.
        return mask & inside.unsqueeze(-1), inside.unsqueeze(-1).expand(*inside.shape, self.transform.out_capsules)

    def _laid_out(self, routed: Routed) -> Routed:
        return routed._replace(couplings=routed.couplings.unflatten(-2, (-1, self.in_capsules)))

    def _flat(self, couplings: Tensor) -> Tensor:
        return couplings.flatten(-3, -2)


def _per_axis(name: str, value: int | Sizes, dimensions: int, low: int) -> Sizes:
    sizes = tuple(value) if isinstance(value, tuple | list) else (value,) * dimensions
    if len(sizes) != dimensions:
        raise input_error(
            "ConvCapsules", f"{name} with {dimensions} numbers", sizes, "Give a number, or one for each axis."
        )
    for size in sizes:
        check_count("ConvCapsules", name, size, low)
    return sizes
