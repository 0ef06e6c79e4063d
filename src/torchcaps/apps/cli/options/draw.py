"""What draw takes. Fields are options, their texts the help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from torchcaps.runs.config import Count, Folder, Name

Picture = Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")]


@dataclass(frozen=True)
class DrawClusters:
    """Draw a routing of points in the plane: couplings and centers of every iteration, and the objective."""

    routing: Annotated[str, arg(metavar="NAME")] = "em"
    """dynamic, kmeans, entropy, gaussian, em, heinsen, variational, kde or inverted; its options behind commas, as in
    gaussian,covariance=full."""
    beside: Name = None
    """A second routing on the same points, from the same start."""
    points: Literal["blobs", "ellipses", "directions", "overlap"] = "blobs"
    """Round groups, long ones, rays from the origin, or groups that overlap."""
    iterations: int = 5
    """Routing iterations."""
    parents: Count = None
    """Clusters; left out, as many as there are groups of points."""
    seed: int = 0
    """Of the points and of the start."""
    gif: bool = False
    """A moving picture instead: a frame for each iteration."""
    out: Picture = None
    """Where to write; left out, clusters.png or clusters.gif here."""
    json: bool = False
    """Print every iteration as JSON instead of a table."""


@dataclass(frozen=True)
class DrawMembership:
    """Draw how much of each point belongs to whom when a routing has ended: fuzzy clusters."""

    routing: Annotated[str, arg(metavar="NAME")] = "gaussian,covariance=spherical"
    """dynamic, kmeans, entropy, gaussian, em, heinsen, variational, kde or inverted; its options behind commas."""
    points: Literal["blobs", "ellipses", "directions", "overlap"] = "overlap"
    """Round groups, long ones, rays from the origin, or groups that overlap."""
    iterations: int = 8
    """Routing iterations."""
    parents: Count = None
    """Clusters; left out, as many as there are groups of points."""
    seed: int = 0
    """Of the points and of the start."""
    out: Picture = None
    """Where to write; left out, membership.png here."""


@dataclass(frozen=True)
class DrawRun:
    run: Annotated[Path | None, arg(metavar="RUN", help_behavior_hint="")] = None
    """The run folder of a network of capsules for images."""
    example: int = 0
    """The number of the image, from 0 on."""
    part: Literal["test", "validation", "train"] = "test"
    """The part of the data that it is taken from."""
    data_dir: Folder = None
    """Where data sets by name are kept."""
    out: Picture = None
    """Where to write; left out, the name of the picture with .png, here."""
    json: bool = False
    """Print JSON instead of a table."""


@dataclass(frozen=True)
class DrawConvergence(DrawRun):
    """Draw how far votes are from the mean of each class, after every routing iteration (Hinton 2018, figure 2)."""


@dataclass(frozen=True)
class DrawAgreement(DrawRun):
    """Draw the votes for two classes as arrows: a child's coupling grows where its vote agrees with the parent."""

    child: Count = None
    """The child to mark; left out, one that belongs to the first class and opposes the second."""


@dataclass(frozen=True)
class DrawSplit(DrawRun):
    """Draw how one child is split among its parents, and what one parent receives from all children."""

    child: Count = None
    """The child; left out, the one that gives the parent most."""
    parent: Count = None
    """The parent, by the number of its class from 0 on; left out, the most active one."""


@dataclass(frozen=True)
class DrawWeights:
    """Draw full against shared weights, with the numbers of matrices of a layer of these sizes."""

    children: int = 1152
    """Children."""
    parents: int = 10
    """Parents."""
    child_dim: int = 8
    """The size of a child's pose."""
    parent_dim: int = 16
    """The size of a parent's pose."""
    out: Picture = None
    """Where to write; left out, weights.png here."""


@dataclass(frozen=True)
class DrawTextModel:
    """Draw a text model layer by layer, with the shapes that a text has on its way."""

    text: Annotated[Positional[str], arg(metavar="TEXT")] = "the plot is thin but the acting is a joy"
    """The text."""
    model: Literal["text", "text-a", "text-b"] = "text-b"
    """Capsule-A (3-grams) or Capsule-B (3-, 4- and 5-grams), untrained, with two classes."""
    run: Annotated[Path | None, arg(metavar="RUN", help_behavior_hint="")] = None
    """The model of this run instead."""
    out: Picture = None
    """Where to write; left out, text-model.png here."""


@dataclass(frozen=True)
class DrawViewpoints:
    """Draw one thing from all sides: elevations down, azimuths across, and which views a split by viewpoint shows."""

    data: Annotated[Positional[str], arg(metavar="DATA")] = "toys"
    """Data that know their viewpoints: toys, toys-full, smallnorb, ..."""
    kind: Name = None
    """The class; left out, the first one."""
    instance: Count = None
    """Which one of its class; left out, the first one there is in the test part."""
    by: Literal["azimuth", "elevation"] = "azimuth"
    """What the split is by."""
    data_dir: Folder = None
    """Where data sets by name are kept."""
    out: Picture = None
    """Where to write; left out, viewpoints.png here."""
