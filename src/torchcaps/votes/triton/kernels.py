"""Kernels that make votes in registers, read them at once and never write one.

A program makes the votes of BN examples (or windows) and BI children for one parent, [BN BI ROWS COLS]: each of ROWS
rows of INNER numbers of a pose times a matrix [INNER COLS]. R2, K2 and C2 are these sizes, padded to powers of two. A
result is written by one program, which adds in a fixed order: there are no atomics, and the same numbers come out every
time. Numbers are loaded in their own precision and added up in ACC.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _inside(ROWS: tl.constexpr, COLS: tl.constexpr, R2: tl.constexpr, C2: tl.constexpr):
    """The places of the numbers of a matrix, row by row, [R2 C2], and which of them there are."""
    row, column = tl.arange(0, R2), tl.arange(0, C2)
    return row[:, None] * COLS + column[None, :], (row[:, None] < ROWS) & (column[None, :] < COLS)


@triton.jit
def _pose_places(n, i, examples, children, ROWS: tl.constexpr, INNER: tl.constexpr, R2: tl.constexpr, K2: tl.constexpr):
    """The places of poses [BN BI R2 K2] of examples n [BN] and children i [BI], and which of them there are."""
    within, inside = _inside(ROWS, INNER, R2, K2)
    first = (n.to(tl.int64)[:, None] * children + i[None, :]) * (ROWS * INNER)
    there = (n[:, None] < examples) & (i[None, :] < children)
    return first[:, :, None, None] + within[None, None, :, :], there[:, :, None, None] & inside[None, None, :, :]


@triton.jit
def _places(n, j, count, parents, ROWS: tl.constexpr, COLS: tl.constexpr, R2: tl.constexpr, C2: tl.constexpr, shift=0):
    """The places of matrices [BN R2 C2] in values [count parents (R C)], `shift` rows further on; which there are."""
    within, inside = _inside(ROWS, COLS, R2, C2)
    first = ((n.to(tl.int64) + shift) * parents + j) * (ROWS * COLS)
    return first[:, None, None] + within[None, :, :], (n < count)[:, None, None] & inside[None, :, :]


@triton.jit
def _poses(
    poses, n, i, examples, children,
    ROWS: tl.constexpr, INNER: tl.constexpr, R2: tl.constexpr, K2: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    place, there = _pose_places(n, i, examples, children, ROWS, INNER, R2, K2)
    return tl.load(poses + place, mask=there, other=0.0).to(ACC)


@triton.jit
def _of_parent(
    values, n, j, count, parents,
    ROWS: tl.constexpr, COLS: tl.constexpr, R2: tl.constexpr, C2: tl.constexpr, ACC: tl.constexpr, shift=0,
):  # fmt: skip
    """Vectors of examples n, or weights of children n, for parent j: [BN R2 C2]."""
    place, there = _places(n, j, count, parents, ROWS, COLS, R2, C2, shift)
    return tl.load(values + place, mask=there, other=0.0).to(ACC)


@triton.jit
def _store(
    values, found, n, j, examples, parents,
    ROWS: tl.constexpr, COLS: tl.constexpr, R2: tl.constexpr, C2: tl.constexpr,
):  # fmt: skip
    place, there = _places(n, j, examples, parents, ROWS, COLS, R2, C2)
    tl.store(values + place, found, mask=there)


@triton.jit
def _pairs(pairs, n, i, j, examples, children, along_n, along_i, along_j, ACC: tl.constexpr, shift=0):
    """Numbers [BN BI] of the pairs of children i with parent j in examples n, so many examples further on."""
    place = (n.to(tl.int64) + shift)[:, None] * along_n + i[None, :] * along_i + j * along_j
    return tl.load(pairs + place, mask=(n[:, None] < examples) & (i[None, :] < children), other=0.0).to(ACC)


@triton.jit
def _votes(p, w):
    """Votes [BN BI R2 C2] of poses [BN BI R2 K2] and matrices [BI K2 C2]."""
    return tl.sum(p[:, :, :, :, None] * w[None, :, None, :, :], axis=3)


@triton.jit
def sums_kernel(
    poses, weight, pairs, place, masses, first, second,
    examples, children, matrices, parents, along_n, along_i, along_j,
    PLACE: tl.constexpr, MASSES: tl.constexpr, FIRST: tl.constexpr, SECOND: tl.constexpr,
    ROWS: tl.constexpr, INNER: tl.constexpr, COLS: tl.constexpr,
    R2: tl.constexpr, K2: tl.constexpr, C2: tl.constexpr, BN: tl.constexpr, BI: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Sum_i x, Sum_i x v and Sum_i x v^2 with v = vote - place, [n j] and [n j d]; a program for BN examples and j."""
    n, j = tl.program_id(0) * BN + tl.arange(0, BN), tl.program_id(1)
    mass = tl.zeros((BN,), dtype=ACC)
    one = tl.zeros((BN, R2, C2), dtype=ACC)
    two = tl.zeros((BN, R2, C2), dtype=ACC)
    if PLACE:
        about = _of_parent(place, n, j, examples, parents, ROWS, COLS, R2, C2, ACC)
    for start in range(0, children, BI):
        i = start + tl.arange(0, BI)
        x = _pairs(pairs, n, i, j, examples, children, along_n, along_i, along_j, ACC)
        if MASSES:
            mass += tl.sum(x, axis=1)
        if FIRST or SECOND:
            p = _poses(poses, n, i, examples, children, ROWS, INNER, R2, K2, ACC)
            w = _of_parent(weight, i % matrices, j, matrices, parents, INNER, COLS, K2, C2, ACC)
            v = _votes(p, w)
            if PLACE:
                v -= about[:, None, :, :]
            weighed = x[:, :, None, None] * v
            if FIRST:
                one += tl.sum(weighed, axis=1)
            if SECOND:
                two += tl.sum(weighed * v, axis=1)
    if MASSES:
        tl.store(masses + n.to(tl.int64) * parents + j, mass, mask=n < examples)
    if FIRST:
        _store(first, one, n, j, examples, parents, ROWS, COLS, R2, C2)
    if SECOND:
        _store(second, two, n, j, examples, parents, ROWS, COLS, R2, C2)


