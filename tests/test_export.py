"""Exported files give the numbers of the network, or are refused in one sentence."""

import json
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image

import torchcaps as tc
from tests.support.commands import run
from torchcaps._core.errors import InputError
from torchcaps.apps.export import export_model, load_onnx, load_torch
from torchcaps.models import IMAGE_MODELS, TEXT_MODELS

ROOT = Path(__file__).parents[1]
TINY = {
    "efficient": {"capsules": 4, "decoder": False},
    "capsnet": {"channels": 4, "capsules": 2, "decoder": False},
    "matrix": {"sizes": (4, 2, 2, 2)},
    "matrix-small": {"sizes": (4, 2, 2, 2)},
    "deep": {"depth": 3, "capsules": 2, "channels": 2},
    "cnn": {},
    "cnn-small": {"width": 0.1},
    "cnn-norb": {},
    "text": {"dim": 4, "filters": 4, "capsules": 2, "capsule_dim": 4},
    "text-a": {"dim": 4, "filters": 4, "capsules": 2, "capsule_dim": 4, "window_capsules": 2},
    "text-b": {"dim": 4, "filters": 4, "capsules": 2, "capsule_dim": 4, "window": 0, "padding": True},
    "textcnn": {"dim": 4, "filters": 4},
    "bilstm": {"dim": 4, "hidden": 4},
}
ROUTED = [name for name in TINY if name not in ("cnn", "cnn-small", "cnn-norb", "textcnn", "bilstm")]
EXPORTED = [name for name in tc.ROUTINGS if name != "variational"]  # ONNX has no digamma
OPTIONS = [
    ("dynamic", {"hard": True}),
    ("dynamic", {"leaky": True, "amendment": True, "bias": True}),
    ("dynamic", {"gradients": "last"}),
    ("dynamic", {"votes": "shared", "vote_bias": True}),
    ("dynamic", {"votes": "factorized", "normalize": True}),
    ("kmeans", {"distance": "inner"}),
    ("gaussian", {"covariance": "spherical"}),
    ("gaussian", {"covariance": "fixed"}),
    ("em", {"preset": "official", "leaky": True}),
]


def tiny(name, **options):
    size = {"vocabulary": 9} if name in TEXT_MODELS else {"image_shape": (2, 17, 18)}
    if name in ("efficient", "cnn-small"):
        size["image_shape"] = (1, 8, 8)
    torch.manual_seed(0)
    model = tc.create_model(name, classes=3, **size, **{**TINY[name], **options}).eval()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):  # as after training, else folding it would change nothing
            torch.nn.init.uniform_(module.running_var, 0.5, 2)
    return model


def inputs_for(model, count):
    if hasattr(model, "image_shape"):
        return torch.rand(count, *model.image_shape)
    tokens = torch.randint(1, 9, (count, 4 * count))
    tokens[-1, count:] = 0
    return tokens


def assert_same_answers(model, answers):
    for count in (1, 2, 7):
        inputs = inputs_for(model, count)
        with torch.no_grad():
            expected = model(inputs)
        activations, poses = answers(inputs)
        torch.testing.assert_close(activations, expected.activations, rtol=0, atol=1e-5)
        torch.testing.assert_close(poses, expected.poses, rtol=1e-4, atol=1e-5)


def assert_exports(model, path):
    found = export_model(model, path)
    assert found.difference <= 1e-5
    assert_same_answers(model, load_onnx(path))


def test_there_is_a_tiny_version_of_every_model():
    assert set(TINY) == set(IMAGE_MODELS) | set(TEXT_MODELS)


class Together(torch.nn.Module):
    """Networks side by side, their answers one behind the other: one file, as each export costs seconds of its own."""

    def __init__(self, networks):
        super().__init__()
        self.networks = torch.nn.ModuleList(networks)
        self.image_shape = networks[0].image_shape

    def forward(self, images):
        poses, activations, _ = zip(*(network(images) for network in self.networks), strict=True)
        return tc.Capsules(torch.cat(poses, 1), torch.cat(activations, 1))


@pytest.mark.parametrize("routings", [EXPORTED[::2], EXPORTED[1::2]], ids=" ".join)
def test_every_routing_is_exported(routings, tmp_path):
    """With two iterations, where there are any to choose: enough for every step of the loop, and quick to export."""
    networks = []
    for routing in routings:
        iterations = {} if routing in ("attention", "uniform") else {"iterations": 2}
        networks.append(tiny("efficient", routing=routing, encoder=torch.nn.Flatten(), **iterations))
    assert_exports(Together(networks), tmp_path / "a.onnx")


@pytest.mark.slow
@pytest.mark.parametrize("routing", EXPORTED)
@pytest.mark.parametrize("name", ROUTED)
def test_every_model_is_exported_with_every_routing(name, routing, tmp_path):
    assert_exports(tiny(name, routing=routing), tmp_path / "a.onnx")


