"""Routing trees: which parts a network found in an image, and to which class each of them was routed.

Routing builds a tree for every image (Sabour, Frosst, Hinton 2017: "a parse tree carved out of a fixed network"): its
leaves are the primary capsules, its root is a class, and a coupling says how much of a child goes to a parent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from torchcaps._core.errors import check_count, input_error
from torchcaps._core.types import Capsules
from torchcaps.analysis.evaluate import in_eval_mode
from torchcaps.analysis.places import part_maps, receptive_fields
from torchcaps.layers import RoutedLayer
from torchcaps.layers.windowed import WindowedLayer
from torchcaps.models import CapsuleModel, ImageModel
from torchcaps.models.base import fit_layer

Box = tuple[int, int, int, int]


@dataclass(frozen=True)
class Level:
    """The capsules of one layer of an image, and how they were routed to the next layer, at all its positions p.

    grid: rows and columns; () without a grid. activations: of all capsules, positions before types, [n]. boxes: the
    pixels that each position sees: top, left, bottom, right. seen: the capsules that the parents at a position look at,
    -1 for padding. couplings: after every iteration t, from each of these to each type of parent.
    """

    grid: tuple[int, ...]
    activations: Float[Tensor, " n"]
    boxes: Int[Tensor, "places 4"]
    seen: Int[Tensor, "p i"]
    couplings: Float[Tensor, "t p i j"]


@dataclass(frozen=True)
class Traced:
    """An image, the activations of its classes after every iteration of the last layer, and all layers."""

    image: Float[Tensor, "c h w"]
    activations: Float[Tensor, "t y"]
    levels: tuple[Level, ...]


@dataclass(frozen=True)
class Node:
    """A capsule of a tree.

    number: its index in the layer; layer 0 is the primary capsules, the last one the classes. place: row and column on
    the grid, box: the pixels it sees (top, left, bottom, right); None if there is only one position, or if it sees the
    whole image.
    """

    layer: int
    number: int
    type: int
    place: tuple[int, ...] | None
    box: Box | None
    activation: float


@dataclass(frozen=True)
class Edge:
    """An edge from a child to a parent; both are indices of nodes.

    couplings: after each iteration. contribution: the last coupling times the child's activation. flow: the fraction of
    the flow into the class that passes this edge. label: the class at the root.
    """

    child: int
    parent: int
    label: int
    couplings: tuple[float, ...]
    contribution: float
    flow: float

    @property
    def coupling(self) -> float:
        return self.couplings[-1]


@dataclass(frozen=True)
class Tree:
    """The strongest paths from the parts of an image to its classes.

    roots: these classes; layers: the number of capsule layers. boxes: the pixels that each position of primary capsules
    sees. flows: the fraction of the flow into the roots, over all edges and not only those kept, from each position.
    """

    image: Float[Tensor, "c h w"]
    activations: Float[Tensor, " y"]
    roots: tuple[int, ...]
    layers: int
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    boxes: Int[Tensor, "places 4"]
    flows: Float[Tensor, " places"]

    @property
    def leaves(self) -> list[Node]:
        """The primary capsules."""
        return [node for node in self.nodes if node.layer == 0]

    def into(self, layer: int) -> list[Edge]:
        """The edges into this layer, the strongest first."""
        chosen = (edge for edge in self.edges if self.nodes[edge.parent].layer == layer)
        return sorted(chosen, key=lambda edge: -edge.flow)


@dataclass(frozen=True)
class CouplingMoves:
    """How the strongest parts of a class were divided among all classes.

    parts: capsules of the layer below. couplings: after every iteration t, of each part n to each class.
    """

    label: int
    parts: tuple[Node, ...]
    couplings: Float[Tensor, "t n y"]
    activations: Float[Tensor, "t y"]


@in_eval_mode
@torch.no_grad()
def trace_image(model: ImageModel, image: Float[Tensor, "c h w"]) -> Traced:
    """Route one image, and record every iteration of every layer."""
    if not isinstance(model, CapsuleModel):
        raise input_error("trace_image", "a model with routing", type(model).__name__, "Use a capsule network.")
    boxes = receptive_fields(model).flatten(0, 1)
    image = image.to(next(model.parameters()).device)
    capsules = model.children_of(image[None])
    levels: list[Level] = []
    for layer in model.routed_layers:
        children = fit_layer(layer, capsules)
        steps = layer.trace(children)
        seen = _seen(layer, children)
        couplings = torch.stack([step.routed.couplings[0] for step in steps]).cpu()
        couplings = couplings.reshape(len(steps), *seen.shape, couplings.shape[-1])
        levels.append(
            Level(tuple(capsules.poses.shape[1:-2]), capsules.activations.flatten().cpu(), boxes, seen, couplings)
        )
        boxes = _joined(boxes, seen, capsules.poses.shape[-2])
        activations = torch.stack([step.routed.activations[0] for step in steps])
        capsules = layer(children)
    return Traced(image.cpu(), activations.cpu(), tuple(levels))


def routing_tree(traced: Traced, labels: Sequence[int] | None = None, most: int = 10, branches: int = 2) -> Tree:
    """The strongest paths from the parts of an image to these classes; default: to the most active one.

    The flow into a parent is divided among its children in proportion to their contributions. A class keeps the `most`
    children with the largest flow, every capsule below it `branches` children.
    """
    check_count("routing_tree", "most", most)
    check_count("routing_tree", "branches", branches)
    top = len(traced.levels)
    final = traced.activations[-1]
    roots = (int(final.argmax()),) if labels is None else tuple(labels)
    nodes = {(top, label): _node(traced, top, label) for label in roots}
    found: list[tuple[int, int, Link]] = []
    for label in roots:
        flows = {label: 1.0}
        for layer in range(top, 0, -1):
            few = most if layer == top else branches
            links = [link for parent in flows.items() for link in _strongest(traced.levels[layer - 1], *parent, few)]
            found += [(layer, label, link) for link in links]
            nodes |= {(layer - 1, link.child): _node(traced, layer - 1, link.child) for link in links}
            flows = {}
            for link in links:
                flows[link.child] = flows.get(link.child, 0.0) + link.flow
    place = {key: number for number, key in enumerate(nodes)}
    edges = [
        Edge(place[layer - 1, link.child], place[layer, link.parent], label, *link[2:]) for layer, label, link in found
    ]
    shares = torch.stack([place_flows(traced, label) for label in roots]).mean(0)
    boxes = traced.levels[0].boxes
    return Tree(traced.image, final, roots, top + 1, tuple(nodes.values()), tuple(edges), boxes, shares)


def tree_maps(model: CapsuleModel, image: Float[Tensor, "c h w"], tree: Tree) -> dict[int, Tensor] | None:
    """For capsules without a position: the pixels that influence each leaf of the tree, by its number."""
    if any(node.box for node in tree.leaves):
        return None
    numbers = [node.number for node in tree.leaves]
    return dict(zip(numbers, part_maps(model, image, numbers), strict=True))


def place_flows(traced: Traced, label: int) -> Float[Tensor, " places"]:
    """The fraction of the flow into a class from each position of the primary capsules."""
    flows = torch.zeros_like(traced.activations[-1])
    flows[label] = 1
    for level in reversed(traced.levels):
        given = _given(level.couplings[-1], level.activations, level.seen.unsqueeze(-1))  # [p i j]
        along = _shares(given, 1) * flows.view(len(level.seen), 1, -1)
        flows = torch.zeros_like(level.activations)
        flows.index_add_(0, level.seen.clamp(min=0).flatten(), along.sum(-1).flatten())
    return flows.view(len(traced.levels[0].boxes), -1).sum(-1)


def coupling_moves(traced: Traced, label: int | None = None, most: int = 8) -> CouplingMoves:
    """How the parts that contribute most to a class (default: the most active) were routed, by iteration."""
    check_count("coupling_moves", "most", most)
    label = int(traced.activations[-1].argmax()) if label is None else label
    level = traced.levels[-1]  # its parents have one position, which sees all children in order
    numbers = (level.couplings[-1, 0, :, label] * level.activations).argsort(descending=True, stable=True)[:most]
    parts = tuple(_node(traced, len(traced.levels) - 1, number) for number in numbers.tolist())
    return CouplingMoves(label, parts, level.couplings[:, 0, numbers], traced.activations)


class Link(NamedTuple):
    """An edge whose ends are indices within their layers."""

    child: int
    parent: int
    couplings: tuple[float, ...]
    contribution: float
    flow: float


def _given(couplings: Tensor, activations: Tensor, seen: Tensor) -> Tensor:
    """The contributions of children: couplings times activations. Negative couplings of learned priors count as 0."""
    return (couplings * activations[seen]).clamp(min=0).masked_fill(seen < 0, 0)


def _shares(given: Tensor, axis: int) -> Tensor:
    """Normalize values to sum to one; zeros stay zero."""
    return given / given.sum(axis, keepdim=True).clamp(min=torch.finfo(given.dtype).tiny)


def _strongest(level: Level, parent: int, flow: float, most: int) -> list[Link]:
    """The children that contribute most to a parent with this flow."""
    place, kind = divmod(parent, level.couplings.shape[-1])
    couplings, seen = level.couplings[:, place, :, kind], level.seen[place]  # [t i], [i]
    given = _given(couplings[-1], level.activations, seen)
    order = given.argsort(descending=True, stable=True)[:most]
    shares = flow * _shares(given, 0)[order]
    rows = (seen[order].tolist(), couplings[:, order].T.tolist(), given[order].tolist(), shares.tolist())
    return [
        Link(child, parent, tuple(moved), gift, share) for child, moved, gift, share in zip(*rows, strict=True) if share
    ]


def _node(traced: Traced, layer: int, number: int) -> Node:
    if layer == len(traced.levels):
        return Node(layer, number, number, None, None, float(traced.activations[-1, number]))
    level = traced.levels[layer]
    place, kind = divmod(number, len(level.activations) // len(level.boxes))
    top, left, bottom, right = level.boxes[place].tolist()
    alone = len(level.boxes) == 1
    where = None if alone else divmod(place, level.grid[-1])
    whole = alone or (top, left, bottom, right) == (0, 0, *traced.image.shape[-2:])
    box = None if whole else (top, left, bottom, right)
    return Node(layer, number, kind, where, box, float(level.activations[number]))


def _seen(layer: RoutedLayer, children: Capsules) -> Tensor:
    """The children that the parents at each position look at, [p i], as indices into the whole grid; -1 for padding."""
    numbers = torch.arange(children.activations[0].numel()).view(children.activations.shape[1:])
    if not isinstance(layer, WindowedLayer):
        return numbers.view(1, -1)
    windows = layer.windows(tuple(children.poses.shape[1:-2]))
    inside = windows.of(numbers[None] + 1) - 1  # padding is zero
    return inside.flatten(1 + layer.dimensions).flatten(0, layer.dimensions)


def _joined(boxes: Tensor, seen: Tensor, types: int) -> Tensor:
    """The pixels that parents see: those of all their children."""
    theirs = boxes[seen.clamp(min=0) // types]  # [p i 4]
    outside = (seen < 0).unsqueeze(-1)
    low = theirs[..., :2].masked_fill(outside, torch.iinfo(boxes.dtype).max).amin(1)
    return torch.cat([low, theirs[..., 2:].masked_fill(outside, 0).amax(1)], -1)
