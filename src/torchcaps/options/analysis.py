"""What the commands take that question a network. Fields are options, their texts the help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from torchcaps.config import Folder


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
