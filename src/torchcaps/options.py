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
class Attack:
    """Change test images a little, along gradients, so that a run answers wrongly: its accuracy as the changes grow."""

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """The run folder."""
    beside: Annotated[tuple[Path, ...], arg(metavar="RUN...")] = ()
    """Other runs on the same images, to compare."""
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
    count: int = 1000
    """How many test images, drawn by the seed."""
    data_dir: Folder = None
    """Where data sets by name are kept."""
    device: Annotated[str, arg(metavar="NAME")] = "auto"
    """auto, cpu, cuda or mps."""
    seed: int = 0
    """Of the draw of images, targets and random starts."""
    json: bool = False
    """Print JSON instead of tables."""


@dataclass(frozen=True)
class Jumble:
    """Shuffle or mirror the parts of test images, or put two side by side: is a run still sure, and right?"""

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """The run folder."""
    beside: Annotated[tuple[Path, ...], arg(metavar="RUN...")] = ()
    """Other runs on the same images, to compare."""
    count: int = 1000
    """How many test images, drawn by the seed."""
    data_dir: Folder = None
    """Where data sets by name are kept."""
    device: Annotated[str, arg(metavar="NAME")] = "auto"
    """auto, cpu, cuda or mps."""
    seed: int = 0
    """Of the draw of images, and of how their parts are shuffled."""
    json: bool = False
    """Print JSON instead of a table."""


@dataclass(frozen=True)
class Strange:
    """Tell strange images from those that a run knows: by the error of their reconstruction, and by the confidence."""

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """The run folder."""
    against: Annotated[tuple[str, ...], arg(metavar="WHAT...")] = ("noise", "jumbled", "attacked", "scattered")
    """Strange images: noise, jumbled, attacked or scattered (the changes of an attack at other pixels, to compare with
    it), made from the test part; or other data: a name, folder or file."""
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
