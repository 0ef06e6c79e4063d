"""Kernels of formulas on parents: a Gaussian for each from the moments of its votes, and its terms of a log-density.

A row is a parent of an example (or window). A program computes BN rows of SIZE dimensions, padded to D2, from moments
to log prior, and going back from their gradients to those of moments. See `fits`; `routing/gaussian.py` and
`routing/em.py` have the formulas.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _places(rows, SIZE: tl.constexpr, D2: tl.constexpr, BN: tl.constexpr):
    """The rows [BN] and columns [D2] of a program, the places of their numbers [BN D2], and which of them there are."""
    row, column = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN), tl.arange(0, D2)
    there = (row[:, None] < rows) & (column[None, :] < SIZE)
    return row, column, row[:, None] * SIZE + column[None, :], there


@triton.jit
def _clamped(values, MOST: tl.constexpr):
    """Values between -MOST and MOST; NaN stays NaN."""
    return tl.where(values > MOST, MOST, tl.where(values < -MOST, -MOST, values))


@triton.jit
def _log1p(e):
    """log(1 + e) to the last bits, for e from 0 to 1."""
    u = 1.0 + e
    return tl.where(u == 1.0, e, tl.log(u) * e / tl.where(u == 1.0, 1.0, u - 1.0))


@triton.jit
def _row_of(values, row, rows, ACC: tl.constexpr):
    return tl.load(values + row, mask=row < rows, other=0.0).to(ACC)


@triton.jit
def _fitted(
    masses, sums, scatter, middle, origin, previous, row, place, there, rows,
    MASS_FLOOR: tl.constexpr, VARIANCE_FLOOR: tl.constexpr, DAMPING: tl.constexpr,
    ORIGIN: tl.constexpr, PREVIOUS: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """The mass with its floor, the mean before and after damping, its distance from the votes' mean, and variances."""
    mass = tl.load(masses + row, mask=row < rows, other=1.0).to(ACC)
    whole = mass + MASS_FLOOR
    total = tl.load(sums + place, mask=there, other=0.0).to(ACC)
    if ORIGIN:
        total += MASS_FLOOR * tl.load(origin + place, mask=there, other=0.0).to(ACC)
    undamped = total / whole[:, None]
    mean = undamped
    if DAMPING != 0:
        mean = (1 - DAMPING) * undamped
        if PREVIOUS:
            mean += DAMPING * tl.load(previous + place, mask=there, other=0.0).to(ACC)
    apart = mean - tl.load(middle + place, mask=there, other=0.0).to(ACC)
    spread = tl.load(scatter + place, mask=there, other=0.0).to(ACC) + mass[:, None] * apart * apart
    return mass, whole, undamped, mean, apart, spread / whole[:, None], spread / whole[:, None] + VARIANCE_FLOOR


