"""The routed layers of a network by name, and their inputs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from torchcaps._core.errors import input_error
from torchcaps._core.types import Capsules
from torchcaps.layers import PrimaryCapsules, RoutedLayer
from torchcaps.models import MODELS, CapsuleModel, TextCapsules
from torchcaps.models.ngrams import Branch

CLASSES = "classes"


def routes(model: nn.Module) -> bool:
    """Whether the network has a routed layer."""
    return any(isinstance(module, RoutedLayer) for module in model.modules())


def named_layers(owner: str, model: Any) -> dict[str, RoutedLayer]:
    """The routed layers in order; the last one outputs the classes. For texts, those of each branch."""
    if isinstance(model, CapsuleModel):
        return _named(model.routed_layers)
    if isinstance(model, TextCapsules):
        branches = {branch.ngram: branch for branch in model.branches if isinstance(branch, Branch)}
        return {
            f"{ngram}-grams {name}": layer
            for ngram, branch in branches.items()
            for name, layer in _named(branch.routed_layers).items()
        }
    if routes(model):
        return _named([module for module in model.modules() if isinstance(module, RoutedLayer)])
    remedy = f"Choose a run of {', '.join(name for name, kind in MODELS.items() if kind.routes)}."
    raise input_error(owner, "a network that routes capsules", type(model).__name__, remedy)


def _named(layers: list[RoutedLayer]) -> dict[str, RoutedLayer]:
    return {CLASSES if layer is layers[-1] else f"layer {number}": layer for number, layer in enumerate(layers, 1)}


def named_primaries(model: Any) -> dict[str, PrimaryCapsules]:
    """The primary capsules; for texts, those of each branch."""
    if isinstance(model, TextCapsules):
        branches = [branch for branch in model.branches if isinstance(branch, Branch)]
        return {f"{branch.ngram}-grams primary": branch.primary for branch in branches}
    if isinstance(model, CapsuleModel):
        return {"primary": model.primary}
    found = [module for module in model.modules() if isinstance(module, PrimaryCapsules)]
    return {f"primary {number}" if number > 1 else "primary": module for number, module in enumerate(found, 1)}


@contextmanager
def given_children(layers: dict[str, RoutedLayer]) -> Iterator[dict[str, Capsules]]:
    """A dictionary that receives the children of each layer when the network is called."""
    seen: dict[str, Capsules] = {}

    def note(name: str) -> Any:
        def hook(layer: RoutedLayer, arguments: tuple[Capsules]) -> None:
            seen[name] = arguments[0]

        return hook

    handles = [layer.register_forward_pre_hook(note(name)) for name, layer in layers.items()]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def children_of_layers(model: nn.Module, inputs: Tensor) -> tuple[dict[str, Capsules], Capsules]:
    """The input of each routed layer for these inputs, by its name, and the output of the network."""
    with given_children(named_layers("children_of_layers", model)) as seen:
        answer: Capsules = model(inputs)
    return seen, answer
