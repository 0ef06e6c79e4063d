"""Hinton 2018, procedure 1, and the variants of Su Jianlin 2018; and the official code's way of writing it."""

import math

import torch

from tests.oracles.common import stacked


def normal(x, mu, var):
    p = torch.ones((), dtype=x.dtype)
    for x_h, mu_h, var_h in zip(x, mu, var, strict=True):
        p = p * torch.exp(-((x_h - mu_h) ** 2) / (2 * var_h)) / torch.sqrt(2 * math.pi * var_h)
    return p


def em(V, a_last, beta_u, beta_a, t=3, variant=4, lam=0.01, decay=0.95, floor=1e-4, mass_floor=1e-7, K=1):
    """beta_u[j] is a list over pose dimensions; the new routings 1 to 4 of Su; K: sharpness of the E-step."""
    m, n, d = V.shape
    R = [[torch.tensor(1 / n, dtype=V.dtype) for _ in range(n)] for _ in range(m)]
    for iteration in range(t):
        if iteration > 0:  # E-STEP
            for i in range(m):
                p = [a[j] * normal(V[i, j], mu[j], var[j]) ** K for j in range(n)]
                R[i] = [p_j / sum(p) for p_j in p]
        weight = [[(a_last[i] if variant >= 3 else 1.0) * R[i][j] for j in range(n)] for i in range(m)]  # M-STEP
        mass = [sum(weight[i][j] for i in range(m)) + mass_floor for j in range(n)]
        mu = [sum(weight[i][j] * V[i, j] for i in range(m)) / mass[j] for j in range(n)]
        var = [sum(weight[i][j] * (V[i, j] - mu[j]) ** 2 for i in range(m)) / mass[j] + floor for j in range(n)]
        a = [mass[j] / sum(mass) for j in range(n)] if variant == 1 else []  # pi_j
        for j in range(n if variant > 1 else 0):
            cost = sum((beta_u[j][h] + torch.log(torch.sqrt(var[j][h]))) for h in range(d))
            if variant == 4:
                cost = cost * mass[j]
            a.append(1 / (1 + torch.exp(-lam * (1 - decay ** (iteration + 1)) * (beta_a[j] - cost))))
    return stacked(mu, a, R)


def em_official(V, a_last, sigma_bias, activation_bias, t=3, final_beta=0.01, min_var=5e-4, mass_eps=1e-7):
    """The released code: damped centers, log variances in the cost, biases times constants of its own."""
    m, n, d = V.shape
    log_2pi = math.log(2 * math.pi)
    update = [[torch.zeros((), dtype=V.dtype) for _ in range(n)] for _ in range(m)]
    center = [torch.zeros(d, dtype=V.dtype) for _ in range(n)]
    for iteration in range(t):
        posterior = []
        for i in range(m):
            e = [torch.exp(update[i][j]) for j in range(n)]
            posterior.append([e_j / sum(e) for e_j in e])
        beta = final_beta * (1 - 0.95 ** (iteration + 1))
        logit, variance = [], []
        for j in range(n):
            confidence = [posterior[i][j] * a_last[i] for i in range(m)]
            mass = sum(confidence) + mass_eps
            center[j] = 0.9 * sum(confidence[i] * V[i, j] for i in range(m)) / mass + 0.1 * center[j]
            variance.append(min_var + sum(confidence[i] * (V[i, j] - center[j]) ** 2 for i in range(m)) / mass)
            win = mass * (-sum(torch.log(variance[j][h]) for h in range(d)) - sigma_bias[j] * d * (log_2pi + 1))
            logit.append(beta * (win - activation_bias[j] * 5000))
        update = [
            [
                -torch.log(1 + torch.exp(-logit[j]))
                - (d * log_2pi + sum(torch.log(variance[j][h]) for h in range(d))) / 2
                - sum((V[i, j][h] - center[j][h]) ** 2 / (2 * variance[j][h]) for h in range(d))
                for j in range(n)
            ]
            for i in range(m)
        ]
    return stacked(center, [1 / (1 + torch.exp(-logit_j)) for logit_j in logit], posterior)
