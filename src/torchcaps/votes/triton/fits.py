"""Formulas on parents as autograd functions: one launch forwards and one back, where torch takes a dozen or more."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchcaps._core.precision import without_autocast
from torchcaps.votes.bounds import largest
from torchcaps.votes.gradients import refuse_second_derivatives

NUMBERS = 256  # that a program holds, of each array: with more, registers spill or few programs fit


class Prior(NamedTuple):
    """The log prior of EM routing: log logistic(scale (ACTIVE beta_active - cost)), for an iteration.

    scale: temperature ANNEALING exp(gain). cost: Sum_d (beta_use + log(variance) / 2), times the mass if MASSIVE.
    """

    beta_use: Tensor  # [j 1], or [j d]
    beta_active: Tensor  # [j]
    temperature: Tensor  # []
    gain: Tensor | None  # []
    ANNEALING: float
    ACTIVE: float
    MASSIVE: bool


class Floors(NamedTuple):
    """What is added to masses and variances, and the fraction of the mean before in the new one."""

    MASS_FLOOR: float
    VARIANCE_FLOOR: float
    DAMPING: float = 0.0


def fit(
    masses: Tensor,
    sums: Tensor,
    scatter: Tensor,
    middle: Tensor,
    origin: Tensor | None,
    previous: Tensor | None,
    floors: Floors,
    prior: Prior | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Masses [*b j], means and variances [*b j d] and the log prior [*b j] (None without `prior`) of parents.

    masses, sums, scatter, middle: of votes, the scatter about `middle`. origin [*b j d]: where the floor of masses is
    a mass; None: at zero. previous: the means before. Gradients of results saturate: `bounds`.
    """
    learned = (None,) * 3 if prior is None else (prior.beta_use, prior.beta_active, prior.gain)
    found: tuple[Tensor, Tensor, Tensor, Tensor | None] = Fit.apply(
        masses, sums, scatter, previous, *learned, middle, origin, floors, prior
    )
    return found


class Fit(torch.autograd.Function):
    """See `fit`."""

    saturates = True

    @staticmethod
    def forward(
        ctx: Any,
        masses: Tensor,
        sums: Tensor,
        scatter: Tensor,
        previous: Tensor | None,
        beta_use: Tensor | None,
        beta_active: Tensor | None,
        gain: Tensor | None,
        middle: Tensor,
        origin: Tensor | None,
        floors: Floors,
        prior: Prior | None,
    ) -> tuple[Tensor | None, ...]:
        ctx.set_materialize_grads(False)
        previous = previous if floors.DAMPING else None
        temperature = None if prior is None else prior.temperature
        given = (masses, sums, scatter, middle, origin, previous, beta_use, beta_active, temperature, gain)
        laid = tuple(None if each is None else each.contiguous() for each in given)
        ctx.flags = {
            **floors._asdict(),
            "ORIGIN": origin is not None,
            "PREVIOUS": previous is not None,
            "PRIOR": prior is not None,
            "ANNEALING": 1.0 if prior is None else prior.ANNEALING,
            "ACTIVE": 1.0 if prior is None else prior.ACTIVE,
            "GAIN": gain is not None,
            "MASSIVE": prior is not None and prior.MASSIVE,
            "WIDE": beta_use is not None and beta_use.shape[-1] > 1,
        }
        made = (
            torch.empty_like(masses, memory_format=torch.contiguous_format),
            *(torch.empty_like(sums, memory_format=torch.contiguous_format) for _ in range(2)),
            None if prior is None else torch.empty_like(masses, memory_format=torch.contiguous_format),
        )
        ctx.save_for_backward(*laid)
        _launch("fit_kernel", sums, (*laid, *made), (masses.shape[-1],), **ctx.flags)
        return made

    @staticmethod
    @without_autocast
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        laid = ctx.saved_tensors
        masses, sums, scatter, _, _, previous, beta_use, beta_active, _, gain = laid
        if all(each is None for each in gradients):
            return (None,) * 11
        given = [None if each is None else each.contiguous() for each in gradients]
        damped = previous is not None and ctx.needs_input_grad[3]
        learned = given[3] is not None and any(ctx.needs_input_grad[4:7])
        made = (
            *map(torch.empty_like, (masses, sums, scatter)),
            torch.empty_like(sums) if damped else None,
            masses.new_empty(3 if gain is not None else 2, *masses.shape) if given[3] is not None else None,
        )
        _launch(
            "fit_back_kernel",
            sums,
            (*laid, *given, *made),
            (masses.shape[-1],),
            **ctx.flags,
            **dict(zip(GIVEN, (each is not None for each in given), strict=True)),
            FOR_PREVIOUS=damped,
            MOST=largest(sums.dtype),
        )
        for_betas: list[Tensor | None] = [None, None, None]
        if learned:
            assert made[4] is not None
            total = made[4].flatten(1, -2).sum(1)  # [2 j]
            for_betas[0] = total[1].unsqueeze(-1).expand(beta_use.shape).to(beta_use.dtype)
            for_betas[1] = total[0].to(beta_active.dtype)
            for_betas[2] = None if gain is None else total[2].sum().to(gain.dtype)
        return *made[:4], *for_betas, None, None, None, None


GIVEN = ("OF_WHOLES", "OF_MEANS", "OF_VARIANCES", "OF_PRIOR")


class Density(torch.autograd.Function):
    """Precisions [*b j d] and the number beside them [*b j] of the log-density of Gaussians with these variances.

    They are -sharpness / 2 variance and offset - sharpness (Sum_d log(variance) / 2 + constant).
    """

    @staticmethod
    def forward(
        ctx: Any, variances: Tensor, offset: Tensor, sharpness: float, constant: float
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        laid = variances.contiguous()
        ctx.sharpness = sharpness
        ctx.save_for_backward(laid)
        made = torch.empty_like(laid), torch.empty_like(offset, memory_format=torch.contiguous_format)
        _launch("density_kernel", laid, (laid, offset.contiguous(), *made), SHARPNESS=sharpness, CONSTANT=constant)
        return made

    @staticmethod
    @without_autocast
    def backward(
        ctx: Any, of_precisions: Tensor | None, of_beside: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None, None, None]:
        refuse_second_derivatives()
        (variances,) = ctx.saved_tensors
        if of_precisions is None and of_beside is None:
            return None, None, None, None
        given = [None if each is None else each.contiguous() for each in (of_precisions, of_beside)]
        found = torch.empty_like(variances)
        flags = {"OF_PRECISIONS": of_precisions is not None, "OF_BESIDE": of_beside is not None}
        _launch("density_back_kernel", variances, (variances, *given, found), (), **flags, SHARPNESS=ctx.sharpness)
        return found, of_beside, None, None


def _launch(
    name: str, like: Tensor, arrays: tuple[Tensor | None, ...], sizes: tuple[int, ...] = (), **flags: float
) -> None:
    import triton.language as tl

    from torchcaps.votes.triton import mixture

    size = like.shape[-1]
    rows = like.numel() // max(1, size)
    if not rows:
        return
    wide = 1 << (size - 1).bit_length()
    high = max(1, NUMBERS // wide)
    kernel: Any = getattr(mixture, name)
    filled = [like if each is None else each for each in arrays]  # what a flag says is not there is not read
    precision = tl.float64 if like.dtype == torch.float64 else tl.float32
    kernel[(-(-rows // high),)](*filled, rows, *sizes, **flags, SIZE=size, D2=wide, BN=high, ACC=precision)
