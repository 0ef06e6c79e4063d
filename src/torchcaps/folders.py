"""Where a user's things lie. No torch here: the command line must answer at once."""

from __future__ import annotations

import os
from pathlib import Path

from torchcaps.errors import complaint


def cache_folder() -> Path:
    """The user's folder for what can be had anew. As the XDG specification says, a relative XDG_CACHE_HOME is none."""
    place = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not place.is_absolute():
        try:
            place = Path.home() / ".cache"
        except RuntimeError:  # a user whom the machine does not know
            place = Path()
    if not place.is_absolute():
        remedy = "Set XDG_CACHE_HOME to an absolute path."
        raise complaint("torchcaps", "a home folder for what it keeps", "none", remedy)
    return place / "torchcaps"
