"""Votes as backends read them, for tests of single readings."""

import math

import torch

from torchcaps.votes.algebra import Moments, Votes
from torchcaps.votes.backends import BACKENDS
from torchcaps.votes.dense import DenseProducts
from torchcaps.votes.native import build
from torchcaps.votes.native.blocks import Blocks
from torchcaps.votes.native.products import NativeProducts


def with_factors(votes):
    """Votes that are there, with factors for their gradient."""
    return Votes(DenseProducts(votes), votes)


class NativeVotes(Votes):
    """Native votes of poses [*b i e] and matrices [i j k c], read in the usual order of examples."""

    def __init__(self, poses, weight):
        self.leading = poses.shape[:-2]
        rows = math.prod(self.leading)
        inner, columns = weight.shape[2:]
        geometry = build.Geometry(poses.shape[-1] // inner, inner, columns)
        lanes = build.widest(poses.dtype)
        self.blocks = Blocks(rows, None, lanes)
        library = build.library(geometry, poses.dtype, lanes)
        assert not isinstance(library, str), library
        laid = self.arrange(poses)
        self.inner = Votes(NativeProducts(library, geometry, laid, weight))
        self.shape = torch.Size((*poses.shape[:-1], weight.shape[1], geometry.out_dim))
        self.dtype, self.device = poses.dtype, poses.device

    def arrange(self, values):
        return self.blocks.arrange(values.reshape(-1, *values.shape[len(self.leading) :]))

    def restore(self, values):
        return self.blocks.restore(values).reshape(*self.leading, *values.shape[2:])

    def combine(self, weights):
        return self.restore(self.inner.combine(self.arrange(weights.expand(self.shape[:-1]))))

    def agree(self, centers, before=None):
        before = None if before is None else self.arrange(before)
        return self.restore(self.inner.agree(self.arrange(self._beside(centers)), before))

    def distances(self, means, precisions=None, offset=None):
        given = [None if each is None else self.arrange(each) for each in (means, precisions, offset)]
        return self.restore(self.inner.distances(*given))

    def moments(self, weights, near=None):
        near = None if near is None else self.arrange(self._beside(near))
        found = self.inner.moments(self.arrange(weights.expand(self.shape[:-1])), near)

        def spread(about):
            return self.restore(found.spread(self.arrange(self._beside(about))))

        return Moments(self.restore(found.masses), self.restore(found.sums), spread)

    def centered(self, mask, pairs=None):
        assert pairs is None
        inner, pivot = self.inner.centered(None if mask is None else self.arrange(mask))
        other = object.__new__(NativeVotes)
        other.__dict__.update(self.__dict__, inner=inner)
        return other, self.restore(pivot)


def planned(layer, children, learning=True):
    """The backend that a layer takes, found out by letting it run."""
    with torch.set_grad_enabled(learning):
        layer(children)
        return layer.plan(children).backend


__all__ = ["BACKENDS", "NativeVotes", "planned", "with_factors"]