@triton.jit
def _logit(
    variance, whole, beta_use, beta_active, temperature, gain, row, column, there, parents,
    ANNEALING: tl.constexpr, ACTIVE: tl.constexpr, GAIN: tl.constexpr, MASSIVE: tl.constexpr, WIDE: tl.constexpr,
    SIZE: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """scale (active - cost), with its scale and the cost before it is multiplied by the mass."""
    j = row % parents
    if WIDE:
        use = tl.load(beta_use + j[:, None] * SIZE + column[None, :], mask=there, other=0.0).to(ACC)
    else:
        use = tl.load(beta_use + j).to(ACC)[:, None]
    each = tl.sum(tl.where(there, use + 0.5 * tl.log(tl.where(there, variance, 1.0)), 0.0), axis=1)
    scale = tl.load(temperature).to(ACC) * ANNEALING
    if GAIN:
        scale *= tl.exp(tl.load(gain).to(ACC))
    cost = each * whole if MASSIVE else each
    return scale * (ACTIVE * tl.load(beta_active + j).to(ACC) - cost), scale, each


@triton.jit
def fit_kernel(
    masses, sums, scatter, middle, origin, previous, beta_use, beta_active, temperature, gain,
    wholes, means, variances, prior, rows, parents,
    MASS_FLOOR: tl.constexpr, VARIANCE_FLOOR: tl.constexpr, DAMPING: tl.constexpr, ORIGIN: tl.constexpr,
    PREVIOUS: tl.constexpr, PRIOR: tl.constexpr, ANNEALING: tl.constexpr, ACTIVE: tl.constexpr, GAIN: tl.constexpr,
    MASSIVE: tl.constexpr, WIDE: tl.constexpr,
    SIZE: tl.constexpr, D2: tl.constexpr, BN: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Masses, means, variances and (PRIOR) the log prior of EM routing, from the moments of votes."""
    row, column, place, there = _places(rows, SIZE, D2, BN)
    _mass, whole, _undamped, mean, _apart, _share, variance = _fitted(
        masses, sums, scatter, middle, origin, previous, row, place, there, rows,
        MASS_FLOOR, VARIANCE_FLOOR, DAMPING, ORIGIN, PREVIOUS, ACC,
    )  # fmt: skip
    tl.store(wholes + row, whole, mask=row < rows)
    tl.store(means + place, mean, mask=there)
    tl.store(variances + place, variance, mask=there)
    if PRIOR:
        logit, _scale, _each = _logit(
            variance, whole, beta_use, beta_active, temperature, gain, row, column, there, parents,
            ANNEALING, ACTIVE, GAIN, MASSIVE, WIDE, SIZE, ACC,
        )  # fmt: skip
        low = tl.where(logit < 0, logit, 0.0)
        tl.store(prior + row, low - _log1p(tl.exp(-tl.abs(logit))), mask=row < rows)


@triton.jit
def fit_back_kernel(
    masses, sums, scatter, middle, origin, previous, beta_use, beta_active, temperature, gain,
    of_wholes, of_means, of_variances, of_prior, for_masses, for_sums, for_scatter, for_previous, for_learned,
    rows, parents,
    MASS_FLOOR: tl.constexpr, VARIANCE_FLOOR: tl.constexpr, DAMPING: tl.constexpr, ORIGIN: tl.constexpr,
    PREVIOUS: tl.constexpr, PRIOR: tl.constexpr, ANNEALING: tl.constexpr, ACTIVE: tl.constexpr, GAIN: tl.constexpr,
    MASSIVE: tl.constexpr, WIDE: tl.constexpr,
    OF_WHOLES: tl.constexpr, OF_MEANS: tl.constexpr, OF_VARIANCES: tl.constexpr, OF_PRIOR: tl.constexpr,
    FOR_PREVIOUS: tl.constexpr, MOST: tl.constexpr,
    SIZE: tl.constexpr, D2: tl.constexpr, BN: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Gradients of what `fit_kernel` takes. for_learned: beta_active, beta_use and gain of each row, to be added up.

    Gradients of masses, means, variances and log prior saturate at MOST, as those of all clusters do.
    """
    row, column, place, there = _places(rows, SIZE, D2, BN)
    mass, whole, undamped, mean, apart, share, variance = _fitted(
        masses, sums, scatter, middle, origin, previous, row, place, there, rows,
        MASS_FLOOR, VARIANCE_FLOOR, DAMPING, ORIGIN, PREVIOUS, ACC,
    )  # fmt: skip
    to_whole = tl.zeros((BN,), dtype=ACC)
    to_variance = tl.zeros((BN, D2), dtype=ACC)
    if OF_WHOLES:
        to_whole += _row_of(of_wholes, row, rows, ACC)
    if OF_VARIANCES:
        to_variance += tl.load(of_variances + place, mask=there, other=0.0).to(ACC)
    if OF_PRIOR:
        logit, scale, each = _logit(
            variance, whole, beta_use, beta_active, temperature, gain, row, column, there, parents,
            ANNEALING, ACTIVE, GAIN, MASSIVE, WIDE, SIZE, ACC,
        )  # fmt: skip
        small = tl.exp(-tl.abs(logit))
        slope = tl.where(logit < 0, 1.0, small) / (1.0 + small)
        to_logit = _clamped(_row_of(of_prior, row, rows, ACC), MOST) * slope
        to_cost = -scale * to_logit
        to_each = to_cost
        if MASSIVE:
            to_whole += to_cost * each
            to_each = to_cost * whole
        to_variance += to_each[:, None] * 0.5 / tl.where(there, variance, 1.0)
        tl.store(for_learned + row, -ACTIVE * to_cost, mask=row < rows)
        tl.store(for_learned + rows + row, to_each * (1 if WIDE else SIZE), mask=row < rows)
        if GAIN:
            tl.store(for_learned + 2 * rows + row, to_logit * logit, mask=row < rows)
    to_variance = tl.where(there, _clamped(to_variance, MOST), 0.0)
    to_spread = to_variance / whole[:, None]
    to_whole -= tl.sum(to_spread * share, axis=1)
    half = to_spread * apart
    to_mean = 2.0 * half * mass[:, None]
    if OF_MEANS:
        to_mean += tl.load(of_means + place, mask=there, other=0.0).to(ACC)
    to_mean = tl.where(there, _clamped(to_mean, MOST), 0.0)
    if FOR_PREVIOUS:
        tl.store(for_previous + place, DAMPING * to_mean, mask=there)
    to_total = (1 - DAMPING) * to_mean / whole[:, None]
    to_whole -= tl.sum(to_total * undamped, axis=1)
    # With m the votes' mean, squares about the mean are scatter + mass (mean - m)^2: as in `readings.Spread`.
    to_mass = _clamped(to_whole, MOST) + tl.sum(half * (2.0 * mean - apart), axis=1)
    tl.store(for_masses + row, to_mass, mask=row < rows)
    tl.store(for_sums + place, to_total - 2.0 * half, mask=there)
    tl.store(for_scatter + place, to_spread, mask=there)


@triton.jit
def density_kernel(
    variances, offset, precisions, beside, rows,
    SHARPNESS: tl.constexpr, CONSTANT: tl.constexpr,
    SIZE: tl.constexpr, D2: tl.constexpr, BN: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """-SHARPNESS / 2 variance, and offset - SHARPNESS (Sum_d log(variance) / 2 + CONSTANT)."""
    row, _column, place, there = _places(rows, SIZE, D2, BN)
    variance = tl.load(variances + place, mask=there, other=1.0).to(ACC)
    tl.store(precisions + place, -SHARPNESS / 2 / variance, mask=there)
    logarithm = 0.5 * tl.sum(tl.log(variance), axis=1)
    tl.store(beside + row, _row_of(offset, row, rows, ACC) - SHARPNESS * (logarithm + CONSTANT), mask=row < rows)


@triton.jit
def density_back_kernel(
    variances, of_precisions, of_beside, found, rows,
    OF_PRECISIONS: tl.constexpr, OF_BESIDE: tl.constexpr, SHARPNESS: tl.constexpr,
    SIZE: tl.constexpr, D2: tl.constexpr, BN: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """The gradient of variances."""
    row, _column, place, there = _places(rows, SIZE, D2, BN)
    variance = tl.load(variances + place, mask=there, other=1.0).to(ACC)
    total = tl.zeros((BN, D2), dtype=ACC)
    if OF_PRECISIONS:
        total += tl.load(of_precisions + place, mask=there, other=0.0).to(ACC) / variance
    if OF_BESIDE:
        total -= _row_of(of_beside, row, rows, ACC)[:, None]
    tl.store(found + place, SHARPNESS / 2 * total / variance, mask=there)
