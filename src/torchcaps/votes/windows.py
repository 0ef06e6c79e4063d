"""The windows of a convolution over a grid: which places of children each of them sees."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from torchcaps.votes.layout import eager

Sizes = tuple[int, ...]


class Windows:
    """The windows of one kernel over a grid of one size. Tables are made once for each size and device: `windows_of`.

    Letters: p window, k place in a window (row by row), q place on the grid; one more place stands for all outside.
    """

    def __init__(self, grid: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes) -> None:
        self.grid = grid
        self.kernel = kernel
        self.stride = stride
        self.padding = padding
        self.out = tuple((g + 2 * p - k) // s + 1 for g, k, s, p in zip(grid, kernel, stride, padding, strict=True))
        self.places = math.prod(grid)
        self.count = math.prod(self.out) if min(self.out) > 0 else 0
        self._on: dict[tuple[Any, torch.device], Tensor] = {}

    def table(self, name: Any, device: torch.device, make: Callable[[], Tensor]) -> Tensor:
        """What `make` gives, made once for each name and device."""
        if not eager():  # else a table could be a compiler's stand-in
            return make().to(device)
        found = self._on.get((name, device))
        if found is None:
            with torch.inference_mode(False):
                found = self._on[name, device] = make().to(device)
        return found

    def seen(self, device: torch.device) -> Tensor:
        """The place on the grid that is there, [p k]; `places` where that is outside."""
        return self.table("seen", device, self._make_seen)

    def _make_seen(self) -> Tensor:
        total, real = torch.zeros(1, 1, dtype=torch.long), torch.ones(1, 1, dtype=torch.bool)
        for axis, size in enumerate(self.grid):
            place = (torch.arange(self.out[axis]) * self.stride[axis] - self.padding[axis]).unsqueeze(1)
            place = place + torch.arange(self.kernel[axis])  # [p k] of this axis
            inside = (place >= 0) & (place < size)
            total = _crossed(total * size, place)
            real = _crossed(real.long(), inside.long() - 1) == 1
        return torch.where(real, total, self.places)

    def views(self, device: torch.device) -> Tensor:
        """For each place on the grid and outside, the places (p k) in windows from which it is seen, [q v].

        `count` times the size of a kernel, a place that is nowhere, stands where there are fewer.
        """
        return self.table("views", device, self._make_views)

    def _make_views(self) -> Tensor:
        window = offset = torch.zeros(1, 1, dtype=torch.long)
        real = torch.ones(1, 1, dtype=torch.bool)
        for axis, (kernel, stride) in enumerate(zip(self.kernel, self.stride, strict=True)):
            place = torch.arange(self.grid[axis]).unsqueeze(1) + self.padding[axis]
            mine = place // stride - torch.arange(-(-kernel // stride))  # [q v] of this axis
            own = place - mine * stride
            there = (mine >= 0) & (mine < self.out[axis]) & (own < kernel)
            window = _crossed(window * self.out[axis], mine)
            offset = _crossed(offset * kernel, own)
            real = _crossed(real.long(), there.long() - 1) == 1
        nowhere = self.count * math.prod(self.kernel)
        views = torch.where(real, window * math.prod(self.kernel) + offset, nowhere)
        return torch.cat([views, torch.full_like(views[:1], nowhere)])

    def counts(self, device: torch.device) -> Tensor:
        """How many windows see the child that is there, [p k]; one outside."""

        def make() -> Tensor:
            often = (self._make_views() < self.count * math.prod(self.kernel)).sum(1)
            return often.clamp(min=1)[self._make_seen()]

        return self.table("counts", device, make)

    def of(self, values: Tensor) -> Tensor:
        """[b h w *rest] -> [b h' w' k k *rest]: the values that each window sees, zero outside the grid."""
        axes = len(self.grid)
        if any(self.padding):
            sides = [side for p in reversed(self.padding) for side in (p, p)]
            values = pad(values, [0, 0] * (values.ndim - 1 - axes) + sides)
        for axis in range(axes):
            values = values.unfold(1 + axis, self.kernel[axis], self.stride[axis])
        return values.movedim(tuple(range(-axes, 0)), tuple(range(1 + axes, 1 + 2 * axes)))

    def inside(self, real: Tensor) -> Tensor:
        """The windows [b h' w'] that would be there if the grid ended with its last real position [b h w]."""
        axes = len(self.grid)
        result = real.new_ones(())
        for axis in range(axes):
            others = [1 + other for other in range(axes) if other != axis]
            along = real.any(others[0]) if others else real  # [b h]
            extent = (along * torch.arange(1, self.grid[axis] + 1, device=real.device)).amax(-1, keepdim=True)
            starts = torch.arange(self.out[axis], device=real.device) * self.stride[axis]
            fits = starts + self.kernel[axis] <= extent + 2 * self.padding[axis]  # [b h']
            result = result & fits.view(-1, *(self.out[axis] if other == axis else 1 for other in range(axes)))
        return result

    def over_views(self, values: Tensor, reduce: Callable[..., Tensor], nothing: float) -> Tensor:
        """Reduce [b *out (k i)] over all windows that see the same child, laid out by windows again.

        nothing: what changes no result of `reduce`.
        """
        seen, views = self.seen(values.device), self.views(values.device)
        types = values.shape[-1] // seen.shape[1]
        flat = pad(values.reshape(len(values), seen.numel(), types), (0, 0, 0, 1), value=nothing)  # [b (p k)+1 i]
        total = reduce(flat[:, views.flatten()].unflatten(1, views.shape), 2)  # [b q i]
        return total[:, seen.flatten()].view(values.shape)


def _crossed(left: Tensor, right: Tensor) -> Tensor:
    """Sums of all of one table [p k] with all of another, [(p p') (k k')]."""
    return (left[:, None, :, None] + right[None, :, None, :]).flatten(2).flatten(0, 1)


def windows_of(grid: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes) -> Windows:
    """The windows of this kernel over this grid, with tables that are made once."""
    return _cached(grid, kernel, stride, padding) if eager() else Windows(grid, kernel, stride, padding)


_cached = functools.lru_cache(maxsize=256)(Windows)
