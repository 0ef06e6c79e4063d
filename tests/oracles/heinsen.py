"""Heinsen 2019, algorithm 1: E-step, D-step, M-step; f is the logistic function, f(a_inp) is given as a."""

import math

import torch

from tests.oracles.common import softmax, stacked


def f(x):
    return 1 / (1 + torch.exp(-x))


def heinsen(V, f_a_inp, beta_use, beta_ign, n=3, eps=(1e-5, 1e-5), p_model="gaussian", leak=False):
    """eps: of variances and of masses. p_model "skm": soft k-means in place of Gaussians."""
    n_inp, n_out, d = V.shape
    for iteration in range(n):
        R = []
        for i in range(n_inp):  # E-step
            if iteration == 0:
                R.append([torch.tensor(1 / (n_out + leak), dtype=V.dtype) for _ in range(n_out)])
                continue
            log_p = []
            for j in range(n_out):
                if p_model == "gaussian":
                    log_p_ij = sum(
                        -((V[i, j, h] - mu[j][h]) ** 2) / (2 * sig2[j][h]) - torch.log(torch.sqrt(sig2[j][h]))
                        for h in range(d)
                    )
                else:
                    log_p_ij = -sum((V[i, j, h] - mu[j][h]) ** 2 for h in range(d))
                if leak:  # the leak has score zero, so the constant of a density counts: variance one half
                    log_p_ij = log_p_ij - d / 2 * math.log(math.pi)
                log_p.append(torch.log(f(a_out[j])) + log_p_ij)
            R.append(softmax(log_p, leak))
        a_out, mu, sig2 = [], [], []
        for j in range(n_out):
            D_use = [f_a_inp[i] * R[i][j] for i in range(n_inp)]  # D-step
            D_ign = [f_a_inp[i] - D_use[i] for i in range(n_inp)]
            a_out.append(
                sum(beta_use[i, j] * D_use[i] for i in range(n_inp))
                - sum(beta_ign[i, j] * D_ign[i] for i in range(n_inp))
            )  # M-step
            mass = sum(D_use) + eps[1]
            mu.append(sum(D_use[i] * V[i, j] for i in range(n_inp)) / mass)
            sig2.append(sum(D_use[i] * (V[i, j] - mu[j]) ** 2 for i in range(n_inp)) / mass + eps[0])
    return stacked(mu, [f(a_j) for a_j in a_out], R)
