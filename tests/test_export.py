"""Exported files give the numbers of the network, or are refused in one sentence."""

import json
import shutil
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

import torchcaps as tc
from tests.commands import SMALL, run, save_pictures
from torchcaps.errors import InputError
from torchcaps.export import export_model, export_run, load_onnx, load_torch
from torchcaps.models import IMAGE_MODELS, TEXT_MODELS
from torchcaps.runs import Run

ROOT = Path(__file__).parents[1]
TINY = {
    "efficient": {"capsules": 4, "decoder": False},
    "capsnet": {"channels": 4, "capsules": 2, "decoder": False},
    "matrix": {"sizes": (4, 2, 2, 2)},
    "matrix-small": {"sizes": (4, 2, 2, 2)},
    "cnn": {},
    "cnn-small": {"width": 0.1},
    "text-a": {"dim": 4, "filters": 4, "capsules": 2, "capsule_dim": 4, "window_capsules": 2},
    "text-b": {"dim": 4, "filters": 4, "capsules": 2, "capsule_dim": 4, "window": 0, "padding": True},
    "textcnn": {"dim": 4, "filters": 4},
    "bilstm": {"dim": 4, "hidden": 4},
}
ROUTED = [name for name in TINY if name not in ("cnn", "cnn-small", "textcnn", "bilstm")]
OPTIONS = [
    ("dynamic", {"hard": True}),
    ("dynamic", {"leaky": True, "amendment": True, "bias": True}),
    ("dynamic", {"gradients": "last"}),
    ("dynamic", {"votes": "shared", "vote_bias": True}),
    ("dynamic", {"votes": "factorised", "normalise": True}),
    ("kmeans", {"distance": "inner"}),
    ("gaussian", {"covariance": "spherical"}),
    ("gaussian", {"covariance": "fixed"}),
    ("em", {"preset": "official", "leaky": True}),
]


def tiny(name, **options):
    size = {"vocabulary": 9} if name in TEXT_MODELS else {"image_shape": (2, 17, 18)}
    if name in ("efficient", "cnn-small"):
        size["image_shape"] = (1, 8, 9)
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


@pytest.mark.parametrize("routing", tc.ROUTINGS)
def test_every_routing_is_exported(routing, tmp_path):
    assert_exports(tiny("efficient", routing=routing, **steps(routing)), tmp_path / "a.onnx")


def steps(routing):
    """Two iterations, where there are any to choose: enough for every step of the loop, and quicker to export."""
    return {} if routing in ("attention", "uniform") else {"iterations": 2}


@pytest.mark.slow
@pytest.mark.parametrize("routing", tc.ROUTINGS)
@pytest.mark.parametrize("name", ROUTED)
def test_every_model_is_exported_with_every_routing(name, routing, tmp_path):
    assert_exports(tiny(name, routing=routing), tmp_path / "a.onnx")


@pytest.mark.slow
@pytest.mark.parametrize(("routing", "options"), OPTIONS, ids=str)
def test_options_of_routings_are_exported(routing, options, tmp_path):
    assert_exports(tiny("efficient", routing=routing, **options), tmp_path / "a.onnx")


@pytest.mark.parametrize("name", ["cnn-small", "textcnn", "text-b"])
def test_plain_networks_and_texts_are_exported(name, tmp_path):
    assert_exports(tiny(name), tmp_path / "a.onnx")


@pytest.mark.slow
def test_the_large_plain_network_is_exported(tmp_path):
    assert_exports(tiny("cnn"), tmp_path / "a.onnx")


@pytest.mark.parametrize("name", ["efficient", "text-b"])
def test_programs_of_torch_export_give_the_same(name, tmp_path):
    model = tiny(name)
    assert export_model(model, tmp_path / "a.pt2", "torch").difference <= 1e-5
    assert_same_answers(model, load_torch(tmp_path / "a.pt2"))


@pytest.mark.slow
@pytest.mark.parametrize("routing", tc.ROUTINGS)
@pytest.mark.parametrize("name", ROUTED)
def test_every_model_is_a_program_of_torch_export_with_every_routing(name, routing, tmp_path):
    model = tiny(name, routing=routing)
    export_model(model, tmp_path / "a.pt2", "torch")
    assert_same_answers(model, load_torch(tmp_path / "a.pt2"))


# What cannot be exported


@pytest.mark.parametrize(
    ("kind", "remedy"), [("onnx", "Try --torch, or use it from Python."), ("torch", "Use it from Python.")]
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


def test_full_covariances_are_refused_by_onnx_but_not_by_torch(tmp_path):
    model = tiny("efficient", routing="gaussian", covariance="full", iterations=2)
    with pytest.raises(InputError, match="EfficientCapsNet: ONNX has no Cholesky decomposition for full covariances"):
        export_model(model, tmp_path / "a.onnx")
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
    with pytest.raises(InputError, match=r"^export: expected a network that can be .*\. Use it from Python\.$") as error:
        export_model(model, tmp_path / "a.pt2", "torch")
    assert len(str(error.value).splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_file_that_gives_other_numbers_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("torchcaps.export.load_torch", lambda path: lambda x: (torch.full((len(x), 3), 0.5), None))
    with pytest.raises(InputError, match="expected activations equal to 1e-05, got a difference of 0"):
        export_model(tiny("cnn-small"), tmp_path / "a.pt2", "torch")
    assert not list(tmp_path.iterdir())
