"""What the commands take that question a network. Fields are options, their texts the help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from torchcaps.runs.config import Folder


@dataclass(frozen=True)
class Health:
    """What routing does in a trained run, and what is lost without it; pictures and results go into the run folder."""

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """The run folder; a network with capsules."""
    count: Annotated[int, arg(metavar="N")] = 500
    """How many examples of the test part to look at, classes in their proportions."""
    ablate: bool = True
    """Test the network without parts of its routing, too; it is not trained anew."""
    data_dir: Folder = None
    """Where data sets by name are kept."""
    device: Annotated[str, arg(metavar="NAME")] = "auto"
    """auto, cpu, cuda or mps."""
    json: bool = False
    """Print JSON instead of tables."""


@dataclass(frozen=True)
class RunsBeside:
    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """The run folder."""
    beside: Annotated[tuple[Path, ...], arg(metavar="RUN...", help_behavior_hint="")] = ()
    """Other runs on the same images, to compare."""
    count: int = 1000
    """How many test images, drawn by the seed."""
    data_dir: Folder = None
    """Where data sets by name are kept."""
    device: Annotated[str, arg(metavar="NAME")] = "auto"
    """auto, cpu, cuda or mps."""
    seed: int = 0
    """Of all that is drawn: images, targets, random starts, the order of parts."""
    json: bool = False
    """Print JSON instead of tables."""


@dataclass(frozen=True)
class Attack(RunsBeside):
    """Change test images a little, along gradients, so that a run answers wrongly: its accuracy as the changes grow."""

    transfer: Annotated[Path | None, arg(metavar="RUN", help_behavior_hint="")] = None
    """Make the changes on this run instead, and only show them to the others (a black box)."""
    methods: Annotated[tuple[Literal["fgsm", "bim", "pgd"], ...], arg(metavar="METHOD...")] = ("fgsm", "bim")
    """fgsm: one step; bim: several; pgd: several from a random start."""
    epsilons: Annotated[tuple[float, ...], arg(metavar="E...")] = (0.05, 0.1, 0.2, 0.3)
    """The most that a pixel, from 0 to 1, may change."""
    steps: int = 10
    """The steps of bim and pgd."""
    targeted: bool = False
    """Towards a random wrong class of each image, instead of away from the right one."""


@dataclass(frozen=True)
class Jumble(RunsBeside):
    """Shuffle or mirror the parts of test images, or put two side by side: is a run still sure, and right?"""


@dataclass(frozen=True)
class Strange:
    """Tell strange images from those that a run knows: by the error of their reconstruction, and by the confidence."""

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """The run folder."""
    against: Annotated[tuple[str, ...], arg(metavar="WHAT...")] = ("noise", "jumbled", "attacked", "scattered")
    """noise, jumbled, attacked, scattered (an attack's changes at other pixels); or data: a name, folder or file."""
    count: int = 1000
    """How many images of each kind, drawn by the seed."""
    data_dir: Folder = None
    """Where data sets by name are kept."""
    device: Annotated[str, arg(metavar="NAME")] = "auto"
    """auto, cpu, cuda or mps."""
    seed: int = 0
    """Of the draw of images, noise and shuffled parts."""
    json: bool = False
    """Print JSON instead of a table."""
