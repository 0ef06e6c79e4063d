"""The windows of a transposed convolution: a child reaches a kernel of parents, and a parent sees who reaches it."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from torchcaps.votes.layout import eager
from torchcaps.votes.windows import Sizes, Windows


class TransposedWindows(Windows):
    """Child q reaches parent q * stride - padding + k * dilation through place k of the kernel, as in torch.

    A window has all places of the kernel, though with a stride most of them are outside for any one parent: only each
    stride-th along an axis can hold a child. So pairs take as much room and time as in a convolution over a grid with
    zeros inserted between children, but no such grid is made.
    """

    def __init__(
        self, grid: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, output_padding: Sizes, dilation: Sizes
    ) -> None:
        self.output_padding = output_padding
        super().__init__(grid, kernel, stride, padding, dilation)

    def _sizes(self) -> Sizes:
        return tuple(self._size(axis, size) for axis, size in enumerate(self.grid))

    def _size(self, axis: int, size: int) -> int:
        """torch's formula: the parents of so many children along an axis."""
        reach = self.span[axis] + self.output_padding[axis] - 2 * self.padding[axis]
        return (size - 1) * self.stride[axis] + reach

    @property
    def sees_outside(self) -> bool:
        return True

    def _is_blind(self, axis: int) -> bool:
        step, first = self.dilation[axis], -self.padding[axis]
        starts = range(first, self.grid[axis] * self.stride[axis] + first, self.stride[axis])
        reached = {start + k * step for start in starts for k in range(self.kernel[axis])}
        return any(window not in reached for window in range(self.out[axis]))

    def _seen_along(self, axis: int) -> tuple[Tensor, Tensor]:
        window = (torch.arange(self.out[axis]) + self.padding[axis]).unsqueeze(1)
        place = window - torch.arange(self.kernel[axis]) * self.dilation[axis]
        return place // self.stride[axis], place % self.stride[axis] == 0

    def _views_along(self, axis: int) -> tuple[Tensor, Tensor, Tensor]:
        own = torch.arange(self.kernel[axis]).expand(self.grid[axis], -1)
        start = (torch.arange(self.grid[axis]) * self.stride[axis] - self.padding[axis]).unsqueeze(1)
        return start + own * self.dilation[axis], own, torch.ones_like(own, dtype=torch.bool)

    def of(self, values: Tensor) -> Tensor:
        seen = self.seen(values.device)
        flat = values.flatten(1, len(self.grid))  # [b q *rest]
        flat = torch.cat([flat, torch.zeros_like(flat[:, :1])], 1)
        return flat.index_select(1, seen.flatten()).unflatten(1, (*self.out, *self.kernel))

    def _fits(self, axis: int, window: Tensor, extent: Tensor) -> Tensor:
        reach = self.span[axis] + self.output_padding[axis] - 2 * self.padding[axis]
        return window < (extent - 1) * self.stride[axis] + reach


def transposed_windows_of(
    grid: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, output_padding: Sizes, dilation: Sizes
) -> TransposedWindows:
    """The windows of this kernel over this grid, with tables that are made once."""
    sizes = (grid, kernel, stride, padding, output_padding, dilation)
    return _cached(*sizes) if eager() else TransposedWindows(*sizes)


_cached = functools.lru_cache(maxsize=256)(TransposedWindows)
