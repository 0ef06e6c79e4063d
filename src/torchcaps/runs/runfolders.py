"""Run folders: a free name for a new run, checks before it is used, and finding of runs."""

from __future__ import annotations

import os
from pathlib import Path

from torchcaps._core.errors import input_error
from torchcaps._core.files import is_inside, is_temporary
from torchcaps._core.locks import LOCK
from torchcaps.runs.config import TrainConfig

BEGUN = {LOCK, "split.json", "vocabulary.json", "metadata.json", "train.log"}  # written before config.json


def next_folder(config: TrainConfig, root: Path = Path("runs")) -> Path:
    """A free folder for a new run: runs/DATA-MODEL, or with -2, -3, ... appended."""
    data = Path(config.data).stem.strip("()") or "data"
    stem = f"{data}-{config.model}" + (f"-{config.routing}" if config.routing else "")
    number = 1
    while (folder := root / (stem if number == 1 else f"{stem}-{number}")).exists():
        number += 1
    return folder


def check_new(folder: Path) -> None:
    """Raise an `InputError` if a folder holds a run or other files.

    Files left by a run that was killed while it was created do not count.
    """
    names = {name for name in _listed(folder) if not is_temporary(name)}
    if "config.json" in names:
        remedy = f"Choose another --out, or go on with it: torchcaps train --resume {folder}"
        raise input_error(str(folder), "a new folder", "one that holds a run already", remedy)
    if LOCK not in names or not names <= BEGUN:
        check_empty(folder)


def check_empty(folder: Path) -> None:
    """Raise an `InputError` if a folder holds other files."""
    names = {name for name in _listed(folder) if not is_temporary(name)} - {LOCK}
    if names:
        remedy = "Choose another --out."
        raise input_error(str(folder), "a new or empty folder", f"one that holds {min(names)}", remedy)


def _listed(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise input_error(str(folder), "a folder to write to", error.strerror, "Choose another --out.") from None


def find_runs(root: Path) -> list[Path]:
    """Run folders at or below `root`, at most three levels deep.

    Links directly below `root` are followed, unless `root` itself is a run, which may be untrusted; other links that
    leave `root` are not followed.
    """
    found: dict[Path, Path] = {}
    own = not _is_run(root)
    level = [root]
    for depth in range(4):
        for folder in level:
            if _is_run(folder):
                found.setdefault(folder.resolve(), folder)
        entries = [entry for folder in level for entry in _folders_in(folder)]
        level = [entry for entry in entries if is_inside(root, entry) or (own and depth == 0)]
    return sorted(found.values())


def _is_run(folder: Path) -> bool:
    return all((folder / name).exists() for name in ("config.json", "metadata.json"))


def _folders_in(folder: Path) -> list[Path]:
    try:
        return [Path(entry) for entry in os.scandir(folder) if entry.is_dir()]
    except OSError:  # missing, or not readable
        return []
