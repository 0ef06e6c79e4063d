"""Cache folders of the user. Does not import torch, to keep the command line fast."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from torchcaps._core.errors import input_error


def cache_folder() -> Path:
    """The user's cache folder. A relative XDG_CACHE_HOME is ignored, as the XDG specification requires."""
    place = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not place.is_absolute():
        try:
            place = Path.home() / ".cache"
        except RuntimeError:  # an unknown user
            place = Path()
    if not place.is_absolute():
        remedy = "Set XDG_CACHE_HOME to an absolute path."
        raise input_error("torchcaps", "a home folder for what it keeps", "none", remedy)
    return place / "torchcaps"


def private_folder() -> Path:
    """A private temporary folder, for users without a home directory."""
    folder = Path(tempfile.gettempdir()) / f"torchcaps-{os.geteuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        remedy = "Remove it, or let TORCHCAPS_DATA name another folder."
        raise input_error(str(folder), "a folder of yours alone", "one that others can write to", remedy)
    return folder
