"""Reductions of votes as autograd functions, shared by all backends."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchcaps._core.precision import without_autocast
from torchcaps.votes.bounds import largest
from torchcaps.votes.gradients import GradientFactors, refuse_second_derivatives
from torchcaps.votes.products import Products, Sums


class Open(torch.autograd.Function):
    """Returns a key that all reductions take; its backward pass comes after theirs, and evaluates the factors."""

    @staticmethod
    def forward(ctx: Any, products: Products, factors: GradientFactors, *sources: Tensor) -> Tensor:
        ctx.products, ctx.factors = products, factors
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*sources)  # detects changes in between
        return sources[0].new_empty(())  # nobody reads it

    @staticmethod
    @without_autocast
    def backward(ctx: Any, _: Tensor | None) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        entries = ctx.factors.take()
        if not entries:
            return (None,) * (2 + len(ctx.saved_tensors))
        return None, None, *ctx.products.collected(entries)


class Combine(torch.autograd.Function):
    """Sum_i x_ij u_j|i; on request also the masses and the squared deviations from the mean."""

    @staticmethod
    def forward(
        ctx: Any,
        key: Tensor,
        weights: Tensor,
        products: Products,
        factors: GradientFactors,
        origin: Tensor | None,
        near: Tensor | None = None,
        squares: bool = False,
        bound: bool = False,
    ) -> tuple[Tensor | None, ...]:
        ctx.products, ctx.factors, ctx.squares, ctx.bound = products, factors, squares, bound
        ctx.set_materialize_grads(False)
        saved = products.factors(weights) or (weights, None)
        if not squares:
            ctx.save_for_backward(*saved, origin, None, *products.sources)
            first = products.sums(weights, origin, first=True).first
            assert first is not None
            return None, first, None, None
        place = origin if near is None else near if origin is None else near + origin
        masses, first, means, scatter = products.moments(weights, place)
        if near is not None:
            first = torch.addcmul(first, near, masses.unsqueeze(-1))
            relative = means + near
        else:
            relative = means
        middle = means if place is None else means + place
        ctx.save_for_backward(*saved, middle, relative, *products.sources)
        ctx.mark_non_differentiable(relative)
        return masses, first, scatter, relative

    @staticmethod
    @without_autocast
    def backward(
        ctx: Any, for_masses: Tensor | None, for_sums: Tensor | None, for_scatter: Tensor | None, _: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        weights, of_children, place, means, *_rest = ctx.saved_tensors
        if ctx.needs_input_grad[0] and not (for_sums is None and for_scatter is None):
            if of_children is not None:
                weights = ctx.products.weigh(weights, of_children)
            # With v = u - mean, the votes are v + mean, and the squares are v^2 whatever the mean does: Sum_i x v = 0.
            scaled = None if for_scatter is None else for_scatter + for_scatter
            ctx.factors.add(weights, plain=for_sums, scaled=scaled, means=None if scaled is None else place)
        result = None
        if ctx.needs_input_grad[1]:
            offset = for_masses
            if ctx.squares and for_sums is not None:
                along = (for_sums * means).sum(-1)
                offset = along if offset is None else offset + along
            if for_sums is None and for_scatter is None:
                result = None if offset is None else offset.unsqueeze(-2).expand(weights.shape)
            else:
                result = ctx.products.inner(for_sums, for_scatter, offset, place)
                if ctx.bound:
                    most = largest(result.dtype)
                    result.clamp_(-most, most)
        return None, result, *(None,) * 6


class Inner(torch.autograd.Function):
    """Sum_d (y_j v + z_j v^2) + offset_j + before_ij, with v = u_j|i - m_j; one of y and z is None."""

    @staticmethod
    def forward(
        ctx: Any,
        key: Tensor,
        means: Tensor | None,
        linear: Tensor | None,
        squared: Tensor | None,
        offset: Tensor | None,
        products: Products,
        factors: GradientFactors,
        origin: Tensor | None,
        before: Tensor | None,
    ) -> Tensor:
        ctx.products, ctx.factors = products, factors
        place = origin if means is None else means if origin is None else means + origin
        ctx.save_for_backward(linear, squared, place, *products.sources)
        found = products.inner(linear, squared, offset, place)
        return found if before is None else found.add_(before)

    @staticmethod
    @without_autocast
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        linear, squared, place, *_ = ctx.saved_tensors
        needs = ctx.needs_input_grad
        double = None if squared is None else squared + squared
        if needs[0]:
            ctx.factors.add(gradient, plain=linear, scaled=double, means=None if double is None else place)
        found = Sums()
        if any(needs[1:5]):
            found = ctx.products.sums(
                gradient, place, masses=bool(needs[4]), first=bool(needs[1] or needs[2]), second=bool(needs[3])
            )
        for_means = None
        if needs[1]:
            assert double is not None
            assert found.first is not None
            for_means = (double * found.first).neg_()
        for_linear = found.first if needs[2] else None
        for_before = gradient if needs[8] else None
        return None, for_means, for_linear, found.second, found.masses, None, None, None, for_before


class Spread(torch.autograd.Function):
    """Squared deviations from a center m, from those from the mean: scatter + mass (m - mean)^2.

    The gradient treats the mean as sums / mass, written so that nothing is divided by a mass that may be nearly zero.
    """

    @staticmethod
    def forward(ctx: Any, scatter: Tensor, masses: Tensor, sums: Tensor, about: Tensor, means: Tensor) -> Tensor:
        apart = about - means
        ctx.save_for_backward(masses, about, means, apart)
        return torch.addcmul(scatter, masses.unsqueeze(-1), apart * apart)

    @staticmethod
    @without_autocast
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        masses, about, means, apart = ctx.saved_tensors
        half = gradient * apart
        for_sums = (half + half).neg_()
        for_masses = (half * (about + means)).sum(-1) if ctx.needs_input_grad[1] else None
        for_about = -for_sums * masses.unsqueeze(-1) if ctx.needs_input_grad[3] else None
        return gradient, for_masses, for_sums, for_about, None
