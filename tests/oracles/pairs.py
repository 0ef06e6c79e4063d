"""Every routing over the edges of a graph: plain loops over those pairs of child and parent that there are.

For one example. Nothing is known here of a pair that is not there: `parents[i]` and `children[j]` are lists of
neighbors. A parent that nobody is connected with has zero pose and activation in the end, but stays a cluster without
mass until then.
"""

import math

import torch

from tests.oracles.common import dot, norm
from tests.oracles.inverted import layer_norm


def log_normal(x, mu, var):
    return sum(
        -((x_h - mu_h) ** 2) / (2 * v_h) - torch.log(2 * math.pi * v_h) / 2
        for x_h, mu_h, v_h in zip(x, mu, var, strict=True)
    )


def logistic(x):
    return 1 / (1 + torch.exp(-x))


def shares(scores, parents):
    """A softmax for each child over the parents that it is connected with."""
    c = {}
    for i, mine in parents.items():
        top = max((float(scores[i, j].detach()) for j in mine), default=0.0)
        e = {j: torch.exp(scores[i, j] - top) for j in mine}
        c.update({(i, j): e[j] / sum(e.values()) for j in mine})
    return c


class Graph:
    """Votes u[i, j] of children i with activations a[i], for the parents that they are connected with."""

    weighted = False  # do activations weigh votes?

    def __init__(self, u, a, present, routing):
        self.u, self.d, self.n = u, u.shape[2], u.shape[1]
        self.parents = {i: [j for j in range(self.n) if present[i, j]] for i in range(len(u))}
        self.children = {j: [i for i in range(len(u)) if present[i, j]] for j in range(self.n)}
        self.edges = [(i, j) for i, mine in self.parents.items() for j in mine]
        self.there = [i for i, mine in self.parents.items() if mine]  # children that count
        self.a = {i: a[i] if self.weighted else torch.ones((), dtype=u.dtype) for i in self.there}
        self.routing, self.p = routing, dict(routing.named_parameters())
        self.zero = torch.zeros((), dtype=u.dtype)

    def run(self):
        scores = self.first()
        for step in range(self.routing.iterations):
            self.c = self.prior(shares(scores, self.parents))
            self.fit(step)
            if self.ends():
                break
            if step < self.routing.iterations - 1:
                scores = self.scores(scores, step)
        return self.told(*self.read())

    def first(self):
        return dict.fromkeys(self.edges, self.zero)

    def prior(self, c):
        return c

    def ends(self):
        return False

    def sums(self):
        nothing = torch.zeros(self.d, dtype=self.u.dtype)
        return [
            sum((self.a[i] * self.c[i, j] * self.u[i, j] for i in self.children[j]), nothing) for j in range(self.n)
        ]

    def masses(self):
        return [sum((self.a[i] * self.c[i, j] for i in self.children[j]), self.zero) for j in range(self.n)]

    def told(self, poses, activations):
        couplings = torch.zeros(self.u.shape[:2], dtype=self.u.dtype)
        for (i, j), share in self.c.items():
            couplings = couplings.index_put((torch.tensor(i), torch.tensor(j)), share)
        for j in range(self.n):
            if not self.children[j]:
                poses[j], activations[j] = torch.zeros(self.d, dtype=self.u.dtype), self.zero
        return torch.stack(poses), torch.stack(activations), couplings


class Dynamic(Graph):
    def squash(self, s):
        return s * norm(s) / (1 + norm(s) ** 2) if float(s.detach().abs().max()) else s

    def fit(self, step):
        self.v = [self.squash(s) for s in self.sums()]

    def scores(self, scores, step):
        return {(i, j): scores[i, j] + dot(self.u[i, j], self.v[j]) for i, j in self.edges}

    def read(self):
        return self.v, [norm(v) if self.children[j] else self.zero for j, v in enumerate(self.v)]


class Attention(Dynamic):
    def squash(self, s):
        return s / norm(s) * (1 - torch.exp(-norm(s))) if float(s.detach().abs().max()) else s

    def first(self):
        root = math.sqrt(self.d)
        return {(i, j): sum(dot(self.u[i, j], self.u[k, j]) for k in self.children[j]) / root for i, j in self.edges}

    def prior(self, c):
        return {edge: share + self.p["prior"][edge] for edge, share in c.items()}


class Entropy(Graph):
    def fit(self, step):
        self.s = self.sums()

    def scores(self, scores, step):
        return {(i, j): dot(self.u[i, j], self.s[j] / norm(self.s[j])) for i, j in self.edges}

    def read(self):
        lengths = [norm(s) if self.children[j] else self.zero for j, s in enumerate(self.s)]
        scale = 1 / (1 + max(lengths))
        return [s * scale for s in self.s], [x * scale for x in lengths]


class Inverted(Graph):
    def fit(self, step):
        self.v = [layer_norm(s, self.p["gain"], self.p["shift"]) for s in self.sums()]

    def scores(self, scores, step):
        return {(i, j): dot(self.u[i, j], self.v[j]) / math.sqrt(self.d) for i, j in self.edges}

    def read(self):
        return self.v, [logistic(dot(v, self.p["direction"]) - self.p["threshold"]) for v in self.v]


class KMeans(Graph):
    def fit(self, step):
        self.mass = self.masses()
        self.v = [s / m if float(m.detach()) else s for s, m in zip(self.sums(), self.mass, strict=True)]

    def scores(self, scores, step):
        return {(i, j): -dot(self.u[i, j] - self.v[j], self.u[i, j] - self.v[j]) for i, j in self.edges}

    def read(self):
        return self.v, [mass / len(self.there) for mass in self.mass]


