"""Statistics of the couplings of a layer: entropy, dependence on the input, and what each parent receives.

A child's couplings are a distribution over the parents that compete for it: those of its own window or of all windows
that contain it, as `over_parents` of the layer says. With a leaky routing the leak counts as one more parent. A prior
learned by attention is excluded, so that only the competition is measured.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from torchcaps._core.types import Couplings
from torchcaps.functional import safe_divide
from torchcaps.routing import Routing
from torchcaps.routing.attention import Attention
from torchcaps.routing.competition import OverParents, over_own_parents
from torchcaps.votes.job import Gathered

BINS = 50  # of the histogram, from 0 to 1
POLAR = 0.9  # a larger coupling counts as polarized


@dataclass(frozen=True)
class CouplingFacts:
    """Statistics of the couplings of a layer on all examples.

    entropy: for each iteration the mean over children of -sum c log c / log(parents): 1 is uniform, 0 all to one
    parent. polarized: for each iteration the fraction of children whose largest coupling is above 0.9. active_entropy:
    the entropy of the last iteration, weighted by the children's activations.

    dependence: the fraction of the entropy of mean couplings that the input explains, 1 - mean H(c) / H(mean c): 0
    means the same couplings for every input, 1 that the input alone decides. parse_tree: the mutual information between
    a child's parent and the class of the input, minus that of shuffled labels, divided by its maximum: 1 means that in
    each class every child has one parent, a different one in every class; 0 means no more than with shuffled labels.
    None for multi-label data.

    mass: the couplings that each parent receives, as a multiple of a uniform share, [j]. even: a uniform coupling.
    histogram: the number of couplings of the last iteration in each of 50 bins from 0 to 1. mean: the mean couplings in
    the layout of the routing: [i j], or [h w i j] if parents compete over a grid.
    """

    entropy: tuple[float, ...]
    polarized: tuple[float, ...]
    active_entropy: float
    dependence: float
    parse_tree: float | None
    mass: Tensor
    even: float
    histogram: Tensor
    mean: Tensor


def prior_of(routing: Routing) -> Tensor | None:
    """The prior that attention has learned and adds to its couplings, [i j]; None in other routings."""
    return routing.prior if isinstance(routing, Attention) else None


def child_entropy(couplings: Couplings, over_parents: OverParents = over_own_parents) -> Float[Tensor, "*b i"]:
    """The entropy of each child's couplings, in nats; the leak counts as one more parent."""
    leak = (1 - over_parents(couplings, torch.sum)).clamp(min=0)
    total = over_parents(torch.xlogy(couplings, couplings), torch.sum) + torch.xlogy(leak, leak)
    return -total.squeeze(-1)


