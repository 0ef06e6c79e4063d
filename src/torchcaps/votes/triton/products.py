"""The products of votes on a GPU: what torch's tensors become for the kernels, and what comes back."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchcaps._core.precision import HALVES
from torchcaps.votes.gradients import Entry, MergedFactor, MergedFactors, separate
from torchcaps.votes.layout import constant
from torchcaps.votes.products import Products, Sums

# Numbers of a product [BN BI R K C] that a program holds, and examples that share the matrices it has loaded, where
# poses are small enough: of readings and of gradients. With more, registers spill or occupancy falls below a quarter.
READ, LEARN = (4096, 4), (512, 2)


class Blocks(NamedTuple):
    """Sizes of poses and matrices, padded to powers of two, and how many examples and children a program takes."""

    rows: int
    inner: int
    columns: int
    R2: int
    K2: int
    C2: int
    BN: int
    BI: int


def blocks_of(
    rows: int, inner: int, columns: int, examples: int, children: int, limits: tuple[int, int] = READ
) -> Blocks:
    """Blocks for these sizes: as many children as fit beside a few examples. limits: `READ` or `LEARN`."""
    most, together = limits
    sizes = [_power(size) for size in (rows, inner, columns)]
    each = sizes[0] * sizes[1] * sizes[2]
    few = min(together, _power(examples), max(1, most // each))
    many = min(_power(children), max(1, most // (each * few)), 32)
    padded_rows, padded_inner, padded_columns = sizes
    return Blocks(rows, inner, columns, padded_rows, padded_inner, padded_columns, few, many)


def _power(size: int) -> int:
    return 1 << max(0, size - 1).bit_length()


def _total(several: list[Tensor]) -> Tensor | None:
    return sum(several[1:], several[0]) if several else None


class TritonProducts(Products):
    """The products of votes, for poses [*b i (R K)] and matrices [t j K C], those of child i % t.

    Poses and matrices may be in half precision; everything else is in float32 (float64 where poses are).
    """

    kernels = True

    def __init__(self, poses: Tensor, weight: Tensor, rows: int) -> None:
        from torchcaps.votes.triton import kernels

        *leading, children, _ = poses.shape
        matrices, parents, inner, columns = weight.shape
        self._kernels = kernels
        self.device = poses.device
        self.dtype = torch.float32 if poses.dtype in HALVES else poses.dtype
        self.sources = (poses, weight)
        self.shape = torch.Size((*leading, children, parents, rows * columns))
        self._poses = poses.detach().reshape(-1, children, poses.shape[-1]).contiguous()
        self._weight = weight.detach().contiguous()
        self._examples, self._children, self._matrices, self._parents = (
            len(self._poses), children, matrices, parents,
        )  # fmt: skip
        sizes = (rows, inner, columns, self._examples, children)
        self._blocks, self._learning = blocks_of(*sizes), blocks_of(*sizes, LEARN)

    def sums(
        self, pairs: Tensor, place: Tensor | None, masses: bool = False, first: bool = False, second: bool = False
    ) -> Sums:
        made = (self._room() if masses else None, *(self._room(True) if each else None for each in (first, second)))
        if self._examples:
            self._launch(
                self._kernels.sums_kernel,
                (self._grid_n, self._parents),
                self._strided(pairs),
                (self._vectors(place), *made),
                PLACE=place is not None,
                MASSES=masses,
                FIRST=first,
                SECOND=second,
            )
        return Sums(*(None if each is None else self._outside(each) for each in made))

    def moments(self, pairs: Tensor, place: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        made = (self._room(), *(self._room(True) for _ in range(3)))
        if self._examples:
            self._launch(
                self._kernels.moments_kernel,
                (self._grid_n, self._parents),
                self._strided(pairs),
                (self._vectors(place), *made),
                (torch.finfo(self.dtype).tiny,),
                PLACE=place is not None,
            )
        masses, first, means, scatter = map(self._outside, made)
        return masses, first, means, scatter

    def inner(
        self, linear: Tensor | None, squared: Tensor | None, offset: Tensor | None, place: Tensor | None
    ) -> Tensor:
        found = self._poses.new_empty(self._examples, self._parents, self._children, dtype=self.dtype)
        beside = None if offset is None else offset.reshape(-1, self._parents).to(self.dtype).contiguous()
        if self._examples:
            blocks = -(-self._children // self._blocks.BI)
            self._launch(
                self._kernels.inner_kernel,
                (self._grid_n, blocks, self._parents),
                None,
                (self._vectors(linear), self._vectors(squared), beside, self._vectors(place), found),
                LINEAR=linear is not None,
                SQUARED=squared is not None,
                OFFSET=offset is not None,
                PLACE=place is not None,
            )
        return found.view(*self.shape[:-3], self._parents, self._children).mT

    def collected(self, entries: list[Entry]) -> tuple[Tensor | None, ...]:
        return self._gradients(separate(entries))

    def gradients(self, given: MergedFactors) -> tuple[Tensor | None, ...]:
        several = zip(given.pairs, given.plain, given.scaled, strict=True)
        return self._gradients([MergedFactor(x, _total(y), _total(z), given.pivot) for x, y, z in several])

    def _gradients(self, given: list[MergedFactor]) -> tuple[Tensor | None, ...]:
        poses, weight = self.sources
        for_poses = torch.empty_like(self._poses, dtype=self.dtype)
        if not self._examples:
            for_weight = torch.zeros_like(self._weight, dtype=self.dtype)
        else:
            for_weight = torch.empty_like(self._weight, dtype=self.dtype)
            pairs, plain, scaled, means = zip(*given, strict=True)
            rows = [self._rows(each) for each in pairs]
            arrays = (
                torch.stack(rows) if len(rows) > 1 else rows[0].contiguous(),  # [s n j i]
                *map(self._stacked, (plain, scaled, means)),
            )
            flags = dict(zip(("PLAIN", "SCALED", "PIVOT"), (each is not None for each in arrays[1:]), strict=True))
            few, many = self._learning.BN, self._learning.BI
            over_poses = (-(-self._examples // few), -(-self._children // many))
            over_weight = (-(-self._matrices // many), self._parents)
            for kernel, grid, found in (
                (self._kernels.pose_gradients_kernel, over_poses, for_poses),
                (self._kernels.weight_gradients_kernel, over_weight, for_weight),
            ):
                self._launch(kernel, grid, None, (*arrays, found), (), (len(given),), **flags)
        return for_poses.view(poses.shape).to(poses.dtype), for_weight.view(weight.shape).to(weight.dtype)

    @property
    def _grid_n(self) -> int:
        return -(-self._examples // self._blocks.BN)

    def _room(self, vectors: bool = False) -> Tensor:
        sizes = (self.shape[-1],) if vectors else ()
        return self._poses.new_empty(self._examples, self._parents, *sizes, dtype=self.dtype)

    def _outside(self, found: Tensor) -> Tensor:
        return found.view(*self.shape[:-3], *found.shape[1:])

    def _vectors(self, values: Tensor | None) -> Tensor | None:
        """Values [*b j d] as [n j d]."""
        return None if values is None else values.reshape(-1, *self.shape[-2:]).to(self.dtype).contiguous()

    def _rows(self, pairs: Tensor) -> Tensor:
        """A number for each pair [*b i j], as [n j i]."""
        return pairs.mT.reshape(-1, self._parents, self._children).to(self.dtype)

    def _stacked(self, several: tuple[Tensor | None, ...]) -> Tensor | None:
        """Vectors of each column, [s n j d], zero for those that have none; None if no column has any."""
        if all(each is None for each in several):
            return None
        zero = constant(0, self, (self._examples, *self.shape[-2:]))
        found = [zero if values is None else values for values in map(self._vectors, several)]
        return torch.stack(found) if len(found) > 1 else found[0]

    def _strided(self, pairs: Tensor) -> tuple[Tensor, int, int, int]:
        """The pairs [*b i j] as they lie in memory where their leading axes are one; else as [n i j]."""
        flat = pairs.to(self.dtype)
        if flat.ndim != 3:
            flat = flat.reshape(-1, self._children, self._parents)
        return flat, flat.stride(0), flat.stride(1), flat.stride(2)

    def _launch(
        self,
        kernel: Any,
        grid: tuple[int, ...],
        pairs: tuple[Tensor, int, int, int] | None,
        arrays: tuple[Tensor | None, ...],
        behind: tuple[float, ...] = (),
        before: tuple[int, ...] = (),
        **flags: bool,
    ) -> None:
        import triton.language as tl

        filled = [self._poses if each is None else each for each in arrays]  # what a flag says is not there is not read
        sizes = (*before, self._examples, self._children, self._matrices, self._parents)
        leading, strides = ([], ()) if pairs is None else ([pairs[0]], pairs[1:])
        sized = self._learning if "SCALED" in flags else self._blocks
        blocks = dict(zip(("ROWS", "INNER", "COLS", *Blocks._fields[3:]), sized, strict=True))
        precision = tl.float64 if self.dtype == torch.float64 else tl.float32
        kernel[grid](
            self._poses, self._weight, *leading, *filled, *sizes, *strides, *behind, **flags, **blocks, ACC=precision
        )
