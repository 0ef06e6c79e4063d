"""Ribeiro 2020, algorithm 1, with the symbols of Bishop 2006, sect. 10.2, a Wishart of dimension one for each h.

`negative_bound` is minus the evidence lower bound, term by term (10.70-10.77).
"""

import math

import torch

from tests.oracles.common import stacked


class Q:
    """The posterior of one parent: W0_inv, nu0, beta0, m0 = 0 are the priors."""

    def __init__(self, x, r, beta0, nu0, W0_inv):
        d = x.shape[1]
        self.N = sum(r)  # 10.51
        x_bar = sum(r[k] * x[k] for k in range(len(x))) / self.N  # 10.52
        S = sum(r[k] * (x[k] - x_bar) ** 2 for k in range(len(x))) / self.N  # 10.53
        self.beta = beta0 + self.N  # 10.60
        self.m = self.N * x_bar / self.beta  # 10.61
        self.W_inv = [
            W0_inv + self.N * S[h] + beta0 * self.N / (beta0 + self.N) * x_bar[h] ** 2 for h in range(d)
        ]  # 10.62
        self.nu = nu0 + self.N  # 10.63
        self.log_lambda = [torch.digamma(self.nu / 2) + math.log(2) - torch.log(w) for w in self.W_inv]  # 10.65

    def log_rho(self, x):
        """10.46 without E log pi."""
        return sum(
            log_l / 2 - math.log(2 * math.pi) / 2 - (1 / self.beta + self.nu / w * (x_h - m_h) ** 2) / 2
            for log_l, w, x_h, m_h in zip(self.log_lambda, self.W_inv, x, self.m, strict=True)
        )


def posteriors(V, R, a, alpha0, beta0, nu0, W0_inv):
    m, n, _ = V.shape
    q = [Q(V[:, j], [a[i] * R[i][j] for i in range(m)], beta0, nu0, W0_inv) for j in range(n)]
    alpha = [alpha0 + q_j.N for q_j in q]  # 10.58
    log_pi = [torch.digamma(alpha_j) - torch.digamma(sum(alpha)) for alpha_j in alpha]  # 10.66
    return q, alpha, log_pi


def variational(
    V, a, beta_u, beta_a, t=3, alpha0=1.0, beta0=1.0, nu0=2.0, variance=1.0, lam=1.0, start=None, sharp=1.0
):
    m, n, d = V.shape
    priors = {"alpha0": alpha0, "beta0": beta0, "nu0": nu0, "W0_inv": nu0 * variance}
    R = [[torch.tensor(1 / n, dtype=V.dtype) if start is None else start[i, j] for j in range(n)] for i in range(m)]
    for iteration in range(t):
        if iteration > 0:
            for i in range(m):
                rho = [torch.exp(log_pi[j] + sharp * q[j].log_rho(V[i, j])) for j in range(n)]
                R[i] = [rho_j / sum(rho) for rho_j in rho]  # 10.49
        q, _, log_pi = posteriors(V, R, a, **priors)
    activation = []
    for j in range(n):
        H = [math.log(2 * math.pi * math.e) / 2 - q[j].log_lambda[h] / 2 for h in range(d)]
        cost = torch.exp(log_pi[j]) * sum(beta_u[j] + H_h for H_h in H)
        activation.append(1 / (1 + torch.exp(-lam * (beta_a[j] - cost))))
    return stacked([q_j.m for q_j in q], activation, R)


def negative_bound(V, R, a, alpha0=1.0, beta0=1.0, nu0=2.0, variance=1.0):
    m, n, d = V.shape
    W0_inv = nu0 * variance
    q, alpha, log_pi = posteriors(V, R, a, alpha0, beta0, nu0, W0_inv)

    def log_b(w_inv, nu):  # B.79 for dimension one
        return nu / 2 * math.log(w_inv) - nu / 2 * math.log(2) - math.lgamma(nu / 2)

    def log_c(counts):  # B.23
        return math.lgamma(sum(counts)) - sum(math.lgamma(c) for c in counts)

    bound = sum(
        a[i] * R[i][j] * (q[j].log_rho(V[i, j]) + log_pi[j] - torch.log(R[i][j])) for i in range(m) for j in range(n)
    )  # 10.71, 10.72, 10.75
    bound = bound + log_c([alpha0] * n) + (alpha0 - 1) * sum(log_pi)  # 10.73
    bound = bound - sum((alpha[j] - 1) * log_pi[j] for j in range(n)) - log_c([float(x) for x in alpha])  # 10.76
    for j in range(n):
        for h in range(d):
            w_inv, log_l, nu, beta = q[j].W_inv[h], q[j].log_lambda[h], q[j].nu, q[j].beta
            expected = nu / w_inv
            bound = (
                bound + (math.log(beta0 / (2 * math.pi)) + log_l - beta0 / beta - beta0 * expected * q[j].m[h] ** 2) / 2
            )
            bound = bound + log_b(W0_inv, nu0) + (nu0 - 2) / 2 * log_l - expected * W0_inv / 2  # 10.74
            entropy = -log_b(float(w_inv), float(nu)) - (nu - 2) / 2 * log_l + nu / 2  # B.82
            bound = bound - (log_l / 2 + math.log(float(beta) / (2 * math.pi)) / 2 - 1 / 2 - entropy)  # 10.77
    return -bound
