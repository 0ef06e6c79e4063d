"""What the commands that question networks share: several runs that see the same images, and tables."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchcaps.models import ImageModel
    from torchcaps.runs import Run


@dataclass(frozen=True)
class Networks:
    """Trained networks by the names of their runs, the first first, and the test part of that run."""

    run: Run
    models: dict[str, ImageModel]
    test: Any


def open_networks(
    command: str, folder: Path, beside: Sequence[Path], data_dir: Path | None, device: str, extra: Path | None = None
) -> tuple[Networks, ImageModel | None]:
    """The runs, all on images of one shape and the same classes, and the network of an extra run."""
    from torchcaps.device import choose_device
    from torchcaps.errors import complaint, shape_text
    from torchcaps.runs import Run, parts_for

    chosen = choose_device(command, device)
    folders = [folder, *beside]
    runs = [Run.open(path) for path in folders]
    others = [*runs[1:], *([] if extra is None else [Run.open(extra)])]
    first = runs[0]
    for run in [first, *others]:
        if run.facts.image_shape is None:
            raise complaint(f"torchcaps {command}", "a run on images", f"{run.folder}, on texts", "Choose another run.")
    for run in others:
        for word, own, other in (
            ("classes", first.facts.classes, run.facts.classes),
            ("images", first.facts.image_shape, run.facts.image_shape),
        ):
            if own != other:
                expected, got = (
                    ", ".join(sizes) if word == "classes" else shape_text(sizes)  # type: ignore[arg-type]
                    for sizes in (own, other)
                )
                raise complaint(str(run.folder), f"{word} {expected}, as in {folder}", got, "Choose another run.")
        if run.facts.fingerprints.get("test") != first.facts.fingerprints.get("test"):
            warnings.warn(f"{run.folder} has another test part: it may have trained on these images", stacklevel=2)
    test = parts_for(first, None, data_dir).test
    if not len(test):
        raise complaint(f"torchcaps {command}", "examples in the test part", "none", "Choose another run.")
    names = [path.resolve().name for path in folders]
    unique = [name if names.count(name) == 1 else str(path) for name, path in zip(names, folders, strict=True)]
    models = {name: run.load_model().to(chosen) for name, run in zip(unique, runs, strict=True)}
    source = None if extra is None else others[-1].load_model().to(chosen)
    return Networks(first, models, test), source


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as they must be, those of numbers to the right."""
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
    (folder / "results.json").write_text(json.dumps(summary, indent=2, allow_nan=False) + "\n")


def print_pictures(paths: Sequence[Path]) -> None:
    for path in paths:
        print(f"picture: {path}", file=sys.stderr)
