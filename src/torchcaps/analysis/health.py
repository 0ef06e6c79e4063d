"""The health of routing in a trained network: dead capsules, statistics of couplings, sensitivity and cost."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from torchcaps._core.progress import bar
from torchcaps._core.types import Capsules
from torchcaps.analysis.cost import GradientNorms, IterationCost, Loss, gradient_norms, iteration_costs
from torchcaps.analysis.couplings import CouplingFacts, CouplingTally, prior_of
from torchcaps.analysis.evaluate import batches, eval_mode
from torchcaps.analysis.layers import CLASSES, children_of_layers, named_layers, named_primaries
from torchcaps.analysis.moves import Mirror, Moves, mirrors, responses
from torchcaps.data import Batch, DatasetExamples, Examples, Labeled, PairSet, split
from torchcaps.data.own import hold_out_share
from torchcaps.layers import PrimaryCapsules, RoutedLayer
from torchcaps.layers.windowed import WindowedLayer
from torchcaps.models import CapsuleModel, TextModel
from torchcaps.routing import Routing

DEAD = 0.1  # a capsule whose activation never reaches this is dead; if activations sum to one, times a uniform share
STARVED = 0.1  # a parent that receives less than this part of a uniform share is starved
SHUFFLES = 8  # of labels, for the value expected by chance
FEW = 64  # examples of measurements on one batch


@dataclass(frozen=True)
class LayerHealth:
    """Health of one routed layer.

    children, parents: their number for one example. activity: the highest activation of each parent type, [j].
    dead_below: parents whose activity is lower count as dead. mirror: the change when the children's poses are negated.
    """

    name: str
    routing: str
    children: int
    parents: int
    activity: Tensor
    dead_below: float
    couplings: CouplingFacts
    mirror: Mirror
    gradients: GradientNorms
    costs: tuple[IterationCost, ...]

    @property
    def dead(self) -> tuple[int, ...]:
        """The parent types that are active on no example."""
        return _below(self.activity, self.dead_below)

    @property
    def starved(self) -> tuple[int, ...]:
        """The parent types that receive less than a tenth of a uniform share of couplings."""
        return _below(self.couplings.mass, STARVED)

    @property
    def gives_classes(self) -> bool:
        return self.name.endswith(CLASSES)


@dataclass(frozen=True)
class PrimaryHealth:
    """Primary capsules: the highest activation of each type, [i]."""

    name: str
    activity: Tensor

    @property
    def dead(self) -> tuple[int, ...]:
        return _below(self.activity, DEAD)


@dataclass(frozen=True)
class Health:
    """All routed layers of a network, its primary capsules, and for images how capsules respond to small moves."""

    examples: int
    classes: tuple[str, ...]
    primaries: tuple[PrimaryHealth, ...]
    layers: tuple[LayerHealth, ...]
    moves: Moves | None


def sample(data: Examples, count: int) -> Examples:
    """At most so many examples: stratified and shuffled; of generated pairs, evenly spaced ones."""
    if isinstance(data, PairSet):
        return data if count >= len(data) else data.shortened(count)
    if isinstance(data, DatasetExamples):
        return hold_out_share("health", data, min(1.0, count / len(data)), 0)[1] if count < len(data) else data
    assert isinstance(data, Labeled)
    chosen: Examples = split(data, [min(count, len(data))])[0]
    return chosen


def health(model: nn.Module, data: Examples, loss: Loss, *, batch_size: int = 16) -> Health:
    """Measure every routed layer on these examples.

    loss: a function of the network's output and the labels, for the norms of gradients. Gradients, moves, signs and
    costs are measured on the first 64 examples.
    """
    layers = named_layers("health", model)
    with eval_mode(model) as device:
        few = data.batch(torch.arange(min(FEW, len(data))))
        few = Batch(few.inputs.to(device), few.labels.to(device))
        with torch.no_grad():
            seen, _ = children_of_layers(model, few.inputs)
        activity = activities(model, data, batch_size)
        couplings = coupling_facts(model, data, batch_size)
        signs, gradients = mirrors(model, few.inputs), gradient_norms(model, few, loss)
        moves = responses(model, few.inputs) if isinstance(model, CapsuleModel) else None
        costs = {name: iteration_costs(layer, seen[name]) for name, layer in layers.items()}
    found = tuple(
        LayerHealth(
            name,
            layer.routing.name,
            children=seen[name].activations[0].numel(),
            parents=parents_of(layer, seen[name]),
            activity=activity[name],
            dead_below=dead_below(layer.routing, len(activity[name])),
            couplings=couplings[name],
            mirror=signs[name],
            gradients=gradients[name],
            costs=costs[name],
        )
        for name, layer in layers.items()
    )
    primaries = tuple(PrimaryHealth(name, activity[name]) for name in named_primaries(model))
    return Health(len(data), data.classes, primaries, found, moves)


def dead_below(routing: Routing, parents: int) -> float:
    """The activation that a live parent reaches: 0.1, or a tenth of a uniform share if activations sum to one."""
    return DEAD / parents if routing.readout == "share" else DEAD


@torch.no_grad()
def parents_of(layer: RoutedLayer, children: Capsules) -> int:
    """The number of parents of an example."""
    one = Capsules(*(None if part is None else part[:1] for part in children))  # type: ignore[arg-type]
    return layer(one).activations[0].numel()


@torch.no_grad()
def activities(model: nn.Module, data: Examples, batch_size: int = 64) -> dict[str, Float[Tensor, " j"]]:
    """The highest activation of each capsule type over all examples and positions, for every capsule layer."""
    found: dict[str, Tensor] = {}

    def note(name: str, module: torch.nn.Module) -> torch.utils.hooks.RemovableHandle:
        def hook(module: torch.nn.Module, arguments: object, given: Capsules) -> None:
            active = given.activations
            if given.mask is not None:
                active = active.masked_fill(~given.mask, 0)
            most = active.flatten(0, -2).amax(0).float().cpu()
            found[name] = torch.maximum(found[name], most) if name in found else most

        return module.register_forward_hook(hook)

    modules: dict[str, PrimaryCapsules | RoutedLayer] = {**named_primaries(model), **named_layers("health", model)}
    handles = [note(name, module) for name, module in modules.items()]
    device = next(model.parameters()).device
    try:
        for batch in batches(data, batch_size):
            model(batch.inputs.to(device))
    finally:
        for handle in handles:
            handle.remove()
    return found


@torch.no_grad()
def coupling_facts(model: nn.Module, data: Examples, batch_size: int = 16) -> dict[str, CouplingFacts]:
    """The statistics of the couplings of each routed layer on these examples."""
    layers = named_layers("health", model)
    texts = isinstance(model, TextModel)
    truth = torch.cat([batch.labels for batch in batches(data, batch_size)])
    one = truth.ndim == 1
    classes = len(data.classes) if one else None
    draws = torch.Generator().manual_seed(0)
    lots = [truth[torch.randperm(len(truth), generator=draws)] for _ in range(SHUFFLES)]
    labels = torch.stack([truth, *lots], -1).split(batch_size)
    tallies = {
        name: CouplingTally(classes, leaky=layer.routing.leaky, alike=texts and not isinstance(layer, WindowedLayer))
        for name, layer in layers.items()
    }
    device = next(model.parameters()).device
    for number, batch in enumerate(bar(batches(data, batch_size), "couplings", len(labels))):
        seen, _ = children_of_layers(model, batch.inputs.to(device))
        for name, layer in layers.items():
            gathered = layer.gather(seen[name])
            steps = layer.routing.trace(layer.vote(gathered), gathered.activations, **gathered.beside)
            prior = prior_of(layer.routing)
            couplings = [step.routed.couplings - (0 if prior is None else prior) for step in steps]
            tallies[name].add(couplings, gathered, labels[number] if one else None)
    return {name: tally.facts() for name, tally in tallies.items()}


def _below(values: Tensor, threshold: float) -> tuple[int, ...]:
    return tuple((values < threshold).nonzero().flatten().tolist())
