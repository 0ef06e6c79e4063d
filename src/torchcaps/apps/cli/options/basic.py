"""What evaluate, predict, explain, similar, list and bench take. Fields are options, their texts the help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from torchcaps.runs.config import Count, Folder, Name


@dataclass(frozen=True)
class Evaluate:
    """Test a run: accuracy, error with its 95 % interval, a table of classes; pictures go into the run folder."""

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """The run folder."""
    data: Annotated[str | None, arg(metavar="DATA", help_behavior_hint="")] = None
    """Other data than the run's own: a name, a folder or a file. All of a folder or file is used."""
    baseline: bool = False
    """Of the run's own texts, also: what a logistic regression on their words reaches (TF-IDF, scikit-learn)."""
    part: Literal["test", "validation", "train"] = "test"
    """The part of the data."""
    patches: bool = False
    """Of a network that crops (--option crop): the mean of its answers to 13 windows of each image."""
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
    """The run folder; for texts, explain and similar need one of text, text-a or text-b."""
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
    """Show why: which parts of a picture, or n-grams of a text, decided; of pictures, drawings go into RUN/explain."""

    inputs: Annotated[Positional[tuple[str, ...]], arg(metavar="INPUT...", help_behavior_hint="")] = ()
    """Picture files, and folders of them. For texts: the texts themselves, files of them (tables, or a text in each
    line), or - for the lines of standard input."""
    top: int = 5
    """How many parts or n-grams to list for each class."""
    example: Annotated[int | None, arg(metavar="N", help_behavior_hint="")] = None
    """Of images, instead of files: this one of the test part, counted from 0."""
    label: Name = None
    """Of images: the class to look at; left out, the most active."""
    grid: bool = False
    """Of images: draw right answers and mistakes of the test part; where images show two things, take them apart."""
    factors: bool = False
    """Of images: which dimension of a pose follows shift, rotation, scale and thickness, on changed test images."""
    data_dir: Folder = None
    """Where data sets by name are kept."""
    html: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """Of texts: write a page with all of them, words shaded by their strength."""


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
    """dense, dense-last, em-window, em-grid, capsnet, matrix, text, export (a file for onnxruntime against
    torch); left out, all of them."""
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
    device: Annotated[str, arg(metavar="NAME")] = "cpu"
    """cpu or cuda: the same table on a GPU, with the same check of numbers first."""


@dataclass(frozen=True)
class Doctor:
    """Tell what this machine can do: compiler, native functions, Triton, GPU, threads; and which backends serve."""

    device: Annotated[str, arg(metavar="NAME")] = "auto"
    """auto, cpu, cuda or mps."""
