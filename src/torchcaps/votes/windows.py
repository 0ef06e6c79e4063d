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

    def __init__(self, grid: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes) -> None:
        self.grid = grid
        self.kernel = kernel
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.span = span_of(kernel, dilation)
        self.out = self._sizes()
        self.places = math.prod(grid)
        self.count = math.prod(self.out) if min(self.out) > 0 else 0
        self.blind = self.count > 0 and any(map(self._is_blind, range(len(grid))))  # does a window see no place at all?
        self._on: dict[tuple[Any, torch.device], Tensor] = {}

    def _sizes(self) -> Sizes:
        sizes = zip(self.grid, self.span, self.stride, self.padding, strict=True)
        return tuple((g + 2 * p - span) // s + 1 for g, span, s, p in sizes)

    @property
    def sees_outside(self) -> bool:
        """May a window see what is outside the grid?"""
        return any(self.padding)

    def _is_blind(self, axis: int) -> bool:
        """Does a window see nothing along this axis?"""
        size, step, padding = self.grid[axis], self.dilation[axis], self.padding[axis]
        if step == 1 or not padding:  # padding is shorter than a kernel
            return False
        starts = range(-padding, self.out[axis] * self.stride[axis] - padding, self.stride[axis])
        last = self.span[axis]
        return any(not any(0 <= place < size for place in range(s, s + last, step)) for s in starts)

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
            place, whole = self._seen_along(axis)
            inside = whole & (place >= 0) & (place < size)
            total = _crossed(total * size, place)
            real = _crossed(real.long(), inside.long() - 1) == 1
        return torch.where(real, total, self.places)

    def _seen_along(self, axis: int) -> tuple[Tensor, Tensor]:
        """The place along an axis that is there, [p k], and whether there is one at all."""
        place = (torch.arange(self.out[axis]) * self.stride[axis] - self.padding[axis]).unsqueeze(1)
        place = place + torch.arange(self.kernel[axis]) * self.dilation[axis]
        return place, torch.ones_like(place, dtype=torch.bool)

    def views(self, device: torch.device) -> Tensor:
        """For each place on the grid and outside, the places (p k) in windows from which it is seen, [q v].

        `count` times the size of a kernel, a place that is nowhere, stands where there are fewer.
        """
        return self.table("views", device, self._make_views)

    def _make_views(self) -> Tensor:
        window = offset = torch.zeros(1, 1, dtype=torch.long)
        real = torch.ones(1, 1, dtype=torch.bool)
        for axis, kernel in enumerate(self.kernel):
            mine, own, whole = self._views_along(axis)
            there = whole & (mine >= 0) & (mine < self.out[axis]) & (own < kernel)
            window = _crossed(window * self.out[axis], mine)
            offset = _crossed(offset * kernel, own)
            real = _crossed(real.long(), there.long() - 1) == 1
        nowhere = self.count * math.prod(self.kernel)
        views = torch.where(real, window * math.prod(self.kernel) + offset, nowhere)
        return torch.cat([views, torch.full_like(views[:1], nowhere)])

    def _views_along(self, axis: int) -> tuple[Tensor, Tensor, Tensor]:
        """Windows and places in them from which each place along an axis is seen, [q v], and whether they can be.

        Those are window * stride + own * dilation = place, so that `own` is known up to multiples of `period`.
        """
        stride, dilation = self.stride[axis], self.dilation[axis]
        common, period = math.gcd(stride, dilation), period_of(stride, dilation)
        place = torch.arange(self.grid[axis]).unsqueeze(1) + self.padding[axis]
        first = (place // common) * pow(dilation // common, -1, period) % period
        own = first + period * torch.arange(-(-self.kernel[axis] // period))
        return (place - own * dilation) // stride, own, (place % common == 0).expand_as(own)

    def counts(self, device: torch.device) -> Tensor:
        """How many windows see the child that is there, [p k]; one outside."""

        def make() -> Tensor:
            often = (self._make_views() < self.count * math.prod(self.kernel)).sum(1)
            return often.clamp(min=1)[self._make_seen()]

        return self.table("counts", device, make)

    def of(self, values: Tensor) -> Tensor:
        """[b *grid *rest] -> [b *out *kernel *rest]: the values that each window sees, zero outside the grid."""
        axes = len(self.grid)
        if any(self.padding):
            sides = [side for p in reversed(self.padding) for side in (p, p)]
            values = pad(values, [0, 0] * (values.ndim - 1 - axes) + sides)
        for axis in range(axes):
            values = values.unfold(1 + axis, self.span[axis], self.stride[axis])
            values = values[..., :: self.dilation[axis]] if self.dilation[axis] > 1 else values
        return values.movedim(tuple(range(-axes, 0)), tuple(range(1 + axes, 1 + 2 * axes)))

    def inside(self, real: Tensor) -> Tensor:
        """The windows [b *out] that would be there if the grid ended with its last real position [b *grid]."""
        axes = len(self.grid)
        result = real.new_ones(())
        for axis in range(axes):
            along = real
            for other in reversed(range(axes)):
                along = along if other == axis else along.any(1 + other)  # [b h] in the end
            extent = (along * torch.arange(1, self.grid[axis] + 1, device=real.device)).amax(-1, keepdim=True)
            fits = self._fits(axis, torch.arange(self.out[axis], device=real.device), extent)  # [b h']
            result = result & fits.view(-1, *(self.out[axis] if other == axis else 1 for other in range(axes)))
        return result

    def _fits(self, axis: int, window: Tensor, extent: Tensor) -> Tensor:
        """Would these windows along an axis be there on a grid of this extent?"""
        return window * self.stride[axis] + self.span[axis] <= extent + 2 * self.padding[axis]

    def over_views(self, values: Tensor, reduce: Callable[..., Tensor], nothing: float) -> Tensor:
        """Reduce [b *out (k i)] over all windows that see the same child, laid out by windows again.

        nothing: what changes no result of `reduce`.
        """
        seen, views = self.seen(values.device), self.views(values.device)
        types = values.shape[-1] // seen.shape[1]
        flat = pad(values.reshape(values.shape[0], seen.numel(), types), (0, 0, 0, 1), value=nothing)  # [b (p k)+1 i]
        total = reduce(flat[:, views.flatten()].unflatten(1, views.shape), 2)  # [b q i]
        return total[:, seen.flatten()].view(values.shape)


def _crossed(left: Tensor, right: Tensor) -> Tensor:
    """Sums of all of one table [p k] with all of another, [(p p') (k k')]."""
    return (left[:, None, :, None] + right[None, :, None, :]).flatten(2).flatten(0, 1)


def span_of(kernel: Sizes, dilation: Sizes) -> Sizes:
    """How many places a kernel reaches over, along each axis."""
    return tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True))


def period_of(stride: int, dilation: int) -> int:
    """How far apart in a kernel those places are that see the same place of a grid, from several windows."""
    return stride // math.gcd(stride, dilation)


def strided_count(kernel: Sizes, stride: Sizes, dilation: Sizes) -> int:
    """How many windows see a place; where they are transposed, how many places a window sees."""
    return math.prod(-(-k // period_of(s, d)) for k, s, d in zip(kernel, stride, dilation, strict=True))


def windows_of(grid: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes | None = None) -> Windows:
    """The windows of this kernel over this grid, with tables that are made once."""
    sizes = (grid, kernel, stride, padding, dilation or (1,) * len(grid))
    return _cached(*sizes) if eager() else Windows(*sizes)


_cached = functools.lru_cache(maxsize=256)(Windows)
