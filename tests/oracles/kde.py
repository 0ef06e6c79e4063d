"""Zhang 2018, FRMS: mean shift for the modes v, scores that grow by alpha k; one example, which stops by itself."""

import torch

from tests.oracles.common import softmax, stacked


def gaussian(x):
    return torch.exp(-x / 2), torch.exp(-x / 2)  # k, and -k' up to a constant


def epanechnikov(x):
    near = bool(x < 1)
    return (1 - x if near else 0 * x), torch.tensor(float(near), dtype=x.dtype)


def kde(u, a, r=5, kernel=gaussian, h=1.0, alpha=2.0, tolerance=0.05, start=None):
    m, n, _ = u.shape
    zero = torch.zeros((), dtype=u.dtype)
    b = [[zero if start is None else torch.log(start[i, j]) for j in range(n)] for i in range(m)]
    last = None
    for _ in range(r):
        c = [softmax(b[i]) for i in range(m)]
        v_new = []
        for j in range(n):
            g = [1.0 if last is None else kernel(sum((u[i, j] - v[j]) ** 2) / h**2)[1] for i in range(m)]
            mass = sum(a[i] * c[i][j] * g[i] for i in range(m))
            v_new.append(sum(a[i] * c[i][j] * g[i] * u[i, j] for i in range(m)) / mass if mass > 1e-7 else v[j])
        v = v_new
        k = [[kernel(sum((u[i, j] - v[j]) ** 2) / h**2)[0] for j in range(n)] for i in range(m)]
        f = sum(a[i] * c[i][j] * k[i][j] for i in range(m) for j in range(n))
        if last is not None and (f - last) / f <= tolerance:
            break
        last = f
        b = [[b[i][j] + alpha * k[i][j] for j in range(n)] for i in range(m)]
    activation = [sum(a[i] * c[i][j] * k[i][j] for i in range(m)) / sum(a) for j in range(n)]
    return stacked(v, activation, c)