@pytest.mark.slow
@pytest.mark.parametrize(("routing", "options"), OPTIONS, ids=str)
def test_options_of_routings_are_exported(routing, options, tmp_path):
    assert_exports(tiny("efficient", routing=routing, **options), tmp_path / "a.onnx")


@pytest.mark.parametrize("name", ["cnn-small", "textcnn"])
def test_plain_networks_are_exported(name, tmp_path):
    assert_exports(tiny(name), tmp_path / "a.onnx")


def test_text_capsules_are_exported(tmp_path):
    assert_exports(tiny("text-b", ngrams=(3,), iterations=2), tmp_path / "a.onnx")


@pytest.mark.slow
def test_the_large_plain_network_is_exported(tmp_path):
    assert_exports(tiny("cnn"), tmp_path / "a.onnx")


@pytest.mark.slow
def test_evidence_of_words_is_exported(tmp_path):
    model = tiny("text", ngrams=(2,), iterations=1)
    for parameter in model.evidence.parameters():
        torch.nn.init.normal_(parameter)
    assert_exports(model, tmp_path / "a.onnx")


@pytest.mark.parametrize("name", ["efficient", "text-b"])
def test_programs_of_torch_export_give_the_same(name, tmp_path):
    model = tiny(name)
    assert export_model(model, tmp_path / "a.pt2", "torch").difference <= 1e-5
    assert_same_answers(model, load_torch(tmp_path / "a.pt2"))


# What cannot be exported


def test_variational_routing_is_refused_as_onnx(tmp_path):
    with pytest.raises(InputError, match="ONNX has no digamma function for variational routing"):
        export_model(tiny("efficient", routing="variational"), tmp_path / "a.onnx")


@pytest.mark.parametrize(
    ("kind", "remedy"), [("onnx", 'Try kind="torch", or use it from Python.'), ("torch", "Use it from Python.")]
)
def test_a_recurrent_network_is_refused(kind, remedy, tmp_path):
    sentence = (
        f"export: expected a network that can be exported to {kind}, got BiLSTM: its recurrent layer reads every text "
        f"from its own end. {remedy}"
    )
    with pytest.raises(InputError) as error:
        export_model(tiny("bilstm"), tmp_path / "a.onnx", kind)
    assert str(error.value) == sentence
    assert not list(tmp_path.iterdir())


def test_full_covariances_are_refused_by_onnx(tmp_path):
    model = tiny("efficient", routing="gaussian", covariance="full", iterations=2)
    with pytest.raises(InputError, match="EfficientCapsNet: ONNX has no Cholesky decomposition for full covariances"):
        export_model(model, tmp_path / "a.onnx")


@pytest.mark.slow
def test_full_covariances_are_a_program_of_torch_export(tmp_path):
    model = tiny("efficient", routing="gaussian", covariance="full", iterations=2)
    export_model(model, tmp_path / "a.pt2", "torch")
    assert_same_answers(model, load_torch(tmp_path / "a.pt2"))


class Jumpy(torch.nn.Module):
    """An encoder whose path depends on what it sees, which no file can hold."""

    def forward(self, images):
        return images.flatten(1)[:, :8] * (2 if float(images.sum()) > 1 else 1)


def test_an_encoder_that_looks_at_values_is_refused_in_one_sentence(tmp_path):
    model = tc.create_model(
        "efficient", image_shape=(1, 8, 8), classes=3, encoder=Jumpy(), capsules=4, decoder=False
    ).eval()
    with pytest.raises(
        InputError, match=r"^export: expected a network that can be .*\. Use it from Python\.$"
    ) as error:
        export_model(model, tmp_path / "a.pt2", "torch")
    assert len(str(error.value).splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_file_that_gives_other_numbers_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("torchcaps.apps.export.load_torch", lambda path: lambda x: (torch.full((len(x), 3), 0.5), None))
    with pytest.raises(InputError, match="expected activations equal to 1e-05, got a difference of 0"):
        export_model(tiny("cnn-small"), tmp_path / "a.pt2", "torch")
    assert not list(tmp_path.iterdir())


# The command, and a server without torch


@pytest.fixture(scope="module")
def exported(trained, tmp_path_factory):
    out = tmp_path_factory.mktemp("exported") / "new" / "squares.onnx"
    assert run("export", trained, "--onnx", "--out", out) == 0
    return out


@pytest.fixture(scope="module")
def talker(tmp_path_factory):
    """A run on texts in which the word good decides."""
    folder = tmp_path_factory.mktemp("texts")
    rows = [f"{'good' if n % 2 else 'bad'} film number {n},{'up' if n % 2 else 'down'}" for n in range(40)]
    (folder / "films.csv").write_text("\n".join(["text,label", *rows]))
    small = ["--model", "text-a", "--option", "filters=4", "--option", "capsules=2", "--option", "capsule_dim=4"]
    assert run("train", folder / "films.csv", *small, "--epochs", 2, "--iterations", 2, "--out", folder / "run") == 0
    return folder / "run"


def test_the_file_carries_what_is_needed_to_use_it(exported):
    session = onnxruntime.InferenceSession(exported)
    assert session.get_modelmeta().custom_metadata_map == {
        "torchcaps": tc.__version__,
        "model": "efficient",
        "classes": '["left", "right"]',
        "image_shape": "[1, 20, 20]",
        "input": "images: float32 [batch, 1, 20, 20] from 0 to 1",
        "named": "1",
        "resize": "bilinear with antialiasing, as Pillow's BILINEAR",
        "fit": "stretch",
    }
    (given,) = session.get_inputs()
    assert (given.name, given.shape, given.type) == ("images", ["batch", 1, 20, 20], "tensor(float)")
    assert [(part.name, part.shape) for part in session.get_outputs()] == [
        ("activations", ["batch", 2]),
        ("poses", ["batch", 2, 16]),
    ]


def test_code_of_the_docs_runs(exported, tmp_path, monkeypatch):
    shutil.copy(exported, tmp_path / "mine.onnx")
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "export.md").read_text(), re.DOTALL)
    names = {}
    exec(block, names)
    assert set(names["answers"]) <= {"left", "right"}
    assert names["poses"].shape == (5, 2, 16)