@triton.jit
def moments_kernel(
    poses, weight, pairs, place, masses, first, means, scatter,
    examples, children, matrices, parents, along_n, along_i, along_j, least,
    PLACE: tl.constexpr, ROWS: tl.constexpr, INNER: tl.constexpr, COLS: tl.constexpr,
    R2: tl.constexpr, K2: tl.constexpr, C2: tl.constexpr, BN: tl.constexpr, BI: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Masses, sums and means of v = vote - place, and squares about these means, in two readings of one launch.

    least: a mass below it counts as one, where there is nothing to divide by.
    """
    n, j = tl.program_id(0) * BN + tl.arange(0, BN), tl.program_id(1)
    mass = tl.zeros((BN,), dtype=ACC)
    one = tl.zeros((BN, R2, C2), dtype=ACC)
    zero = tl.zeros((BN, R2, C2), dtype=ACC)
    about = _of_parent(place, n, j, examples, parents, ROWS, COLS, R2, C2, ACC) if PLACE else zero
    for start in range(0, children, BI):
        i = start + tl.arange(0, BI)
        x = _pairs(pairs, n, i, j, examples, children, along_n, along_i, along_j, ACC)
        p = _poses(poses, n, i, examples, children, ROWS, INNER, R2, K2, ACC)
        w = _of_parent(weight, i % matrices, j, matrices, parents, INNER, COLS, K2, C2, ACC)
        mass += tl.sum(x, axis=1)
        one += tl.sum(x[:, :, None, None] * (_votes(p, w) - about[:, None, :, :]), axis=1)
    mean = one / tl.where(mass < least, 1.0, mass)[:, None, None]
    about += mean
    two = tl.zeros((BN, R2, C2), dtype=ACC)
    for start in range(0, children, BI):
        i = start + tl.arange(0, BI)
        x = _pairs(pairs, n, i, j, examples, children, along_n, along_i, along_j, ACC)
        p = _poses(poses, n, i, examples, children, ROWS, INNER, R2, K2, ACC)
        w = _of_parent(weight, i % matrices, j, matrices, parents, INNER, COLS, K2, C2, ACC)
        v = _votes(p, w) - about[:, None, :, :]
        two += tl.sum(x[:, :, None, None] * v * v, axis=1)
    tl.store(masses + n.to(tl.int64) * parents + j, mass, mask=n < examples)
    _store(first, one, n, j, examples, parents, ROWS, COLS, R2, C2)
    _store(means, mean, n, j, examples, parents, ROWS, COLS, R2, C2)
    _store(scatter, two, n, j, examples, parents, ROWS, COLS, R2, C2)


@triton.jit
def inner_kernel(
    poses, weight, linear, squared, offset, place, found,
    examples, children, matrices, parents,
    LINEAR: tl.constexpr, SQUARED: tl.constexpr, OFFSET: tl.constexpr, PLACE: tl.constexpr,
    ROWS: tl.constexpr, INNER: tl.constexpr, COLS: tl.constexpr,
    R2: tl.constexpr, K2: tl.constexpr, C2: tl.constexpr, BN: tl.constexpr, BI: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Sum_d (y v + z v^2) + offset with v = vote - place, as [n j i]; a program for BN examples, BI children and j."""
    n, i, j = tl.program_id(0) * BN + tl.arange(0, BN), tl.program_id(1) * BI + tl.arange(0, BI), tl.program_id(2)
    p = _poses(poses, n, i, examples, children, ROWS, INNER, R2, K2, ACC)
    w = _of_parent(weight, i % matrices, j, matrices, parents, INNER, COLS, K2, C2, ACC)
    v = _votes(p, w)
    if PLACE:
        v -= _of_parent(place, n, j, examples, parents, ROWS, COLS, R2, C2, ACC)[:, None, :, :]
    total = tl.zeros((BN, BI, R2, C2), dtype=ACC)
    if LINEAR:
        total += _of_parent(linear, n, j, examples, parents, ROWS, COLS, R2, C2, ACC)[:, None, :, :] * v
    if SQUARED:
        total += _of_parent(squared, n, j, examples, parents, ROWS, COLS, R2, C2, ACC)[:, None, :, :] * v * v
    result = tl.sum(tl.sum(total, axis=3), axis=2)
    if OFFSET:
        result += tl.load(offset + n.to(tl.int64) * parents + j, mask=n < examples, other=0.0).to(ACC)[:, None]
    place_of = (n.to(tl.int64)[:, None] * parents + j) * children + i[None, :]
    tl.store(found + place_of, result, mask=(n[:, None] < examples) & (i[None, :] < children))


@triton.jit
def _vote_gradients(
    p, w, pairs, plain, scaled, pivot, n, i, j, columns, examples, children, parents,
    PLAIN: tl.constexpr, SCALED: tl.constexpr, PIVOT: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
    R2: tl.constexpr, C2: tl.constexpr, BN: tl.constexpr, BI: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """The gradient of votes [BN BI R2 C2]: the sum of x (plain + scaled v) over all columns, v = vote - its pivot."""
    found = tl.zeros((BN, BI, R2, C2), dtype=ACC)
    if SCALED:
        v = _votes(p, w)
    for column in range(columns):
        shift = column * examples
        each = tl.zeros((BN, BI, R2, C2), dtype=ACC)
        if SCALED:
            apart = v
            if PIVOT:
                apart = v - _of_parent(pivot, n, j, examples, parents, ROWS, COLS, R2, C2, ACC, shift)[:, None, :, :]
            each = apart * _of_parent(scaled, n, j, examples, parents, ROWS, COLS, R2, C2, ACC, shift)[:, None, :, :]
        if PLAIN:
            each += _of_parent(plain, n, j, examples, parents, ROWS, COLS, R2, C2, ACC, shift)[:, None, :, :]
        x = _pairs(pairs, n, i, j, examples, children, parents * children, 1, children, ACC, shift)
        found += x[:, :, None, None] * each
    return found


@triton.jit
def pose_gradients_kernel(
    poses, weight, pairs, plain, scaled, pivot, found,
    columns, examples, children, matrices, parents,
    PLAIN: tl.constexpr, SCALED: tl.constexpr, PIVOT: tl.constexpr,
    ROWS: tl.constexpr, INNER: tl.constexpr, COLS: tl.constexpr,
    R2: tl.constexpr, K2: tl.constexpr, C2: tl.constexpr, BN: tl.constexpr, BI: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """The gradient of poses [n i (R K)]; a program for BN examples and BI children, over all parents."""
    n, i = tl.program_id(0) * BN + tl.arange(0, BN), tl.program_id(1) * BI + tl.arange(0, BI)
    p = _poses(poses, n, i, examples, children, ROWS, INNER, R2, K2, ACC)
    total = tl.zeros((BN, BI, R2, K2), dtype=ACC)
    for j in range(parents):
        w = _of_parent(weight, i % matrices, j, matrices, parents, INNER, COLS, K2, C2, ACC)
        g = _vote_gradients(
            p, w, pairs, plain, scaled, pivot, n, i, j, columns, examples, children, parents,
            PLAIN, SCALED, PIVOT, ROWS, COLS, R2, C2, BN, BI, ACC,
        )  # fmt: skip
        total += tl.sum(g[:, :, :, None, :] * w[None, :, None, :, :], axis=4)
    place, there = _pose_places(n, i, examples, children, ROWS, INNER, R2, K2)
    tl.store(found + place, total, mask=there)


@triton.jit
def weight_gradients_kernel(
    poses, weight, pairs, plain, scaled, pivot, found, columns, examples, children, matrices, parents,
    PLAIN: tl.constexpr, SCALED: tl.constexpr, PIVOT: tl.constexpr, ROWS: tl.constexpr, INNER: tl.constexpr,
    COLS: tl.constexpr, R2: tl.constexpr, K2: tl.constexpr, C2: tl.constexpr, BN: tl.constexpr, BI: tl.constexpr,
    ACC: tl.constexpr,
):  # fmt: skip
    """The gradient of matrices [t j K C]; a program for BI of them and parent j, over examples and places."""
    t, j = tl.program_id(0) * BI + tl.arange(0, BI), tl.program_id(1)
    w = _of_parent(weight, t, j, matrices, parents, INNER, COLS, K2, C2, ACC)
    total = tl.zeros((BI, K2, C2), dtype=ACC)
    for place in range(0, children, matrices):
        i = tl.where(t < matrices, place + t, children)  # children that share a matrix
        for start in range(0, examples, BN):
            n = start + tl.arange(0, BN)
            p = _poses(poses, n, i, examples, children, ROWS, INNER, R2, K2, ACC)
            g = _vote_gradients(
                p, w, pairs, plain, scaled, pivot, n, i, j, columns, examples, children, parents,
                PLAIN, SCALED, PIVOT, ROWS, COLS, R2, C2, BN, BI, ACC,
            )  # fmt: skip
            total += tl.sum(tl.sum(p[:, :, :, :, None] * g[:, :, :, None, :], axis=2), axis=0)
    _store(found, total, t, j, matrices, parents, INNER, COLS, K2, C2)
