"""torchcaps studio: serve the studio. Heavy modules are imported inside."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from torchcaps.apps.cli.parsing import parse
from torchcaps.runs.config import Count, Folder


@dataclass(frozen=True)
class Studio:
    """Open an interactive page in the browser: routing of points, classification of drawn digits, routing trees.

    The page is served from this machine to this machine and sends nothing elsewhere. Ctrl-C ends it.
    """

    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN...", help_behavior_hint="")] = ()
    """Runs on images to show; default: the pretrained networks of the package."""
    port: Count = None
    """The port; default: the first free one from 8760."""
    host: Annotated[str, arg(metavar="NAME")] = "127.0.0.1"
    """The address to listen on. With any other than the default, everyone who can reach this machine can use the
    page."""
    browser: bool = True
    """Open the page in a browser."""
    data_dir: Folder = None
    """Folder of data sets by name."""


def studio_command(words: list[str]) -> None:
    examples = """\
  torchcaps studio
  torchcaps studio runs/mine --port 9000 --no-browser"""
    options = parse(Studio, words, "studio", examples)
    from torchcaps.apps.studio.guards import is_local
    from torchcaps.apps.studio.server import address_of, create_app, free_socket, make_server

    listening = free_socket(options.host, options.port)
    import sys
    import threading
    import webbrowser

    import torch

    from torchcaps.apps.studio.networks import run_networks, shipped_networks

    with listening:
        torch.set_num_threads(1)  # more threads do not speed up one small image, and are slower on a busy machine
        networks = run_networks(options.runs, options.data_dir) if options.runs else shipped_networks()
        app = create_app(networks, options.host)
        address = address_of(listening, options.host)
        print(f"studio: {address} (Ctrl-C ends it)", flush=True)
        if not is_local(options.host):
            print("warning: everybody who can reach this machine can use the studio", file=sys.stderr)
        if options.browser:
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        make_server(app).run(sockets=[listening])
