"""The products of votes, computed by `votes.c`: what torch's tensors become there, and what comes back.

Everything lies in blocks of examples, innermost in memory (see `blocks`); torch sees it through strides, which its own
operations keep.
"""

from __future__ import annotations

import ctypes
from collections.abc import MutableMapping
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from torchcaps.votes.buffers import scratch
from torchcaps.votes.gradients import MergedFactors
from torchcaps.votes.layout import constant
from torchcaps.votes.native.blocks import call, innermost, outermost
from torchcaps.votes.native.build import Geometry
from torchcaps.votes.products import Products, Sums


class BlockProducts(Products):
    """What all products in blocks of examples share."""

    library: ctypes.CDLL

    @cached_property
    def _weighed(self) -> MutableMapping[Tensor, tuple[Tensor, Tensor]]:
        """The factors of what `weigh` returned, while it exists."""
        return WeakTensorKeyDictionary()

    def _laid(self, values: Tensor) -> Tensor:
        """Values [block lane x y] as the functions want them."""
        if values.dtype != self.dtype or values.device.type != "cpu":
            got = f"{values.dtype} on {values.device}"
            raise TypeError(f"votes: expected numbers beside them of {self.dtype} on the CPU, got {got}. Convert them.")
        return innermost(values)

    def zeros(self) -> Tensor:
        return constant(0, self, self.shape[:-1])

    def weigh(self, couplings: Tensor, weights: Tensor) -> Tensor:
        if couplings.stride(-1) == 0:  # the same for all parents: so is the result
            return super().weigh(couplings, weights)
        result: Tensor = _Weigh.apply(couplings, weights, self.library)
        if torch.is_grad_enabled():  # otherwise nothing is saved, and the factors need not outlive their use
            self._weighed[result] = (couplings.detach(), weights.detach())
        return result

    def factors(self, pairs: Tensor) -> tuple[Tensor, Tensor] | None:
        return self._weighed.get(pairs)  # the softmax saves the couplings anyway: their product need not be


class NativeProducts(BlockProducts):
    """The products of votes, for poses [block lane i e] and matrices [t j k c], those of child i % t."""

    def __init__(self, library: ctypes.CDLL, geometry: Geometry, poses: Tensor, weight: Tensor) -> None:
        blocks, lanes, children, _ = poses.shape
        self.library = library
        self.geometry = geometry
        self.dtype, self.device = poses.dtype, poses.device
        self.sources = (poses, weight)
        self.poses = innermost(poses.detach())
        self.weight = weight.detach().contiguous()
        self.children, self.parents, self.blocks, self.lanes = children, weight.shape[1], blocks, lanes
        self.shape = torch.Size((blocks, lanes, children, self.parents, geometry.out_dim))

    def _pairs(self, values: Tensor) -> tuple[Tensor, int, int, int]:
        """A number for each pair [block lane i j], and its strides; zero where it is the same for all."""
        if values.stride(-1) == 0:
            values = values[..., :1]
        if values.stride(-2) == 0:
            values = values[..., :1, :]
        found = self._laid(values)
        _, children, parents, _ = found.shape
        steps = found.stride()
        return found, steps[0], 0 if children == 1 else steps[1], 0 if parents == 1 else steps[2]

    def _room(self, *sizes: int) -> Tensor:
        return self.poses.new_empty(self.blocks, *sizes, self.lanes)

    def _beside(self, values: Tensor | None) -> Tensor | None:
        return None if values is None else self._laid(values)

    def sums(
        self, pairs: Tensor, place: Tensor | None, masses: bool = False, first: bool = False, second: bool = False
    ) -> Sums:
        dim = self.geometry.out_dim
        made = (
            self._room(self.parents) if masses else None,
            self._room(self.parents, dim) if first else None,
            self._room(self.parents, dim) if second else None,
        )
        self._call("sums", *self._pairs(pairs), self._beside(place), *made)
        return Sums(*(None if each is None else outermost(each) for each in made))

    def moments(self, pairs: Tensor, place: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        dim = self.geometry.out_dim
        made = (self._room(self.parents), *(self._room(self.parents, dim) for _ in range(3)))
        self._call("moments", *self._pairs(pairs), self._beside(place), *made)
        masses, first, means, scatter = map(outermost, made)
        return masses, first, means, scatter

    def inner(
        self, linear: Tensor | None, squared: Tensor | None, offset: Tensor | None, place: Tensor | None
    ) -> Tensor:
        result = scratch((self.blocks, self.children, self.parents, self.lanes), self.poses)
        given = (self._beside(place), self._beside(linear), self._beside(squared), self._beside(offset))
        self._call("inner", *given, result)
        return outermost(result)

    def gradients(self, given: MergedFactors) -> tuple[Tensor | None, ...]:
        pairs, apart, across, along = zip(*(self._pairs(each) for each in given.pairs), strict=True)
        count = len(pairs)
        zero: list[Tensor] = []  # made once, if at all

        def total(several: list[Tensor]) -> Tensor:
            if not several:
                zero[:] = zero or [self._room(self.parents, self.geometry.out_dim).zero_()]
                return zero[0]
            return self._laid(sum(several[1:], several[0]))

        def stacked(vectors: list[list[Tensor]]) -> Tensor:
            return torch.stack([total(several) for several in vectors]) if count > 1 else total(vectors[0])

        for_poses = scratch(self.poses.shape, self.poses).zero_()
        for_weight = scratch(self.weight.shape, self.weight).zero_()
        sizes = ctypes.c_ssize_t * count
        squares = any(given.scaled)
        self._call(
            "gradients",
            self._beside(given.pivot) if squares else None,
            count,
            (ctypes.c_void_p * count)(*(each.data_ptr() for each in pairs)),
            sizes(*apart),
            sizes(*across),
            sizes(*along),
            stacked(given.plain),
            stacked(given.scaled) if squares else None,
            for_poses,
            for_weight,
        )
        return outermost(for_poses), for_weight

    def _call(self, name: str, *arguments: Any) -> None:
        sizes = (self.blocks, self.children, len(self.weight), self.parents)
        call(getattr(self.library, name), *sizes, self.poses, self.weight, *arguments)


class _Weigh(torch.autograd.Function):
    """c_ij w_i, of couplings [block lane i j] and weights of children [block lane i]; going back, in one reading."""

    @staticmethod
    def forward(ctx: Any, couplings: Tensor, weights: Tensor, library: ctypes.CDLL) -> Tensor:
        ctx.library = library
        ctx.save_for_backward(couplings, weights)
        return torch.mul(innermost(couplings), innermost(weights).unsqueeze(2)).permute(0, 3, 1, 2)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        couplings, weights = ctx.saved_tensors
        needs = ctx.needs_input_grad
        if torch.is_grad_enabled():
            return gradient * weights.unsqueeze(-1), (gradient * couplings).sum(-1), None
        given, laid, own = innermost(gradient), innermost(couplings), innermost(weights)
        for_couplings = torch.empty_like(given) if needs[0] else None
        for_weights = torch.empty_like(own) if needs[1] else None
        rows, parents = given.shape[0] * given.shape[1], given.shape[2]
        call(ctx.library.weigh_back, rows, parents, laid, own, given, for_couplings, for_weights)
        return (
            None if for_couplings is None else outermost(for_couplings),
            None if for_weights is None else outermost(for_weights),
            None,
        )
