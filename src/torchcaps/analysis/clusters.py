"""Routing as clustering in the plane: points are the votes, parents are clusters, and every iteration is recorded.

Each child votes for the same point with every parent, so that routing is plain clustering. From uniform couplings all
parents would stay equal for ever; the initial couplings therefore prefer a few of the points.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from torchcaps._core.errors import check_count, input_error, shape_text
from torchcaps.routing import ROUTINGS, Routing, make_routing, routing_options
from torchcaps.routing.gaussian import Gaussian, Mixture
from torchcaps.votes.algebra import as_votes


def iterative() -> tuple[str, ...]:
    """The routings that iterate; the others compute their couplings once."""
    return tuple(name for name in ROUTINGS if "iterations" in routing_options(name))


@dataclass(frozen=True)
class ClusterStep:
    """One iteration: couplings [i j], and the centers [j 2] and activations [j] computed from them.

    objective: what the loop decreases; None if there is no such function. covariances [j 2 2]: of Gaussian routings.
    """

    centers: Tensor
    couplings: Tensor
    activations: Tensor
    objective: float | None
    covariances: Tensor | None


@dataclass(frozen=True)
class ClusterTrace:
    """A routing on points [i 2], with every iteration.

    directional: parents are sums of votes that are compared by inner product, so that a center is a direction from the
    origin, not a position.
    """

    routing: str
    options: dict[str, Any]
    points: Tensor
    steps: tuple[ClusterStep, ...]
    directional: bool

    def as_dict(self) -> dict[str, Any]:
        """The same as lists and numbers, for JSON."""
        steps = [{word: _plain(value) for word, value in vars(step).items()} for step in self.steps]
        return {**vars(self), "points": self.points.tolist(), "steps": steps}


def trace_clusters(
    points: Float[Tensor, "i 2"],
    routing: str,
    parents: int,
    iterations: int = 5,
    *,
    seed: int = 0,
    start: Float[Tensor, "i j"] | None = None,
    activations: Float[Tensor, " i"] | None = None,
    **options: Any,
) -> ClusterTrace:
    """Cluster points by a routing that iterates, with its options, and record every iteration.

    start: the initial couplings; default: `leaning_couplings` with this seed. activations: the weights of the points,
    for routings that use them; default: ones.
    """
    check_count("trace_clusters", "parents", parents)
    if routing not in iterative():
        got = f"{routing!r}" + (", which does not iterate" if routing in ROUTINGS else "")
        remedy = "Choose one of these as routing."
        raise input_error("trace_clusters", f"a routing that iterates ({', '.join(iterative())})", got, remedy)
    if points.ndim != 2 or points.shape[1] != 2 or len(points) < parents:
        expected = f"at least {parents} points [i 2], one for each parent"
        raise input_error("trace_clusters", expected, shape_text(points.shape), "Give more points, or fewer parents.")
    points = points.detach().double()
    start = leaning_couplings(points, parents, seed) if start is None else start.double()
    if start.shape != (len(points), parents):
        expected = f"start [i j] = ({len(points)}, {parents})"
        raise input_error("trace_clusters", expected, shape_text(start.shape), "Give a coupling for each pair.")
    weights = torch.ones(len(points), dtype=torch.float64) if activations is None else activations.double()
    sizes = {"out_capsules": parents, "out_dim": 2}
    known = {word: size for word, size in sizes.items() if word in routing_options(routing)}
    loop = make_routing(routing, **{"iterations": iterations, **known, **options}).double().eval()
    votes = points.unsqueeze(1).expand(-1, parents, -1)
    with torch.no_grad():
        traced = loop.trace(votes, weights, couplings=start)
        shapes = _covariances(loop, votes, [step.routed.couplings for step in traced], weights)
    steps = tuple(
        ClusterStep(*step.routed[:1], step.routed.couplings, step.routed.activations, _number(step.objective), shape)
        for step, shape in zip(traced, shapes, strict=True)
    )
    return ClusterTrace(routing, options, points, steps, not loop.parents_are_means)


def leaning_couplings(points: Float[Tensor, "i 2"], parents: int, seed: int = 0) -> Float[Tensor, "i j"]:
    """Initial couplings that prefer `parents` of the points: exp(-d^2 / v) over their sum, v the variance of all.

    The first point is drawn uniformly, each further one with a probability proportional to its squared distance from
    those before, as in k-means++ (Arthur, Vassilvitskii 2007).
    """
    dice = torch.Generator().manual_seed(seed)
    squared = torch.cdist(points, points).square()
    chosen = [int(torch.randint(len(points), (1,), generator=dice))]
    while len(chosen) < parents:
        apart = squared[:, chosen].amin(1)
        chosen.append(int(torch.multinomial(apart + torch.finfo(apart.dtype).tiny, 1, generator=dice)))
    variance = points.var(0, correction=0).sum().clamp(min=torch.finfo(points.dtype).tiny)
    return torch.softmax(-squared[:, chosen] / variance, 1)


def purity(couplings: Float[Tensor, "i j"], groups: Int[Tensor, " i"]) -> float:
    """Purity: the fraction of points that are in the largest group of their cluster, that of the largest coupling.

    1 means that no cluster mixes groups. One cluster for all points has the fraction of the largest group.
    """
    table = torch.zeros(couplings.shape[1], int(groups.max()) + 1)
    table.index_put_((couplings.argmax(1), groups), torch.ones(len(groups)), accumulate=True)
    return float(table.amax(1).sum() / len(groups))


def _covariances(loop: Routing, votes: Tensor, couplings: list[Tensor], weights: Tensor) -> list[Tensor | None]:
    """The covariances that a Gaussian routing fitted in each iteration, recomputed by its M-step."""
    if not isinstance(loop, Gaussian):
        return [None] * len(couplings)
    found: list[Tensor | None] = []
    clusters: Mixture | None = None
    for step, share in enumerate(couplings):
        weighed = share * weights.unsqueeze(1) if loop.uses_activations else share
        clusters = loop.update(as_votes(votes), weighed, clusters, step)
        full = clusters.covariances.ndim == 3
        found.append(clusters.covariances if full else torch.diag_embed(clusters.covariances))
    return found


def _number(value: Tensor | None) -> float | None:
    return None if value is None else float(value)


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, Tensor) else value
