"""Wang, Liu 2018, Algorithm 2 of He 2018, line by line (the last, unused, b is left out)."""

import torch

from tests.oracles.common import dot, norm, softmax, stacked


def entropy(u, a, alphas=(1.0, 1.0)):
    m, n, _ = u.shape
    r = len(alphas) + 1
    b = [[torch.zeros((), dtype=u.dtype) for _ in range(n)] for _ in range(m)]
    for iteration in range(r):
        c = [softmax(b[i]) for i in range(m)]
        s_hat = [sum(c[i][j] * u[i, j] for i in range(m)) for j in range(n)]
        s = [s_hat[j] / norm(s_hat[j]) for j in range(n)]
        if iteration < r - 1:
            b = [[dot(u[i, j], s[j]) / alphas[iteration] for j in range(n)] for i in range(m)]
    longest = max(norm(s_hat[k]) for k in range(n))
    w = [norm(s_hat[j]) / (1 + longest) for j in range(n)]
    v = [w[j] * s[j] for j in range(n)]
    return stacked(v, [norm(v_j) for v_j in v], c)
