"""The requests of the studio: validated input from the page, results of the library, both as JSON."""

from __future__ import annotations

import time
from typing import Annotated, Any

import torch
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from torchcaps._core.errors import InputError, check_choice, input_error
from torchcaps._core.types import Capsules
from torchcaps.analysis.clusters import trace_clusters
from torchcaps.analysis.lastlayer import last_layer
from torchcaps.analysis.places import part_maps
from torchcaps.analysis.points import make_points
from torchcaps.analysis.reconstruct import check_decoder, draw_from
from torchcaps.analysis.trees import Edge, Node, Tree, routing_tree, trace_image
from torchcaps.analysis.votes import vote_points
from torchcaps.apps.studio.networks import Network
from torchcaps.apps.studio.routings import offered, read_options
from torchcaps.data import ImageSet, stratified_order
from torchcaps.models import CapsuleModel

MOST = 1024  # pixels a side
FIELDS = 20  # of a question
Coordinate = Annotated[float, Field(ge=-1000, le=1000, allow_inf_nan=False)]
Level = Annotated[float, Field(ge=0, le=255, allow_inf_nan=False)]
Row = Annotated[list[Level], Field(min_length=1, max_length=MOST, fail_fast=True)]
Rows = Annotated[list[Row], Field(min_length=1, max_length=MOST, fail_fast=True)]
Channels = Annotated[list[Rows], Field(min_length=1, max_length=16, fail_fast=True)]
LAYOUTS = ("rows", "channels")


def _layout(pixels: Any) -> str:
    """Whether pixels are rows, or rows for each channel, judged by the depth of the first pixel."""
    for _ in range(2):
        pixels = pixels[0] if isinstance(pixels, list) and pixels else None
    return LAYOUTS[isinstance(pixels, list)]


Pixels = Annotated[Annotated[Rows, Tag(LAYOUTS[0])] | Annotated[Channels, Tag(LAYOUTS[1])], Discriminator(_layout)]
Seed = Annotated[int, Field(ge=0, le=2**31 - 1)]
Class = Annotated[int, Field(ge=0, le=100_000)]


