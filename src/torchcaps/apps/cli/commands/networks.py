"""Shared by commands that compare networks: several runs on the same images, and tables."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from torchcaps._core.fields import as_json
from torchcaps._core.files import atomic_write
from torchcaps._core.neutral import shown
from torchcaps.runs.config import Folder

if TYPE_CHECKING:
    from torchcaps.models import ImageModel
    from torchcaps.runs.run import Run


@dataclass(frozen=True)
class RunsBeside:
    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """The run folder."""
    beside: Annotated[tuple[Path, ...], arg(metavar="RUN...", help_behavior_hint="")] = ()
    """Other runs on the same images, for comparison."""
    count: int = 1000
    """Number of random test images."""
    data_dir: Folder = None
    """Folder of data sets by name."""
    device: Annotated[str, arg(metavar="NAME")] = "auto"
    """Device: auto, cpu, cuda or mps."""
    seed: int = 0
    """Seed of all random choices: images, targets, random starts, order of parts."""
    json: bool = False
    """Print JSON instead of tables."""

    def networks(self, command: str, source: Path | None = None) -> Networks:
        """The networks of these runs; see `open_networks`."""
        return open_networks(command, self.run, self.beside, self.data_dir, self.device, source)


@dataclass(frozen=True)
class Networks:
    """Trained networks by the names of their runs, the test part of the first, and the network that is attacked."""

    run: Run
    models: dict[str, ImageModel]
    test: Any
    source: ImageModel | None = None


def open_networks(
    command: str, folder: Path, beside: Sequence[Path], data_dir: Path | None, device: str, source: Path | None = None
) -> Networks:
    """Open runs on images of one shape and with the same classes."""
    from torchcaps._core.device import choose_device
    from torchcaps._core.errors import input_error
    from torchcaps.runs.parts import parts_for
    from torchcaps.runs.run import Run

    chosen = choose_device(command, device)
    folders = [folder, *beside, *([] if source is None else [source])]
    runs = [Run.open(path) for path in folders]
    for run in runs:
        if run.metadata.kind != "images":
            got = f"{run.folder}, on {run.metadata.kind}"
            raise input_error(f"torchcaps {command}", "a run on images", got, "Choose another run.")
        _check_alike(runs[0], run)
    test = parts_for(runs[0], None, data_dir).test
    if not len(test):
        raise input_error(f"torchcaps {command}", "examples in the test part", "none", "Choose another run.")
    models = [run.load_model().to(chosen) for run in runs]
    last = None if source is None else models.pop()
    places = [path.resolve() for path in [folder, *beside]]
    if len(set(places)) < len(places):
        raise input_error(f"torchcaps {command}", "different runs", "the same one", "Name each run once.")
    names = [path.name for path in places]
    unique = [name if names.count(name) == 1 else str(path) for name, path in zip(names, folders, strict=False)]
    return Networks(runs[0], dict(zip(unique, models, strict=True)), test, last)


def _check_alike(first: Run, run: Run) -> None:
    """Raise an `InputError` for a run on other classes or images of another shape; warn if its test part differs."""
    from torchcaps._core.errors import input_error, shape_text

    def told(run: Run) -> tuple[str, str]:
        return f"classes {', '.join(run.metadata.classes)}", f"images {shape_text(run.metadata.image_shape or ())}"

    for expected, got in zip(told(first), told(run), strict=True):
        if expected != got:
            raise input_error(str(run.folder), f"{expected}, as in {first.folder}", got, "Choose another run.")
    if run.metadata.fingerprints.get("test") != first.metadata.fingerprints.get("test"):
        warnings.warn(f"{run.folder} has another test part: it may have trained on these images", stacklevel=3)


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table with columns of minimal width, numbers right-aligned."""
    rows = [[shown(cell) for cell in row] for row in rows]
    lines = [""] * (1 + len(rows))
    for title, *cells in zip(head, *rows, strict=True):
        side = ">" if all(cell[:1].isdigit() for cell in cells) and title != head[0] else "<"
        width = max(map(len, [title, *cells]))
        lines = [f"{line}{cell:{side}{width}}  " for line, cell in zip(lines, [title, *cells], strict=True)]
    print("\n".join(line.rstrip() for line in lines))


def percent(rate: float, interval: tuple[float, float]) -> str:
    return f"{rate:.1%} ({interval[0]:.1%} to {interval[1]:.1%})"


def write_results(folder: Path, summary: Mapping[str, object]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(folder / "results.json", as_json(summary) + "\n")


def print_pictures(paths: Sequence[Path]) -> None:
    for path in paths:
        print(f"picture: {path}", file=sys.stderr)
