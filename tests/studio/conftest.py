"""A studio at a port of its own, with the network that comes along and small untrained ones beside it."""

import threading
from contextlib import contextmanager

import pytest
import torch
from fastapi.testclient import TestClient

from torchcaps import create_model
from torchcaps.apps.studio.networks import Network, shipped_networks
from torchcaps.apps.studio.server import address_of, create_app, free_socket, make_server
from torchcaps.data import ImageSet


def untrained(name, kind, shape, classes=3, **options):
    torch.manual_seed(0)
    model = create_model(kind, image_shape=shape, classes=classes, **options).eval()
    names = tuple("abcdefgh"[:classes])
    images = torch.randint(0, 256, (6, *shape), dtype=torch.uint8)
    return Network(name, name, model, kind, names, None, lambda: ImageSet(images, torch.arange(6) % classes, names))


@contextmanager
def serving(app):
    """The address of a real server that runs in a thread."""
    listening = free_socket("127.0.0.1", 0)
    server = make_server(app)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    with listening:
        thread.start()
        yield address_of(listening, "127.0.0.1")
        server.should_exit = True
        thread.join(10)


@pytest.fixture(scope="session")
def networks():
    """By name: those that ship, and one of every kind that the page shows differently."""
    matrix = {"sizes": (4, 2, 3, 3), "iterations": 2}
    several = [
        *shipped_networks(),
        untrained("placed", "matrix-small", (1, 20, 20), **matrix),
        untrained("color", "efficient", (3, 16, 12), routing="dynamic", iterations=3),
        untrained("plain", "cnn-small", (1, 20, 20)),
    ]
    return {network.name: network for network in several}


@pytest.fixture(scope="session")
def app(networks):
    return create_app(list(networks.values()))


@pytest.fixture(scope="session")
def studio(app):
    """The address of a running studio."""
    with serving(app) as address:
        yield address


@pytest.fixture(scope="module")
def client(app):
    return TestClient(app, base_url="http://127.0.0.1:8760", raise_server_exceptions=False)
