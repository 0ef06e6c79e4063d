"""Differentiable functions: safe length, division and logarithm, squash and its variants, and reductions of votes.

Reductions accept votes in any memory order. They are fastest if the parent axis has a larger stride than the child
axis.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import softplus

from torchcaps._core.errors import check_choice, check_range
from torchcaps._core.precision import HALVES
from torchcaps._core.types import Couplings
from torchcaps.votes.algebra import Moments, Votes, as_votes
from torchcaps.votes.layout import eager, mass_of, over_axis


def length(vectors: Float[Tensor, "*b d"]) -> Float[Tensor, "*b"]:
    """Euclidean length of vectors [*b d] over the last axis, [*b]. Its gradient at the zero vector is zero, not NaN."""
    if vectors.ndim > 1 and vectors.is_floating_point() and eager() and vectors.stride(-1) != 1:
        found: Tensor = _Length.apply(vectors)
        return found
    return torch.linalg.vector_norm(vectors, dim=-1)


class _Length(torch.autograd.Function):
    """The length for a last axis that is not contiguous, for which torch's own function is thirty times slower."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor) -> Tensor:
        lengths = over_axis(torch.sum, vectors * vectors, -1).sqrt_().squeeze(-1)
        ctx.save_for_backward(vectors, lengths)
        return lengths

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        vectors, lengths = ctx.saved_tensors
        nothing = lengths == 0
        factors = gradient.masked_fill(nothing, 0) / lengths.masked_fill(nothing, 1)
        return vectors * factors.unsqueeze(-1)


def safe_divide(numerator: Tensor, denominator: Tensor) -> Tensor:
    """numerator / denominator, or the numerator itself where the denominator is zero up to rounding.

    A denominator of zero gives neither NaN nor infinity. In float32, denominators below about 1e-31 in absolute value
    count as zero, because gradients contain 1 / denominator.
    """
    limits = torch.finfo(denominator.dtype)
    nothing = denominator.abs() < limits.tiny / limits.eps
    return numerator / torch.where(nothing, torch.ones_like(denominator), denominator)


def safe_log(values: Tensor) -> Tensor:
    """The logarithm of values; minus infinity at zero and below, with gradient zero (torch.log gives infinity)."""
    positive = values > 0
    return torch.where(positive, values, torch.ones_like(values)).log().masked_fill(~positive, -math.inf)