class CouplingTally:
    """Accumulates the couplings of a layer, batch by batch.

    classes: their number, or None for multi-label data. leaky: whether couplings may leak to no parent. alike: whether
    all children are exchangeable, as in a text, where the same position holds a different word in every example.
    """

    def __init__(self, classes: int | None = None, *, leaky: bool = False, alike: bool = False) -> None:
        self.classes, self.leaky, self.alike = classes, leaky, alike
        self.over_parents: OverParents = over_own_parents
        self.children = 0.0
        self.evenness: Tensor = torch.zeros((), dtype=torch.float64)  # [r 2]: relative entropy, polarized children
        self.weighed = torch.zeros(2, dtype=torch.float64)  # relative entropy times activation, activation
        self.histogram = torch.zeros(BINS, dtype=torch.float64)
        self.sums: Tensor | None = None  # of couplings for each labeling and class, [s y *rest i j]
        self.counts: Tensor  # [s y *rest i]
        self.nats: Tensor  # of entropies, [*rest i]

    def add(self, steps: list[Couplings], gathered: Gathered, labels: Tensor | None = None) -> None:
        """Add the couplings [*b i j] after each iteration of these children; labels [b s] if inputs have one class.

        The first column of labels is the truth; the others are shuffled, to estimate the value expected by chance.
        """
        over_parents = self.over_parents = gathered.over_parents
        steps = [couplings.cpu() for couplings in steps]  # not every device has float64
        last = steps[-1]
        real = torch.ones_like(last[..., 0]) if gathered.mask is None else gathered.mask.cpu().to(last.dtype)
        once, most = self._once(real, last.shape[-1])
        once = once.where(most > 0, 0)  # a single parent receives everything
        self.children += float(once.sum())
        evenness = []
        for couplings in steps:
            nats = child_entropy(couplings, over_parents)
            relative = safe_divide(nats, most)
            polar = over_parents(couplings, torch.amax).squeeze(-1) > POLAR
            evenness.append(torch.stack([(once * relative).sum(), (once * polar).sum()]))
        self.evenness = self.evenness + torch.stack(evenness)
        active = once * gathered.activations.cpu()
        self.weighed += torch.stack([(active * relative).sum(), active.sum()])
        self.histogram += torch.histc(last[real > 0].float().clamp(0, 1), BINS, 0, 1).double()
        self._add_means(last, real, nats, labels)

    def _once(self, real: Tensor, parents: int) -> tuple[Tensor, Tensor]:
        """A weight that counts a child once, however many windows contain it, and its maximum entropy."""
        rivals = self.over_parents(real.unsqueeze(-1).expand(*real.shape, parents), torch.sum).squeeze(-1)
        once = safe_divide(real * parents, rivals).double()
        return once, (rivals + self.leaky).clamp(min=1).log()

    def _add_means(self, couplings: Tensor, real: Tensor, nats: Tensor, labels: Tensor | None) -> None:
        """Sums over all axes that count as further examples of the same child."""
        batch = len(couplings)
        if self.over_parents.local:  # independent windows count as examples
            last = couplings.ndim - (2 if self.alike else 3)
            couplings, real, nats = (part.flatten(0, last) for part in (couplings, real, nats))
            if self.alike:
                couplings, real, nats = (part.unsqueeze(1) for part in (couplings, real, nats))
        groups = torch.zeros(batch, 1, dtype=torch.long) if labels is None else labels
        groups = groups.cpu().repeat_interleave(len(couplings) // batch, 0)
        if self.sums is None:
            size = (groups.shape[1], self.classes or 1, *couplings.shape[1:])
            self.sums = couplings.new_zeros(size, dtype=torch.float64)
            self.counts = self.sums[..., 0].clone()
            self.nats = self.counts[0, 0].clone()
        given, there = (couplings * real.unsqueeze(-1)).double(), real.double()
        for sums, counts, group in zip(self.sums, self.counts, groups.T, strict=True):
            sums.index_add_(0, group, given)
            counts.index_add_(0, group, there)
        self.nats += (nats * real).double().sum(0)

    def facts(self) -> CouplingFacts:
        """The statistics of all couplings added so far."""
        assert self.sums is not None
        counts = self.counts[0].sum(0, keepdim=True)  # [1 *rest i]
        means = _mean(self.sums[0].sum(0, keepdim=True), counts)
        once, most = self._once((counts > 0).double(), means.shape[-1])
        overall = child_entropy(means, self.over_parents)
        possible = (once * overall).sum()
        explained = (once * (overall - self.nats / counts.clamp(min=1))).sum().clamp(min=0)
        mass = self.sums[0].flatten(0, -2).sum(0)
        entropy, polarized = (self.evenness / max(self.children, 1.0)).clamp(max=1).mT.tolist()
        return CouplingFacts(
            entropy=tuple(entropy),
            polarized=tuple(polarized),
            active_entropy=float(safe_divide(*self.weighed)),
            dependence=_ratio(explained, possible),
            parse_tree=None if self.classes is None else self._parse_tree(overall, once, most),
            mass=safe_divide(mass, mass.mean()).float(),
            even=_ratio((once * (-most).exp()).sum(), once.sum()),
            histogram=self.histogram,
            mean=means[0].float(),
        )

    def _parse_tree(self, overall: Tensor, once: Tensor, most: Tensor) -> float:
        assert self.sums is not None
        told = []
        for sums, counts in zip(self.sums, self.counts, strict=True):
            within = child_entropy(_mean(sums, counts), self.over_parents)  # [y *rest i]
            chances = safe_divide(counts, counts.sum(0))
            told.append((once * (overall - (chances * within).sum(0))).sum())
        chances = safe_divide(self.counts[0], self.counts[0].sum(0))
        classes = -torch.xlogy(chances, chances).sum(0)
        possible = (once * torch.minimum(classes, most)).sum()
        lucky = torch.stack(told[1:]).mean() if told[1:] else torch.zeros(())
        return _ratio((told[0] - lucky).clamp(min=0), possible - lucky)


def _mean(sums: Tensor, counts: Tensor) -> Tensor:
    return sums / counts.clamp(min=1).unsqueeze(-1)


def _ratio(part: Tensor, whole: Tensor) -> float:
    return float(part / whole) if whole > 1e-6 else 0.0
