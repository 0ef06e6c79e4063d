"""What studio takes. Fields are options, their texts the help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from torchcaps.runs.config import Count, Folder


@dataclass(frozen=True)
class Studio:
    """Play in the browser: routing at work on points you drag, digits you draw, the tree that routing leaves.

    The page is served by this machine to this machine; nothing is sent anywhere. Ctrl-C ends it.
    """

    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN...", help_behavior_hint="")] = ()
    """Runs on images to show; left out, the networks that come along."""
    port: Count = None
    """The port; left out, the first free one from 8760 on."""
    host: Annotated[str, arg(metavar="NAME")] = "127.0.0.1"
    """The address to listen at. With another than this, everybody who can reach this machine can use the page."""
    browser: bool = True
    """Open the page in a browser."""
    data_dir: Folder = None
    """Where data sets by name are kept."""
