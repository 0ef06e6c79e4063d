"""The products of votes, computed by `votes.c`: what torch's tensors become there, and what comes back.

Everything for parents and pairs lies in memory with examples innermost, [i j n] and [j d n]; torch sees it in the usual
order, [*b i j] and [*b j d], through strides, which its own operations keep.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any

import torch
from torch import Tensor

from torchcaps.votes.buffers import scratch
from torchcaps.votes.gradients import Ledger, columns
from torchcaps.votes.native.build import Geometry

Pointers = Any  # an array of ctypes


class Products:
    """The products of votes, for these poses [*b i e] and matrices [i j k c], without gradients."""

    def __init__(self, library: ctypes.CDLL, geometry: Geometry, poses: Tensor, weight: Tensor) -> None:
        self.library = library
        self.geometry = geometry
        self.dtype = poses.dtype
        self.leading = poses.shape[:-2]
        self.examples = math.prod(self.leading)
        self.children, self.parents = weight.shape[:2]
        self.width = max(self.examples, library.lanes())
        self.poses = self.inside(poses)
        self.weight = weight.detach().contiguous()
        self.ledger = Ledger()

    @property
    def sources(self) -> tuple[Tensor, Tensor]:
        """What readers save for the backward pass, so that whoever changes it in between is told."""
        return self.poses, self.weight

    def inside(self, values: Tensor) -> Tensor:
        """Values [*b x y] as the functions want them, [x y n], with more examples if there are too few."""
        if values.dtype != self.dtype or values.device.type != "cpu":
            got = f"{values.dtype} on {values.device}"
            raise TypeError(f"votes: expected numbers beside them of {self.dtype} on the CPU, got {got}. Convert them.")
        values = values.detach()
        rows = values.flatten(0, -3) if values.ndim > 2 else values.unsqueeze(0)
        innermost = rows.permute(1, 2, 0)
        if self.width > self.examples:
            return torch.nn.functional.pad(innermost, (0, self.width - self.examples))
        if innermost.is_contiguous():
            return innermost
        return scratch(innermost.shape, innermost).copy_(innermost)

    def outside(self, values: Tensor) -> Tensor:
        """Values [x y n] as torch wants them, [*b x y]."""
        rows = values[..., : self.examples].permute(2, 0, 1)
        return rows.unflatten(0, self.leading) if self.leading else rows.squeeze(0)

    def pairs(self, values: Tensor) -> tuple[Tensor, int, int]:
        """A number for each pair [*b i j] as [i j n], and its strides; zero where it is the same for all."""
        if values.stride(-1) == 0:
            values = values[..., :1]
        if values.stride(-2) == 0:
            values = values[..., :1, :]
        found = self.inside(values)
        across, along, _ = (
            0 if size == 1 else stride for size, stride in zip(found.shape, found.stride(), strict=True)
        )
        return found, across, along

    def sums(self, pairs: Tensor, origin: Tensor | None, square: bool = False) -> Tensor:
        """Sum_i x_ij (u_j|i - o_j), or of its square, [*b j d]."""
        given, *strides = self.pairs(pairs)
        result = given.new_empty(self.parents, self.geometry.out_dim, self.width)
        self._call("sums", given, *strides, self._centre(origin), square, result)
        return self.outside(result)

    def inner(self, centres: Tensor, origin: Tensor | None, square: bool = False) -> Tensor:
        """Sum_d y_j (u_j|i - o_j), or with its square, [*b i j]."""
        given = self.inside(centres)
        result = scratch((self.children, self.parents, self.width), given)
        self._call("inner", self._centre(origin), square, given, result)
        return self.outside(result)

    def gradients(self) -> tuple[Tensor, Tensor] | None:
        """Those of poses and matrices, from all that the ledger holds; None if it is empty."""
        entries = self.ledger.take()
        if not entries:
            return None
        given, plain, scaled, pivot = columns(entries)
        pairs, across, along = zip(*(self.pairs(each) for each in given), strict=True)
        count = len(pairs)
        zero = self.poses.new_zeros(self.parents, self.geometry.out_dim, self.width)

        def stacked(vectors: list[list[Tensor]]) -> Tensor:
            return torch.stack([sum((self.inside(each) for each in several), zero) for several in vectors])

        for_poses = torch.zeros_like(self.poses)
        for_weight = scratch(self.weight.shape, self.weight).zero_()
        sizes = ctypes.c_ssize_t * count
        self._call(
            "gradients",
            self._centre(pivot),
            count,
            (ctypes.c_void_p * count)(*(each.data_ptr() for each in pairs)),
            sizes(*across),
            sizes(*along),
            stacked(plain),
            None if pivot is None else stacked(scaled),
            for_poses,
            for_weight,
        )
        return self.outside(for_poses), for_weight

    def _centre(self, origin: Tensor | None) -> Tensor | None:
        return None if origin is None else self.inside(origin)

    def _call(self, name: str, *arguments: Tensor | Pointers | int | None) -> None:
        sizes = (self.width, self.children, self.parents)
        getattr(self.library, name)(
            ctypes.c_int(torch.get_num_threads()),
            *(ctypes.c_ssize_t(size) for size in sizes),
            *(_argument(each) for each in (self.poses, self.weight, *arguments)),
        )


def _argument(value: Tensor | Pointers | int | None) -> Any:
    if value is None or isinstance(value, Tensor):
        return ctypes.c_void_p(None if value is None else value.data_ptr())
    if isinstance(value, bool):
        return ctypes.c_int(value)
    return ctypes.c_ssize_t(value) if isinstance(value, int) else value
