"""Ablations: accuracy of a trained network after one part of its routing is disabled, without retraining.

If uniform, random or frozen couplings do not reduce the accuracy, routing decides nothing in this network.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from torchcaps._core.progress import bar
from torchcaps.analysis.couplings import prior_of
from torchcaps.analysis.evaluate import Evaluation, eval_mode, evaluate, wilson_interval
from torchcaps.analysis.health import coupling_facts
from torchcaps.analysis.layers import named_layers, named_primaries
from torchcaps.data import Examples
from torchcaps.layers import PrimaryCapsules, RoutedLayer
from torchcaps.routing.attention import Attention
from torchcaps.routing.competition import OverParents, compete, mask_fill
from torchcaps.routing.dynamic import Dynamic
from torchcaps.votes.transforms import FactorizedVotes, FullVotes, MatrixVotes, SharedVotes

ABLATIONS = {
    "uniform": "every child has the same coupling to all parents",
    "random": "couplings are random, the same for all examples",
    "frozen": "couplings are their means on the validation part, for all examples",
    "one iteration": "routing stops after its first update",
    "no squash": "poses are not squashed; the longest one is the prediction",
    "no transform": "votes are the poses of the children, the same for all parents",
}
ALL = "all layers"
NO_SQUASH = "no squash"


@dataclass(frozen=True)
class Ablation:
    """Accuracy without a part of routing, with its 95 % interval, and the accuracy lost against the whole network.

    The interval of the loss is that of paired answers, because both networks see the same examples.
    """

    kind: str
    layer: str
    accuracy: float
    interval: tuple[float, float]
    lost: float
    lost_interval: tuple[float, float]

    @property
    def matters(self) -> bool:
        """Whether the accuracy is significantly lower than before."""
        return self.lost_interval[0] > 0


@dataclass(frozen=True)
class Ablations:
    """Accuracy of the whole network with its interval, all ablations, and the reasons for ablations not possible."""

    examples: int
    accuracy: float
    interval: tuple[float, float]
    rows: tuple[Ablation, ...]
    left_out: dict[tuple[str, str], str]


def ablate(model: nn.Module, data: Examples, known: Examples, *, seed: int = 0) -> Ablations:
    """Disable each part of routing in each layer in turn, and in all layers that have it; evaluate on `data`.

    known: other examples, whose mean couplings are the frozen ones. Each ablation modifies a copy of the model.
    """
    layers = list(named_layers("ablate", model))
    primaries = list(named_primaries(model))
    with eval_mode(model):
        frozen = {name: facts.mean for name, facts in coupling_facts(model, known).items()}
    whole = evaluate(model, data)
    rows: list[Ablation] = []
    left_out: dict[tuple[str, str], str] = {}
    jobs = []
    for kind in ABLATIONS:
        names = [*primaries, *layers] if kind == NO_SQUASH else layers
        jobs += [(kind, name, [name]) for name in names] + ([(kind, ALL, names)] if len(names) > 1 else [])
    for kind, word, names in bar(jobs, "ablations"):
        other = copy.deepcopy(model)
        parts: dict[str, nn.Module] = {**named_primaries(other), **named_layers("ablate", other)}
        reasons = [take_away(kind, parts[name], frozen.get(name), seed) for name in names]
        if kind == NO_SQUASH and whole.many:
            left_out[kind, word] = "lengths that may be above one have no threshold"
        elif all(reasons):
            left_out[kind, word] = reasons[-1]
        else:
            rows.append(compared(kind, word, whole, evaluate(other, data)))
    return Ablations(whole.count, whole.accuracy, _interval(whole), tuple(rows), left_out)


def compared(kind: str, layer: str, whole: Evaluation, without: Evaluation) -> Ablation:
    """The accuracy lost between two evaluations of the same examples."""
    worse, better = int((whole.right & ~without.right).sum()), int((without.right & ~whole.right).sum())
    lost = whole.accuracy - without.accuracy
    interval = paired_interval(worse, better, whole.count)
    return Ablation(kind, layer, without.accuracy, _interval(without), lost, interval)


def paired_interval(worse: int, better: int, count: int, z: float = 1.959964) -> tuple[float, float]:
    """The 95 % interval of (worse - better) / count for paired answers (Agresti, Min 2005).

    worse, better: the number of answers that changed for the worse and for the better. Half an example is added to each
    of the four cells, because Wald's interval is empty if no answer changed.
    """
    total = count + 2
    difference, changed = worse - better, worse + better + 1
    half = z * math.sqrt(changed - difference**2 / total) / total
    return max(-1.0, difference / total - half), min(1.0, difference / total + half)


def take_away(kind: str, part: nn.Module, frozen: Tensor | None, seed: int = 0) -> str:
    """Disable this part of a layer in place. Returns the reason if this is not possible, otherwise None."""
    if isinstance(part, PrimaryCapsules):
        if part.activations is not None:
            return "its poses are not squashed"
        part.squash = "none"
        return ""
    assert isinstance(part, RoutedLayer)
    routing = part.routing
    if kind == "one iteration":
        if routing.iterations == 1:
            return f"{routing.name} has one iteration already"
        routing.iterations = 1
    elif kind == NO_SQUASH:
        if not isinstance(routing, Dynamic | Attention):
            return f"{routing.name} has no squash"
        routing.squash = "none"
    elif kind == "no transform":
        return _without_transform(part)
    else:
        chosen = {"uniform": _uniform, "random": _random(seed), "frozen": _frozen(frozen, prior_of(routing))}[kind]
        leaky = routing.leaky

        def fixed(scores: Tensor, mask: Tensor | None, kept: Tensor | None, over_parents: OverParents) -> Tensor:
            return chosen(scores, mask, over_parents, leaky)

        vars(routing)["compete"] = fixed  # this object only, not its class
    return ""


Choose = Callable[[Tensor, Tensor | None, OverParents, bool], Tensor]


def _uniform(scores: Tensor, mask: Tensor | None, over_parents: OverParents, leaky: bool) -> Tensor:
    return compete(torch.zeros_like(scores), mask, None, over_parents, leaky=leaky)


def _random(seed: int) -> Choose:
    """Couplings drawn uniformly from all distributions, once for each child; the same in all independent windows."""

    def choose(scores: Tensor, mask: Tensor | None, over_parents: OverParents, leaky: bool) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        shape = (*over_parents.out, *scores.shape[-2:])
        drawn = torch.empty(shape).exponential_(generator=generator).log().to(scores)
        return compete(over_parents.for_windows(drawn, scores), mask, None, over_parents, leaky=leaky)

    return choose


def _frozen(couplings: Tensor | None, prior: Tensor | None) -> Choose:
    def choose(scores: Tensor, mask: Tensor | None, over_parents: OverParents, leaky: bool) -> Tensor:
        assert couplings is not None
        whole = couplings if prior is None else couplings + prior
        return mask_fill(over_parents.for_windows(whole.to(scores), scores), mask, None, 0)

    return choose


@torch.no_grad()
def _without_transform(layer: RoutedLayer) -> str:
    """Identity matrices and no bias."""
    votes = layer.transform
    if not isinstance(votes, FullVotes | SharedVotes | FactorizedVotes | MatrixVotes):
        return f"{type(votes).__name__} has no matrices"
    if votes.in_dim != votes.out_dim:
        return f"poses of {votes.in_dim} numbers cannot be votes of {votes.out_dim}"
    votes.normalize = False
    for name, weight in votes.named_parameters():
        weight.copy_(torch.zeros_like(weight) if name == "bias" else torch.eye(weight.shape[-1]).expand_as(weight))
    return ""


def _interval(result: Evaluation) -> tuple[float, float]:
    return wilson_interval(result.count - result.errors, result.count)
