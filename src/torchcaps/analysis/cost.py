"""Gradients and cost of a layer: norms of gradients, time and memory of each routing iteration."""

from __future__ import annotations

import copy
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from torchcaps._core.types import Capsules
from torchcaps.analysis.layers import given_children, named_layers
from torchcaps.data import Batch
from torchcaps.layers import RoutedLayer

Loss = Callable[[Capsules, Tensor], Tensor]


@dataclass(frozen=True)
class GradientNorms:
    """The norms of the gradients of the loss for one batch, by a layer's parameters and by its input poses."""

    parameters: float
    poses: float


@dataclass(frozen=True)
class IterationCost:
    """The median time of a layer with so many iterations, and the peak memory in bytes beside its input.

    spread: the interquartile range of the times, in seconds.
    """

    iterations: int
    seconds: float
    peak_bytes: int
    spread: float = 0.0


def gradient_norms(model: nn.Module, batch: Batch, loss: Loss) -> dict[str, GradientNorms]:
    """The norms for each routed layer; the gradients stored in parameters are not changed."""
    layers = named_layers("gradient_norms", model)
    with torch.enable_grad(), given_children(layers) as seen:
        value = loss(model(batch.inputs), batch.labels)
    parts = {name: (list(layer.parameters()), [seen[name].poses]) for name, layer in layers.items()}
    learning = [each for several in parts.values() for part in several for each in part if each.requires_grad]
    found = torch.autograd.grad(value, learning, allow_unused=True)
    squares = {each: _square(gradient) for each, gradient in zip(learning, found, strict=True)}
    return {
        name: GradientNorms(*(math.sqrt(sum(squares.get(each, 0.0) for each in part)) for part in several))
        for name, several in parts.items()
    }


def _square(gradient: Tensor | None) -> float:
    return 0.0 if gradient is None else float(gradient.cpu().double().square().sum())


@torch.no_grad()
def iteration_costs(layer: RoutedLayer, children: Capsules, repeats: int = 5) -> tuple[IterationCost, ...]:
    """The cost of the layer with one iteration, two, and so on up to its own number, timed in turns. Rough figures."""
    layers = []
    for iterations in range(1, layer.routing.iterations + 1):
        layers.append(copy.deepcopy(layer))
        layers[-1].routing.iterations = iterations
    peaks = [peak_bytes(lambda each=each: each(children)) for each in layers]  # type: ignore[misc]  # warms up, too
    times: list[list[float]] = [[] for _ in layers]
    for _ in range(repeats):
        for each, spent in zip(layers, times, strict=True):
            start = time.perf_counter()
            each(children)
            if children.poses.is_cuda:
                torch.cuda.synchronize()
            spent.append(time.perf_counter() - start)
    found = []
    for iterations, (spent, peak) in enumerate(zip(times, peaks, strict=True), 1):
        low, median, high = statistics.quantiles(spent, method="inclusive")
        found.append(IterationCost(iterations, median, peak, high - low))
    return tuple(found)


def peak_bytes(work: Callable[[], Any]) -> int:
    """The peak memory in bytes of tensors created by `work`; temporary buffers inside operations are not seen."""
    with _Living() as living:
        work()
    return living.peak


class _Living(TorchDispatchMode):
    """Counts the bytes of storages from their creation until they are released."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = 0
        self._held: dict[int, tuple[StorageWeakRef, int]] = {}
        self._given: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for given in tree_leaves((args, kwargs)):
            if isinstance(given, Tensor) and (key := given.untyped_storage()._cdata) not in self._held:
                self._given.add(key)
        result = func(*args, **(kwargs or {}))
        self._held = {key: held for key, held in self._held.items() if not held[0].expired()}
        for made in tree_leaves(result):
            if isinstance(made, Tensor):
                storage = made.untyped_storage()
                if storage._cdata not in self._held and storage._cdata not in self._given:
                    self._held[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
        self.peak = max(self.peak, sum(size for _, size in self._held.values()))
        return result