class KDE(Graph):
    weighted = True
    k = density = None

    def fit(self, step):
        pulls = self.k or dict.fromkeys(self.edges, 1.0)
        v = []
        for j, mine in self.children.items():
            mass = sum(self.a[i] * self.c[i, j] * pulls[i, j] for i in mine)
            total = sum(self.a[i] * self.c[i, j] * pulls[i, j] * self.u[i, j] for i in mine)
            v.append(total / mass if mine else torch.zeros(self.d, dtype=self.u.dtype))
        self.v = v
        self.k = {
            (i, j): torch.exp(-sum((self.u[i, j] - v[j]) ** 2) / self.routing.bandwidth**2 / 2) for i, j in self.edges
        }
        self.before, self.density = self.density, sum(self.a[i] * self.c[i, j] * self.k[i, j] for i, j in self.edges)

    def ends(self):
        if self.before is None:
            return False
        return bool(self.density - self.before <= self.routing.tolerance * self.density)

    def scores(self, scores, step):
        return {edge: scores[edge] + self.routing.sharpness * self.k[edge] for edge in self.edges}

    def read(self):
        whole = sum(self.a.values())
        found = [
            sum((self.a[i] * self.c[i, j] * self.k[i, j] for i in mine), self.zero) for j, mine in self.children.items()
        ]
        return self.v, [x / whole for x in found]


class Gaussian(Graph):
    weighted = True

    def fit(self, step):
        floor = self.routing.mass_floor
        self.mass = [mass + floor for mass in self.masses()]
        self.mu = [s / mass for s, mass in zip(self.sums(), self.mass, strict=True)]
        self.var = []
        for j, mine in self.children.items():
            scatter = sum(
                (self.a[i] * self.c[i, j] * (self.u[i, j] - self.mu[j]) ** 2 for i in mine),
                torch.zeros_like(self.mu[j]),
            )
            self.var.append(scatter / self.mass[j] + self.routing.variance_floor)
        self.pi = self.priors(step)

    def priors(self, step):
        return [mass / sum(self.mass) for mass in self.mass]

    def scores(self, scores, step):
        return {
            (i, j): torch.log(self.pi[j]) + log_normal(self.u[i, j], self.mu[j], self.var[j]) for i, j in self.edges
        }

    def read(self):
        return self.mu, self.pi


class EM(Gaussian):
    def priors(self, step):
        lam = self.routing.inverse_temperature * (1 - self.routing.inverse_temperature_decay ** (step + 1))
        cost = [
            sum(self.p["beta_use"][j, 0] + torch.log(v) / 2 for v in self.var[j]) * self.mass[j] for j in range(self.n)
        ]
        return [logistic(lam * (self.p["beta_active"][j] - cost[j])) for j in range(self.n)]


class Heinsen(Gaussian):
    def priors(self, step):
        benefit = []
        for j, mine in self.children.items():
            used = {i: self.a[i] * self.c[i, j] for i in mine}
            gain = sum((self.p["beta_use"][i, j] * used[i] for i in mine), self.zero)
            benefit.append(gain - sum(self.p["beta_ignore"][i, j] * (self.a[i] - used[i]) for i in mine))
        return [logistic(x) for x in benefit]


class Variational(Graph):
    weighted = True

    def fit(self, step):
        strength, degrees = self.routing.mean_strength, self.routing.degrees
        self.N = self.masses()
        self.mu = [s / (strength + mass) for s, mass in zip(self.sums(), self.N, strict=True)]
        self.precision, self.log_precision = [], []
        for j, mine in self.children.items():
            nu = degrees + self.N[j]
            scatter = sum(
                (self.a[i] * self.c[i, j] * (self.u[i, j] - self.mu[j]) ** 2 for i in mine),
                torch.zeros_like(self.mu[j]),
            )
            w_inv = degrees * self.routing.prior_variance + scatter + strength * self.mu[j] ** 2
            self.precision.append(nu / w_inv)
            self.log_precision.append(torch.digamma(nu / 2) + math.log(2) - torch.log(w_inv))
        alpha = [self.routing.concentration + mass for mass in self.N]
        self.log_pi = [torch.digamma(each) - torch.digamma(sum(alpha)) for each in alpha]

    def scores(self, scores, step):
        strength = self.routing.mean_strength
        return {
            (i, j): self.log_pi[j]
            + sum(
                (log_l - math.log(2 * math.pi) - 1 / (strength + self.N[j]) - rate * (x - m) ** 2) / 2
                for log_l, rate, x, m in zip(
                    self.log_precision[j], self.precision[j], self.u[i, j], self.mu[j], strict=True
                )
            )
            for i, j in self.edges
        }

    def read(self):
        act = []
        for j in range(self.n):
            entropy = [(1 + math.log(2 * math.pi) - log_l) / 2 for log_l in self.log_precision[j]]
            cost = torch.exp(self.log_pi[j]) * sum(self.p["beta_use"][j] + h for h in entropy)
            act.append(logistic(self.routing.inverse_temperature * (self.p["beta_active"][j] - cost)))
        return self.mu, act


GRAPHS = {
    "dynamic": Dynamic,
    "uniform": Dynamic,
    "attention": Attention,
    "entropy": Entropy,
    "inverted": Inverted,
    "kmeans": KMeans,
    "kde": KDE,
    "gaussian": Gaussian,
    "em": EM,
    "heinsen": Heinsen,
    "variational": Variational,
}
