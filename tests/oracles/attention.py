"""Mazzia 2021, eqs. 5-8: couplings from the votes' own agreement, plus a prior."""

import math

import torch

from tests.oracles.common import dot, norm, softmax, stacked


def attention(u, a, prior=None):
    m, n, d = u.shape
    c = []
    for i in range(m):
        logits = [sum(dot(u[i, j], u[k, j]) for k in range(m)) / math.sqrt(d) for j in range(n)]
        c.append([c_ij + (prior[i, j] if prior is not None else 0.0) for j, c_ij in enumerate(softmax(logits))])
    s = [sum(c[i][j] * u[i, j] for i in range(m)) for j in range(n)]
    v = [(1 - torch.exp(-norm(s_j))) * s_j / norm(s_j) for s_j in s]
    return stacked(v, [norm(v_j) for v_j in v], c)
