"""Tsai 2020, algorithm 1 for one layer, and the linear classifier shared by all class capsules."""

import math

import torch

from tests.oracles.common import dot, softmax, stacked


def layer_norm(s, g, b):
    d = len(s)
    mean = sum(s_h for s_h in s) / d
    variance = sum((s_h - mean) ** 2 for s_h in s) / d
    return torch.stack([g[h] * (s[h] - mean) / torch.sqrt(variance + 1e-5) + b[h] for h in range(d)])


def inverted(v, a, g, b, w, c, t=3):
    m, n, d = v.shape
    for iteration in range(t):
        if iteration == 0:
            r = [[torch.tensor(1 / n, dtype=v.dtype) for _ in range(n)] for _ in range(m)]
        else:
            r = [softmax([dot(p[j], v[i, j]) / math.sqrt(d) for j in range(n)]) for i in range(m)]
        p = [layer_norm(sum(r[i][j] * v[i, j] for i in range(m)), g, b) for j in range(n)]
    return stacked(p, [1 / (1 + torch.exp(c - dot(w, p_j))) for p_j in p], r)
