"""What convolutions of capsules share: children on a grid, parents on another, and windows through which they see."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from torchcaps._core.errors import check_choice, check_count, input_error
from torchcaps._core.types import GRIDS, Capsules, check_capsules
from torchcaps.layers.base import RoutedLayer
from torchcaps.votes.job import Gathered
from torchcaps.votes.windows import Sizes, Windows


class WindowedLayer(RoutedLayer):
    """The base of convolutions and transposed convolutions. A kind says what its windows are.

    dimensions: the axes of the grid. sizes: in_capsules, out_capsules, in_dim and out_dim. competition: "grid" or
    "window". The couplings are [b *out k i j].
    """

    dimensions: int = 2
    rivalry: float = 0.5  # how many of the windows that see a child count as rivals at the start: their number to this

    def __init__(
        self,
        sizes: tuple[int, int, int, int],
        kernel_size: int | Sizes,
        stride: int | Sizes,
        padding: int | Sizes,
        dilation: int | Sizes,
        *,
        competition: str,
        **options: Any,
    ) -> None:
        owner = type(self).__name__
        check_choice(owner, "competition", competition, ["grid", "window"])
        kernel = self._per_axis("kernel_size", kernel_size, 1)
        strides = self._per_axis("stride", stride, 1)
        dilations = self._per_axis("dilation", dilation, 1)
        paddings = self._per_axis("padding", padding, 0)
        in_capsules, out_capsules, in_dim, out_dim = sizes
        check_count(owner, "in_capsules", in_capsules)
        seen, views = self._sees(kernel, strides, dilations)
        views = views if competition == "grid" else 1
        options.setdefault("expected_children", seen * in_capsules)
        # Between the rivals at the start and those left when a child has found its window.
        options.setdefault("rivals", views**self.rivalry * out_capsules)
        super().__init__(math.prod(kernel) * in_capsules, out_capsules, in_dim, out_dim, **options)
        self.kernel_size = kernel
        self.stride = strides
        self.padding = paddings
        self.dilation = dilations
        self.competition = competition
        self.in_capsules = in_capsules

    def _per_axis(self, name: str, value: int | Sizes, low: int) -> Sizes:
        owner, count = type(self).__name__, self.dimensions
        sizes = tuple(value) if isinstance(value, tuple | list) else (value,) * count
        if len(sizes) != count:
            raise input_error(owner, f"{name} with {count} numbers", sizes, "Give a number, or one for each axis.")
        for size in sizes:
            check_count(owner, name, size, low)
        return sizes

    def _sees(self, kernel: Sizes, stride: Sizes, dilation: Sizes) -> tuple[int, int]:
        """How many places a window sees, and how many windows see a place, away from the border."""
        raise NotImplementedError

    def windows(self, grid: Sizes) -> Windows:
        """The windows of this layer over a grid of children of this size."""
        raise NotImplementedError

    def _check(self, children: Capsules) -> None:
        axes = f"b {GRIDS[self.dimensions]} i e"
        check_capsules(type(self).__name__, children, axes, self.in_capsules, self.transform.in_dim)

    def _gather(self, children: Capsules) -> Gathered:
        windows = self.windows(tuple(children.poses.shape[1:-2]))
        mask, parent_mask = self._masks(children, windows)
        return Gathered(children, windows, across=self.competition == "grid", mask=mask, parent_mask=parent_mask)

    def _masks(self, children: Capsules, windows: Windows) -> tuple[Tensor | None, Tensor | None]:
        """Which children of each window are real, [b *out (k i)], and which parents, [b *out j]."""
        if children.mask is None and not windows.sees_outside:
            return None, None
        real = torch.ones_like(children.activations, dtype=torch.bool) if children.mask is None else children.mask
        mask = windows.of(real).flatten(1 + self.dimensions)
        if children.mask is None and not windows.blind:
            return mask, None
        inside = mask.any(-1)
        if children.mask is not None:
            inside = inside & windows.inside(real.any(-1))
        # A parent that is padding takes part in no competition: its window's children are masked in that window.
        return mask & inside.unsqueeze(-1), inside.unsqueeze(-1).expand(*inside.shape, self.transform.out_capsules)
