"""Su Jianlin 2018 (kexue.fm 5155): EM algorithm 1 (full covariance), 2 (diagonal), and eq. 11 (one variance)."""

import math

import torch

from tests.oracles.common import dot, stacked


def log_normal(x, mu, Sigma):
    d = len(x)
    quadratic = dot(x - mu, torch.linalg.inv(Sigma) @ (x - mu))
    return -0.5 * (d * math.log(2 * math.pi) + torch.log(torch.linalg.det(Sigma)) + quadratic)


def covariance_of(kind, points, weights, mass, mu, floor, variance):
    d = len(mu)
    eye = torch.eye(d, dtype=mu.dtype)
    if kind == "fixed":
        return variance * eye
    scatter = sum(w * torch.outer(x - mu, x - mu) for w, x in zip(weights, points, strict=True)) / mass
    if kind == "full":
        return scatter + floor * (1 + torch.trace(scatter) / d) * eye
    if kind == "diagonal":
        return torch.diag(torch.diag(scatter)) + floor * eye
    return (torch.trace(scatter) / d + floor) * eye


def gaussian(u, a, r=3, kind="diagonal", floor=1e-4, mass_floor=1e-7, variance=1.0, start=None):
    m, n, _ = u.shape
    R = [[start[i, j] if start is not None else torch.tensor(1 / n, dtype=u.dtype) for j in range(n)] for i in range(m)]
    for iteration in range(r):
        if iteration > 0:  # E-step, eq. 4
            for i in range(m):
                joint = [pi[j] * torch.exp(log_normal(u[i, j], mu[j], Sigma[j])) for j in range(n)]
                R[i] = [p / sum(joint) for p in joint]
        mass = [sum(a[i] * R[i][j] for i in range(m)) + mass_floor for j in range(n)]
        mu = [sum(a[i] * R[i][j] * u[i, j] for i in range(m)) / mass[j] for j in range(n)]  # eq. 6
        Sigma = []
        for j in range(n):  # eqs. 7, 10
            weights = [a[i] * R[i][j] for i in range(m)]
            Sigma.append(covariance_of(kind, u[:, j], weights, mass[j], mu[j], floor, variance))
        pi = [mass[j] / sum(mass) for j in range(n)]  # eq. 9
    return stacked(mu, pi, R)
