"""Sabour 2017, procedure 1, line by line."""

import math

import torch

from tests.oracles.common import dot, hardmax, norm, softmax, stacked

SQUASHED_LENGTH = {
    "quadratic": lambda n: n**2 / (1 + n**2),
    "half": lambda n: n**2 / (0.5 + n**2),
    "exponential": lambda n: 1 - torch.exp(-n),
    "tanh": lambda n: (torch.exp(n) - torch.exp(-n)) / (torch.exp(n) + torch.exp(-n)),
    "rational": lambda n: n / (1 + n),
    "none": lambda n: n,
}


def lagrangian(c, s, u, w, c_old, lam, beta, gamma):
    """He 16: the objective of eq. 15, and a multiplier for each of its constraints."""
    m, n, _ = u.shape
    loss = -sum(w[j] * c[i, j] * dot(u[i, j], s[j]) for i in range(m) for j in range(n))
    loss = loss + sum(c[i, j] * (torch.log(c[i, j]) - torch.log(c_old[i, j])) for i in range(m) for j in range(n))
    loss = loss + sum(lam[i] * (sum(c[i, j] for j in range(n)) - 1) for i in range(m))
    loss = loss + sum(beta[j] * (norm(s[j]) - 1) for j in range(n))
    return loss - sum(gamma[i, j] * c[i, j] for i in range(m) for j in range(n))


def squash(s, kind):
    return s / norm(s) * SQUASHED_LENGTH[kind](norm(s))


def dynamic(
    u, a, r=3, kind="quadratic", accumulate=True, alpha=1.0, amendment=False, bias=None, leaky=False, hard=False,
    start=None,
):  # fmt: skip
    m, n, _ = u.shape
    b = [
        [torch.log(start[i, j]) if start is not None else torch.zeros((), dtype=u.dtype) for j in range(n)]
        for i in range(m)
    ]
    for iteration in range(r):
        c = [hardmax(b[i]) if hard else softmax(b[i], leaky) for i in range(m)]
        v = []
        for j in range(n):
            s_j = sum((a[i] if amendment else 1.0) * c[i][j] * u[i, j] for i in range(m))
            if bias is not None:
                s_j = s_j + bias[j]
            v.append(squash(s_j, kind))
        if iteration < r - 1:
            for i in range(m):
                for j in range(n):
                    b[i][j] = (b[i][j] if accumulate else 0.0) + alpha * dot(u[i, j], v[j])
    return stacked(v, [norm(v_j) for v_j in v], c)


def uniform(u, a, kind="quadratic"):
    m, n, _ = u.shape
    share = torch.tensor(1 / n, dtype=u.dtype)
    v = [squash(sum(u[i, j] for i in range(m)) / n, kind) for j in range(n)]
    return stacked(v, [norm(v_j) for v_j in v], [[share] * n for _ in range(m)])


def first_step_closed_form(u):
    """He 2018 eqs. 5-7: with uniform couplings, <u_j|i, v_j> = k/m (|u_j|i|^2 + Sum_l <u_j|i, u_j|l>), v_j = k mean."""
    m, n, _ = u.shape
    agreement = torch.zeros(m, n, dtype=u.dtype)
    for j in range(n):
        mean = sum(u[i, j] for i in range(m)) / m
        length_of_sum = norm(mean) * m / n
        k = length_of_sum**2 / (1 + length_of_sum**2) / norm(mean)
        for i in range(m):
            others = sum(dot(u[i, j], u[other, j]) for other in range(m) if other != i)
            agreement[i, j] = k / m * (dot(u[i, j], u[i, j]) + others)
    return agreement


def potential(s):
    return math.sqrt(dot(s, s)) - math.atan(math.sqrt(dot(s, s)))
