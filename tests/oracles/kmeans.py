"""Su Jianlin 2018 (kexue.fm 5112): soft k-means with Euclidean distance, and by normalized inner product."""

import torch

from tests.oracles.common import dot, hardmax, norm, softmax, stacked


def kmeans(u, a, r=3, distance="euclidean", K=1.0, hard=False, start=None):
    m, n, _ = u.shape
    c = [[start[i, j] if start is not None else torch.tensor(1 / n, dtype=u.dtype) for j in range(n)] for i in range(m)]
    for iteration in range(r):
        if iteration > 0:
            for i in range(m):
                if distance == "euclidean":
                    logits = [-K * dot(u[i, j] - v[j], u[i, j] - v[j]) for j in range(n)]
                else:
                    logits = [K * dot(u[i, j], v[j] / norm(v[j])) for j in range(n)]
                c[i] = hardmax(logits) if hard else softmax(logits)
        mass = [sum(c[i][j] for i in range(m)) for j in range(n)]
        v = [sum(c[i][j] * u[i, j] for i in range(m)) for j in range(n)]
        if distance == "euclidean":
            v = [v[j] / mass[j] for j in range(n)]
    if distance == "euclidean":
        return stacked(v, [mass[j] / m for j in range(n)], c)
    squashed = [norm(v_j) / (1 + norm(v_j) ** 2) * v_j for v_j in v]
    return stacked(squashed, [norm(v_j) for v_j in squashed], c)