class _Asked(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _few(cls, given: Any) -> Any:
        """Count unknown fields first, because pydantic would report each of them."""
        if isinstance(given, dict) and len(given) > FIELDS:
            raise PydanticCustomError("too_long", "too many", {"max_length": FIELDS, "actual_length": len(given)})
        return given


class ClustersAsked(_Asked):
    """Cluster points in the plane."""

    points: Annotated[
        list[Annotated[list[Coordinate], Field(min_length=2, max_length=2)]],
        Field(min_length=2, max_length=400, fail_fast=True),
    ]
    routing: str
    options: dict[str, Any] = {}
    parents: Annotated[int, Field(ge=1, le=8)] = 3
    iterations: Annotated[int, Field(ge=1, le=30)] = 5
    seed: Seed = 0


class DigitAsked(_Asked):
    """Classify an image."""

    network: str
    pixels: Pixels


class ImageAsked(DigitAsked):
    """Analyze a network's processing of an image, for one class; default: the most active one."""

    label: Class | None = None


class PoseAsked(_Asked):
    """Reconstruct from a pose of a class."""

    network: str
    label: Class
    pose: Annotated[list[Coordinate], Field(min_length=1, max_length=1024)]


def points_room(name: str, seed: int) -> dict[str, Any]:
    drawn = make_points(name, seed)
    return {"points": drawn.points.tolist(), "parents": drawn.parents}


def clusters_room(asked: ClustersAsked) -> dict[str, Any]:
    check_choice("clusters", "routing", asked.routing, list(offered()))
    options = read_options(asked.routing, asked.options)
    points = torch.tensor(asked.points, dtype=torch.float64)
    try:
        trace = trace_clusters(points, asked.routing, asked.parents, asked.iterations, seed=asked.seed, **options)
    except InputError:
        raise
    except (RuntimeError, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise input_error("clusters", "points and options that routing can work with", reason, "Change them.") from None
    return trace.as_dict()


def examples_room(network: Network, count: int) -> dict[str, Any]:
    """Fixed images to show a network, balanced and ordered by class; of generated pairs, the first ones."""
    data = network.data
    rows = torch.arange(min(count, len(data)))
    if isinstance(data, ImageSet):
        rows = stratified_order(data.labels)[:count]
        rows = rows[data.labels[rows].argsort(stable=True)]
    batch = data.batch(rows)
    told = []
    for image, labels in zip(batch.inputs, batch.labels.view(len(rows), -1).tolist(), strict=True):
        name = " and ".join(network.classes[label] for label in labels)
        told.append({"label": name, "pixels": network.pixels(image)})
    return {"examples": told}


@torch.no_grad()
def digit_room(network: Network, asked: DigitAsked) -> dict[str, Any]:
    image = network.image(asked.pixels)
    start = time.perf_counter()
    capsules: Capsules = network.model(image[None])
    winner = int(capsules.activations[0].argmax())
    drawing = None
    if network.model.decoder is not None:
        drawing = network.pixels(draw_from(network.model, capsules, torch.tensor([[winner]]))[0, 0])
    pose = capsules.poses[0, winner]
    reach = _reach(float(pose.abs().max()))
    return {
        "activations": capsules.activations[0].tolist(),
        "winner": winner,
        "pose": pose.tolist(),
        "low": -reach,
        "high": reach,
        "drawing": drawing,
        "milliseconds": round(1000 * (time.perf_counter() - start), 2),
    }


@torch.no_grad()
def pose_room(network: Network, asked: PoseAsked) -> dict[str, Any]:
    check_decoder("pose", network.model)
    assert network.model.decoder is not None
    label, dim = _label(network, asked.label), network.model.decoder.dim
    if len(asked.pose) != dim:
        raise input_error("pose", f"{dim} numbers for {network.name}", len(asked.pose), "Send one for each dimension.")
    poses = torch.zeros(1, len(network.classes), dim)
    poses[0, label] = torch.tensor(asked.pose)
    capsules = Capsules(poses, torch.ones(poses.shape[:2]))
    return {"drawing": network.pixels(draw_from(network.model, capsules, torch.tensor([[label]]))[0, 0])}


def tree_room(network: Network, asked: ImageAsked) -> dict[str, Any]:
    image = network.image(asked.pixels)
    traced = trace_image(network.model, image)
    tree = routing_tree(traced, None if asked.label is None else [_label(network, asked.label)])
    maps = {} if network.placed else _maps(network, tree)
    leaves = sum(edge.flow for edge in tree.into(1))
    return {
        "classes": tree.activations.tolist(),
        "label": tree.roots[0],
        "iterations": len(traced.activations),
        "nodes": [_node(number, node, tree, network, maps.get(number)) for number, node in enumerate(tree.nodes)],
        "edges": [_edge(edge) for edge in tree.edges],
        "shown_share": leaves,
    }


def votes_room(network: Network, asked: DigitAsked) -> dict[str, Any]:
    found = vote_points(last_layer(network.model, network.image(asked.pixels), "votes"))
    names = [network.classes[label] for label in found.classes]
    listed = ", ".join(names[:-1]) + f" and {names[-1]}" if len(names) > 1 else names[0]
    text = f"What the {found.children} most active parts vote for {listed}: {found.share:.0%} of it lies in this plane."
    return {"points": found.points.tolist(), "parents": len(names), "text": text}


def _label(network: Network, label: int) -> int:
    if label >= len(network.classes):
        expected = f"a class from 0 to {len(network.classes) - 1}"
        raise input_error(network.name, expected, label, "Send the number of a class.")
    return label


def _reach(largest: float) -> float:
    """The range of sliders: 0.75, or a quarter beyond the largest number, in steps of 0.25."""
    return max(0.75, -(-1.25 * largest // 0.25) * 0.25)


def _node(number: int, node: Node, tree: Tree, network: Network, picture: Any) -> dict[str, Any]:
    last = tree.layers - 1
    kind = "part" if node.layer == 0 else "class" if node.layer == last else "middle"
    name = network.classes[node.type] if kind == "class" else f"type {node.type}"
    x = y = width = height = None
    if node.box is not None:
        top, left, bottom, right = node.box
        x, y, width, height = (left + right) / 2, (top + bottom) / 2, right - left, bottom - top
    return {
        "id": number,
        "layer": node.layer,
        "kind": kind,
        "name": name,
        "x": x,
        "y": y,
        "width": width,
        "height": height,
        "activation": node.activation,
        "map": picture,
    }


def _edge(edge: Edge) -> dict[str, Any]:
    return {"child": edge.child, "parent": edge.parent, "couplings": list(edge.couplings), "flow": edge.flow}


def _maps(network: Network, tree: Tree) -> dict[int, Any]:
    """The influence of pixels on each part, for parts that see the whole image: rows of integers from 0 to 255."""
    assert isinstance(network.model, CapsuleModel)
    leaves = {number: node.number for number, node in enumerate(tree.nodes) if node.layer == 0}
    if not leaves:
        return {}
    maps = part_maps(network.model, tree.image, list(leaves.values()))
    shares = maps / maps.amax((1, 2), keepdim=True).clamp(min=torch.finfo(maps.dtype).tiny)
    return dict(zip(leaves, (shares * 255).round().int().tolist(), strict=True))