def test_the_command_says_where_the_file_is_and_what_it_takes(trained, tmp_path, capsys):
    own = shutil.copytree(trained, tmp_path / "run")
    assert run("export", own, "--torch") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [f"file: {own / 'model.pt2'}", "takes images: float32 [batch, 1, 20, 20] from 0 to 1"]
    assert lines[2].startswith("gives activations and poses; tried: activations equal to ")
    extra = {"notes.json": ""}
    torch.export.load(own / "model.pt2", extra_files=extra)
    assert json.loads(extra["notes.json"])["classes"] == '["left", "right"]'


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--onnx", "--torch"], "export: expected one of --onnx and --torch, got both. Call it twice.\n"),
        (["--out", "/dev/null/a.onnx"], "Check the path, its permissions and the free space.\n"),
    ],
)
def test_mistakes_get_one_sentence(trained, words, sentence, capsys):
    assert run("export", trained, *words) == 2
    assert capsys.readouterr().err.endswith(sentence)


def test_without_the_packages_there_is_one_sentence(trained, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    assert run("export", trained) == 2
    said = "export: expected the package onnxscript, got it not installed. Run: pip install 'torchcaps[export]'.\n"
    assert capsys.readouterr().err == said


@pytest.fixture
def serve(tmp_path):
    """Start the server on a file, in a process that cannot import torch."""
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    processes = []

    def start(file):
        command = [sys.executable, ROOT / "examples" / "serve_onnx.py", file, "--port", "0"]
        env = {"PATH": "", "PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        processes.append(process)
        return process.stdout.readline().strip()

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def ask(address, body=None):
    try:
        with urllib.request.urlopen(urllib.request.Request(address, data=body), timeout=60) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_a_server_without_torch_answers_like_predict(serve, exported, trained, pictures, tmp_path, capsys):
    address = serve(exported)
    files = sorted(pictures.rglob("*.png"))[::8]
    pixels = np.asarray(Image.open(files[-1]), np.uint16) * 257
    Image.fromarray(pixels).save(tmp_path / "sixteen.png")  # bits of gray
    files.append(tmp_path / "sixteen.png")
    assert run("predict", trained, *files, "--json") == 0
    for file, expected in zip(files, json.loads(capsys.readouterr().out), strict=True):
        status, found = ask(address, file.read_bytes())
        assert status == 200
        assert found["labels"] == expected["labels"]
        np.testing.assert_allclose(found["confidence"], expected["confidence"], atol=1.1e-4)
    status, notes = ask(address)
    assert (status, notes["image_shape"]) == (200, "[1, 20, 20]")
    assert ask(address, b"no picture") == (400, {"error": "expected a picture, got something else"})


@pytest.mark.slow
def test_a_server_without_torch_answers_texts_like_predict(serve, talker, tmp_path, capsys):
    assert run("export", talker, "--out", tmp_path / "films.onnx") == 0
    address = serve(tmp_path / "films.onnx")
    capsys.readouterr()
    for text in ("a good film", "bad", "what"):
        assert run("predict", talker, text, "--json") == 0
        (expected,) = json.loads(capsys.readouterr().out)
        _, found = ask(address, text.encode())
        assert found["labels"] == expected["labels"]
        np.testing.assert_allclose(found["confidence"], expected["confidence"], atol=1.1e-4)
