"""What compare, viewpoint and report take. Fields are options, their texts the help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, UseAppendAction, arg

from torchcaps.runs.config import Folder, TrainConfig


@dataclass(frozen=True)
class Compare(TrainConfig):
    """Train variants of a network on equal terms and say which differences are more than noise.

    All variants see the same examples in the same order, and as often; the options of train hold for all of them.
    Call the same command with the --out that it names to go on where it was interrupted.
    """

    vary: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME=VALUE,...", help_behavior_hint="")] = ()
    """An option of train, or of the model, with the values to compare; may be repeated for all combinations."""
    seeds: int = 3
    """Runs of each variant, with the seeds SEED, SEED + 1, ..."""
    json: bool = False
    """Print JSON instead of a table."""


@dataclass(frozen=True)
class Viewpoint(TrainConfig):
    """Train on some viewpoints and test on new ones: a capsule network beside another that knows the old ones as well.

    Both are trained; where one is better on viewpoints it knows, it is trained again, until it does as well as the
    other. Takes the options of train; call the same command with its --out to go on after an interruption.
    """

    data: Annotated[Positional[str], arg(metavar="DATA")] = "toys"
    """Images that know their viewpoints: toys, toys-full, smallnorb or eth-80."""
    beside: Annotated[str, arg(metavar="NAME")] = "cnn-small"
    """The other model."""
    json: bool = False
    """Print JSON instead of a table."""


@dataclass(frozen=True)
class Report:
    """Write one page on a run: data, training, test, right and wrong cases, what its capsules do, and how it was made.

    What attack, jumble and strange have found of the run before is on it, too. The page is one file that needs no
    network, for screens, phones and paper.
    """

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """The run folder."""
    out: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """The file to write; left out, report.html in the run folder."""
    count: int = 500
    """How many test examples the slower sections look at."""
    data_dir: Folder = None
    """Where data sets by name are kept."""
    device: Annotated[str, arg(metavar="NAME")] = "auto"
    """auto, cpu, cuda or mps."""
