"""Formulas of Gaussian and EM routing that a GPU computes in one launch, and when it may.

The methods of `Gaussian` and `EM` define the formulas. Where votes are made by kernels (`votes/triton`), parents are
tensors as small as their poses, and dozens of operations on them would take longer to launch than to compute: kernels
compute the same. A method that a subclass or an instance overrides is never replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from torch import Tensor

from torchcaps.votes.algebra import Moments, Votes

Method = TypeVar("Method", bound=Callable[..., Any])


def has_kernel(method: Method) -> Method:
    """Mark a method as one whose formula the kernels contain."""
    method.kernel_of = method  # type: ignore[attr-defined]  # a wrapper may copy attributes, but is another function
    return method


def is_marked(routing: Any, name: str) -> bool:
    """Whether this method of this routing is the one that was marked, not one that overrides it."""
    found = getattr(getattr(routing, name), "__func__", None)
    return found is not None and getattr(found, "kernel_of", None) is found


def why_not_fused(routing: Any) -> str | None:
    """Why kernels do not compute the clusters of this routing, or None if they do."""
    if routing.covariance != "diagonal":
        return f"covariance is {routing.covariance!r}, not 'diagonal'"
    return None if is_marked(routing, "_damp") else f"{type(routing).__name__} has its own _damp"


def why_no_prior(routing: Any) -> str | None:
    """Why the kernel leaves the log prior to `_log_prior`, or None if it computes it."""
    if not is_marked(routing, "_log_prior"):
        return f"{type(routing).__name__} has its own _log_prior"
    return "it is a share of the mass of all parents" if getattr(routing, "variant", 1) == 1 else None


def fused_fit(
    routing: Any, found: Moments, origin: Tensor | None, before: Tensor | None, step: int
) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
    """Masses, means, variances and log prior of an M-step by a kernel; None where it must not compute them."""
    if not found.by_kernels or why_not_fused(routing) is not None:
        return None
    from torchcaps.votes.triton.fits import Floors, Prior, fit

    prior = None
    if why_no_prior(routing) is None:
        prior = Prior(
            routing.beta_use, routing.beta_active, routing.inverse_temperature, routing.log_gain,
            routing.annealing(step), routing.beta_active_scale, routing.variant == 4,
        )  # fmt: skip
    floors = Floors(routing.mass_floor, routing.variance_floor, float(getattr(routing, "damping", 0.0)))
    assert found.scatter is not None
    assert found.means is not None
    given = (found.masses, found.sums, found.scatter, found.means, origin, origin if before is None else before)
    masses, means, variances, log_prior = fit(*given, floors, prior)
    return masses, means, variances, routing._log_prior(masses, variances, step) if log_prior is None else log_prior


def fused_density(
    votes: Votes | Tensor, variances: Tensor, offset: Tensor | float, sharpness: float, constant: float
) -> tuple[Tensor, Tensor] | None:
    """The precisions and the number beside them that a log-density reads votes with, by a kernel, where it may."""
    if not isinstance(votes, Votes) or not votes.by_kernels or not isinstance(offset, Tensor):
        return None
    if offset.shape != variances.shape[:-1] or offset.dtype != variances.dtype:
        return None
    from torchcaps.votes.triton.fits import Density

    terms: tuple[Tensor, Tensor] = Density.apply(variances, offset, sharpness, constant)
    return terms
