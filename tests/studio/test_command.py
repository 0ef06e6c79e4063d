"""`torchcaps studio`, as a user starts and ends it."""

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import urllib.request
import webbrowser

import pytest
import torch
import uvicorn

from tests.support.commands import SMALL, run, save_pictures
from torchcaps.apps.studio.networks import run_networks
from torchcaps.apps.studio.server import PORT, address_of, free_socket


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A small run, and the pictures it was trained on."""
    folder = tmp_path_factory.mktemp("studio")
    assert run("train", save_pictures(folder / "squares"), *SMALL, "--out", folder / "mine") == 0
    return folder / "mine"


@pytest.fixture
def served(monkeypatch):
    """What the command would have served and opened; nothing runs."""
    served = {"opened": queue.Queue()}

    def note(server, sockets):
        served["app"], served["port"] = server.config.app, sockets[0].getsockname()[1]
        served["threads"] = torch.get_num_threads()

    monkeypatch.setattr(uvicorn.Server, "run", note)
    monkeypatch.setattr(webbrowser, "open", served["opened"].put)
    threads = torch.get_num_threads()
    yield served
    torch.set_num_threads(threads)


def hello(served):
    from fastapi.testclient import TestClient

    return TestClient(served["app"], base_url="http://127.0.0.1").get("/api/hello").json()


def test_studio_serves_answers_and_ends_with_control_c():
    command = [sys.executable, "-m", "torchcaps", "studio", "--no-browser", "--port", "0"]
    heard = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}  # tests in the background ignore it
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **heard)
    try:
        line = process.stdout.readline()
        assert line.startswith("studio: http://127.0.0.1:"), line + process.stderr.read()
        address = line.split()[1]
        with urllib.request.urlopen(f"{address}api/hello", timeout=20) as answer:
            assert json.load(answer)["networks"][0]["name"] == "mnist-efficient"
        process.send_signal(signal.SIGINT)
        out, complaints = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 130
    assert (out, complaints) == ("", "")


def test_without_a_run_the_shipped_networks_are_served_at_a_free_port_and_opened(served, capsys):
    with free_socket("127.0.0.1", None) as taken:
        assert run("studio") == 0
        assert served["port"] > taken.getsockname()[1] >= PORT
    assert capsys.readouterr().out == f"studio: http://127.0.0.1:{served['port']}/ (Ctrl-C ends it)\n"
    assert served["opened"].get(timeout=20) == f"http://127.0.0.1:{served['port']}/"
    assert served["threads"] == 1
    assert "mnist-efficient" in [network["name"] for network in hello(served)["networks"]]


def test_runs_are_served_by_name_with_their_own_test_images(served, trained):
    assert run("evaluate", trained, "--no-pictures") == 0
    assert run("studio", trained, trained, "--no-browser", "--port", 0) == 0
    assert served["opened"].empty()
    first, second = hello(served)["networks"]
    assert (first["name"], second["name"]) == ("mine", "mine-2")
    assert first["title"] == "mine: squares, efficient"
    assert first["classes"] == ["left", "right"]
    result = json.loads((trained / "evaluation" / "results.json").read_text())
    assert first["accuracy"] == result["test"]["accuracy"]
    (network,) = run_networks([trained])
    assert len(network.data) == result["test"]["examples"]


def test_a_port_that_is_taken_is_refused_in_one_sentence(served, capsys):
    with free_socket("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert run("studio", "--port", port) == 2
    expected = f"studio: expected a free port (127.0.0.1, port {port}), got Address already in use. "
    assert capsys.readouterr().err == f"{expected}Choose another --port or --host.\n"
    assert "app" not in served


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--port", "70000"], "studio: expected port between 0 and 65535, got 70000. Choose port in this range.\n"),
        (["--host", "192.0.2.1"], "studio: expected a free port (192.0.2.1, from port 8760 on), got Cannot assign"),
        (
            ["--host", ""],
            "studio: expected an address to listen at, got ''. Leave --host out, or use 0.0.0.0 for all addresses.\n",
        ),
        (["--host", "  "], "studio: expected an address to listen at, got '  '. "),
        (["--host", "a" * 70], f"studio: expected a free port ({'a' * 70}, from port 8760 on), got "),
        (["no/such/run"], "no/such/run: expected a run folder, got no such folder. "),
        (["--port", "many"], "torchcaps studio: "),
    ],
)
def test_mistakes_get_a_sentence(served, capsys, words, sentence):
    assert run("studio", *words) == 2
    assert capsys.readouterr().err.startswith(sentence)
    assert "app" not in served


def test_a_run_on_texts_cannot_be_shown(served, capsys, tmp_path):
    table = tmp_path / "texts.csv"
    table.write_text("text,label\n" + "good film,yes\nbad film,no\n" * 20)
    assert run("train", table, "--model", "textcnn", "--epochs", 1, "--out", tmp_path / "texts") == 0
    capsys.readouterr()
    assert run("studio", tmp_path / "texts") == 2
    expected = f"{tmp_path / 'texts'}: expected a run on images, got one on texts. Try torchcaps explain.\n"
    assert capsys.readouterr().err == expected


def test_another_host_is_warned_about(served, capsys):
    assert run("studio", "--host", "0.0.0.0", "--port", 0, "--no-browser") == 0
    said = capsys.readouterr()
    assert said.out.startswith("studio: http://127.0.0.1:")
    assert said.err == "warning: everybody who can reach this machine can use the studio\n"


def test_addresses_can_be_typed_into_a_browser():
    with free_socket("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        assert address_of(listening, "localhost") == f"http://localhost:{port}/"
        assert address_of(listening, "::1") == f"http://[::1]:{port}/"


def test_answers_are_sent_at_once():
    with free_socket("127.0.0.1", 0) as listening:
        assert listening.proto == socket.IPPROTO_TCP  # else asyncio leaves Nagle's algorithm on: 40 ms for each answer


def test_studio_needs_no_package_beside_its_extra():
    missing = ("lightning", "matplotlib", "tokenizers", "scipy.optimize", "beartype", "tensorboard")
    code = f"""
import sys
sys.modules.update(dict.fromkeys({missing}))
import uvicorn
uvicorn.Server.run = lambda server, sockets: print("served")
from torchcaps.apps.cli.main import main
sys.exit(main(["studio", "--no-browser", "--port", "0"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ)
    assert done.stdout.endswith("served\n"), done.stderr


def test_a_missing_package_is_named_with_its_extra(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torchcaps.apps.studio.server", None)
    monkeypatch.delitem(sys.modules, "torchcaps.apps.studio.guards", raising=False)
    monkeypatch.setitem(sys.modules, "fastapi.responses", None)
    assert run("studio") == 2
    assert "Run: pip install 'torchcaps[studio]'." in capsys.readouterr().err
