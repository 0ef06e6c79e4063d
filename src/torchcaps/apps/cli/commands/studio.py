"""The command that serves the studio. Heavy modules are imported inside."""

from __future__ import annotations

from torchcaps.apps.cli.parsing import parse


def studio_command(words: list[str]) -> None:
    from torchcaps.apps.cli.options import Studio

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
        torch.set_num_threads(1)  # one small image gains nothing from more, and waits for them on a busy machine
        networks = run_networks(options.runs, options.data_dir) if options.runs else shipped_networks()
        app = create_app(networks, options.host)
        address = address_of(listening, options.host)
        print(f"studio: {address} (Ctrl-C ends it)", flush=True)
        if not is_local(options.host):
            print("warning: everybody who can reach this machine can use the studio", file=sys.stderr)
        if options.browser:
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        make_server(app).run(sockets=[listening])