def unit(vectors: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
    """Scale vectors [*b d] to length one. The zero vector stays zero."""
    return safe_divide(vectors, length(vectors).unsqueeze(-1))


class Squash(NamedTuple):
    """A squash v = gain(n) s with n = |s|, and the convex potential whose gradient it is.

    gain: the factor as a function of the length n. potential: a function of n with derivative n gain(n).
    """

    gain: Callable[[Tensor], Tensor]
    potential: Callable[[Tensor], Tensor]


def _ratio_at_zero_one(numerator: Tensor, lengths: Tensor) -> Tensor:
    """numerator / lengths, whose limit at zero is one. Also one up to epsilon, where 1 / length might overflow."""
    some = lengths > torch.finfo(lengths.dtype).eps
    return torch.where(some, numerator / torch.where(some, lengths, torch.ones_like(lengths)), torch.ones_like(lengths))


def _rational_square(constant: float) -> Squash:
    """n^2 / (constant + n^2), the form of Sabour 2017 eq. 1 (constant 1) and of Su Jianlin (constant 1/2)."""
    root = math.sqrt(constant)
    return Squash(lambda n: n / (constant + n * n), lambda n: n - root * torch.arctan(n / root))


SQUASHES: dict[str, Squash] = {
    "quadratic": _rational_square(1.0),
    "half": _rational_square(0.5),
    "exponential": Squash(lambda n: _ratio_at_zero_one(-torch.expm1(-n), n), lambda n: n + torch.expm1(-n)),
    "tanh": Squash(lambda n: _ratio_at_zero_one(torch.tanh(n), n), lambda n: n + softplus(-2 * n) - math.log(2)),
    "rational": Squash(lambda n: 1 / (1 + n), lambda n: n - torch.log1p(n)),
    "none": Squash(torch.ones_like, lambda n: n * n / 2),
}


CONSTANTS = {"quadratic": 1.0, "half": 0.5}  # of n^2 / (constant + n^2), which GPUs have a kernel for
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def _has_kernels(vectors: Tensor) -> bool:
    """Can kernels compute on these vectors?"""
    from torchcaps.votes.triton import backend

    usable = eager() and vectors.is_floating_point() and backend.serves(vectors.device) and backend.is_installed()
    return usable and type(vectors) in (Tensor, nn.Parameter)


def squash(vectors: Float[Tensor, "*b d"], kind: str = "quadratic") -> Float[Tensor, "*b d"]:
    """Shorten vectors [*b d] to a length below one and keep their direction.

    kind: how the length n before determines the length after: n^2/(1+n^2) for "quadratic" (Sabour 2017 eq. 1),
    n^2/(1/2+n^2) for "half", 1-exp(-n) for "exponential" (Efficient-CapsNet), tanh(n) for "tanh", n/(1+n) for
    "rational", n for "none".
    """
    check_choice("squash", "kind", kind, list(SQUASHES))
    wide = vectors.float() if vectors.dtype in HALVES else vectors  # a half's square is infinite from 256 on
    constant = CONSTANTS.get(kind)
    if constant is not None and (wide.device.type != "cpu" or INTERPRETED) and _has_kernels(wide):
        from torchcaps.votes.triton.squash import Squashed

        short: Tensor = Squashed.apply(wide, constant)
        return short.to(vectors.dtype)
    return (wide * SQUASHES[kind].gain(length(wide)).unsqueeze(-1)).to(vectors.dtype)


def squash_potential(lengths: Float[Tensor, "*b"], kind: str = "quadratic") -> Float[Tensor, "*b"]:
    """The convex function of a vector's length whose gradient is `squash`: n - arctan(n) for "quadratic".

    lengths: of the vectors before the squash, [*b]. kind: as in `squash`.
    """
    check_choice("squash_potential", "kind", kind, list(SQUASHES))
    return SQUASHES[kind].potential(lengths)


def mass(weights: Couplings) -> Float[Tensor, "*b j"]:
    """The mass of each parent [*b j]: Sum_i w_ij, for weights [*b i j]."""
    return mass_of(weights)


def combine(weights: Couplings, votes: Float[Tensor, "*b i j d"] | Votes) -> Float[Tensor, "*b j d"]:
    """The weighted sum of the votes for each parent [*b j d]: s_j = Sum_i w_ij u_j|i.

    weights: couplings times child weights, [*b i j]. votes: [*b i j d].
    """
    return as_votes(votes).combine(weights)


def agree(
    votes: Float[Tensor, "*b i j d"] | Votes, centers: Float[Tensor, "*b j d"], before: Couplings | None = None
) -> Couplings:
    """The agreement of each vote with its parent, the inner product <u_j|i, v_j>, [*b i j].

    votes: [*b i j d]. centers: one vector for each parent, [*b j d]. before: scores [*b i j] that agreements are added
    to, if any; faster than adding them afterwards.
    """
    return as_votes(votes).agree(centers, before)


def moments(
    weights: Couplings, votes: Float[Tensor, "*b i j d"] | Votes, near: Float[Tensor, "*b j d"] | None = None
) -> Moments:
    """The mass, the sum and the squared deviations of the votes for each parent.

    weights: couplings times child weights, [*b i j]. votes: [*b i j d]. near: an estimate of the means [*b j d], about
    which squares are accumulated without loss of precision; it does not change the result otherwise.
    """
    return as_votes(votes).moments(weights, near)


def spread(
    weights: Couplings, votes: Float[Tensor, "*b i j d"] | Votes, means: Float[Tensor, "*b j d"]
) -> Float[Tensor, "*b j d"]:
    """The weighted sum of squared deviations from a mean, for each dimension: Sum_i w_ij (u_j|i - m_j)^2, [*b j d].

    weights: couplings times child weights, [*b i j]. votes: [*b i j d]. means: one for each parent, [*b j d].
    """
    return as_votes(votes).spread(weights, means)


def distances(
    votes: Float[Tensor, "*b i j d"] | Votes,
    means: Float[Tensor, "*b j d"],
    precisions: Float[Tensor, "*b j d"] | None = None,
    offset: Float[Tensor, "*b j"] | None = None,
) -> Couplings:
    """The squared distance of each vote from a mean, weighted by precisions: Sum_d p_j (u_j|i - m_j)^2, [*b i j].

    votes: [*b i j d]. means: one for each parent, [*b j d]. precisions: a factor for each dimension, [*b j d]; one if
    left out. offset: a number for each parent, [*b j], that is added.
    """
    return as_votes(votes).distances(means, precisions, offset)


def self_pooling(points: Float[Tensor, "*b i d"], iterations: int = 3) -> Float[Tensor, "*b d"]:
    """Pool points [*b i d] into the x with x = Sum_i softmax_i<x, x_i> x_i, starting from their mean.

    The smallest case of routing: one parent, many children, no learned weight. iterations: fixed-point iterations; 0
    returns the mean.
    """
    check_range("self_pooling", "iterations", iterations, 0)
    pooled = points.mean(-2)
    for _ in range(iterations):
        attention = torch.einsum("...id,...d->...i", points, pooled).softmax(-1)
        pooled = torch.einsum("...i,...id->...d", attention, points)
    return pooled
