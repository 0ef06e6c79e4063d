"""What the commands beside training take. Fields are options, their texts the help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from torchcaps.config import Count, Folder, Name


@dataclass(frozen=True)
class Evaluate:
    """Test a run: accuracy, error with its 95 % interval, a table of classes; pictures go into the run folder."""

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """The run folder."""
    data: Annotated[str | None, arg(metavar="DATA", help_behavior_hint="")] = None
    """Other data than the run's own: a name, a folder or a file. All of a folder or file is used."""
    floor: bool = False
    """Of the run's own texts, also: what a logistic regression on their words reaches (TF-IDF, scikit-learn)."""
    part: Literal["test", "validation", "train"] = "test"
    """The part of the data."""
    data_dir: Folder = None
    """Where data sets by name are kept."""
    device: Annotated[str, arg(metavar="NAME")] = "auto"
    """auto, cpu, cuda or mps."""
    json: bool = False
    """Print JSON instead of tables."""
    pictures: bool = True
    """Draw the confusion matrix, mistakes and reconstructions."""


@dataclass(frozen=True)
class TextInputs:
    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """The run folder; explain and similar need one of text-a or text-b."""
    inputs: Annotated[Positional[tuple[str, ...]], arg(metavar="INPUT...")]
    """Texts, files of them (tables, or a text in each line), or - for the lines of standard input."""
    text: Name = None
    """The column of a table that holds texts; left out, as in training."""
    encoding: Annotated[str, arg(metavar="NAME")] = "utf-8"
    """The encoding of files of texts."""
    json: bool = False
    """Print JSON instead of a table."""


@dataclass(frozen=True)
class Predict(TextInputs):
    """Classify pictures or texts with a trained run."""

    inputs: Annotated[Positional[tuple[str, ...]], arg(metavar="INPUT...")]
    """Picture files, and folders of them. For texts: the texts themselves, files of them (tables, or a text in each
    line), or - for the lines of standard input."""
    device: Annotated[str, arg(metavar="NAME")] = "auto"
    """auto, cpu, cuda or mps."""


@dataclass(frozen=True)
class Explain(TextInputs):
    """Show which n-grams of a text decided: those with the strongest connection to the class it was given."""

    top: int = 5
    """How many n-grams to show for each class."""
    html: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """Write a page with all texts, words shaded by their strength."""


@dataclass(frozen=True)
class Similar(TextInputs):
    """Show for each text those most like it, compared by their class capsules."""

    top: int = 3
    """How many to show for each."""


@dataclass(frozen=True)
class List:
    """What there is: models, routings, datasets or runs."""

    what: Annotated[Positional[Literal["models", "routings", "datasets", "runs"]], arg(metavar="WHAT")]
    """models, routings, datasets or runs."""
    folder: Path = Path("runs")
    """Where to look for runs."""


@dataclass(frozen=True)
class Bench:
    """Time layers and models against textbook versions of themselves that give the same numbers, in turns."""

    cases: Annotated[Positional[tuple[str, ...]], arg(metavar="CASE...")] = ()
    """dense, dense-last, em-window, em-grid, capsnet, matrix, text; left out, all of them."""
    repeats: int = 5
    """Timed runs of each; medians are shown, with the shortest and longest."""
    threads: Count = None
    """Threads to use; left out, as torch has it."""
    memory: bool = True
    """Measure peak memory too, in processes of their own."""
    json: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """Write the figures here too."""
    growth: Annotated[Path | None, arg(metavar="PICTURE", help_behavior_hint="")] = None
    """Instead: draw how the cost grows with batch, children, parents, pose size and iterations."""


Picture = Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")]


@dataclass(frozen=True)
class DrawClusters:
    """Draw a routing at work on points in the plane: the couplings and centres of every iteration, and what it
    descends."""

    routing: Annotated[str, arg(metavar="NAME")] = "em"
    """dynamic, kmeans, entropy, gaussian or em; its options behind commas, as in gaussian,covariance=full."""
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
    """dynamic, kmeans, entropy, gaussian or em; its options behind commas."""
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
    model: Literal["text-a", "text-b"] = "text-b"
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
