"""The networks that come along: they load without data or network, and do what is written beside them."""

import dataclasses
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torchcaps as tc
import torchcaps.models.pretrained
from torchcaps.analysis.evaluate import evaluate
from torchcaps.data import load_dataset
from torchcaps.models.pretrained import FOLDER, pretrained_metadata
from torchcaps.runs.config import TrainConfig, load_config
from torchcaps.runs.recipes import resolve
from torchcaps.runs.run import Run, RunMetadata
from torchcaps.train import train

each_network = pytest.mark.parametrize("name", tc.PRETRAINED)


@pytest.fixture(scope="module")
def script():
    """scripts/pretrain.py as a module."""
    path = Path(__file__).parents[1] / "scripts" / "pretrain.py"
    spec = importlib.util.spec_from_file_location("pretrain", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@each_network
def test_shipped_weights_are_small_numbers_in_evaluation_mode(name):
    model = tc.load_pretrained(name)
    assert not model.training
    assert {tensor.dtype for tensor in model.state_dict().values()} <= {torch.float32, torch.int64}
    assert (FOLDER / name / "model.safetensors").stat().st_size < 4e6


@each_network
def test_digits_are_read_as_well_as_is_written_down(name):
    facts = pretrained_metadata(name)
    digits = load_dataset("mnist-5k").test
    few = digits.take(torch.arange(300))
    result = evaluate(tc.load_pretrained(name), few)
    assert facts["examples"] == 10_000
    assert facts["classes"] == list(result.classes)
    assert result.accuracy >= min(0.99, facts["accuracy"] - 0.01)


@each_network
def test_the_written_options_are_those_of_the_network(name):
    facts, config = pretrained_metadata(name), load_config(FOLDER / name / "config.json")
    assert (config.model, config.data) == (facts["model"], facts["data"])
    assert json.loads(json.dumps(config.model_options())) == facts["options"]
    assert (config.out, config.data_dir) == (None, None)
    assert facts["command"] == f"python scripts/pretrain.py {name}"


def test_loading_needs_neither_network_nor_more_than_the_core():
    missing = ("tyro", "lightning", "matplotlib", "sklearn", "mlxtend", "pooch", "tokenizers", "fastapi", "PIL")
    code = f"""
import sys, socket
sys.modules.update(dict.fromkeys({missing}))
socket.socket.connect = None
import torch, torchcaps
for name in {tuple(tc.PRETRAINED)}:
    print(torchcaps.load_pretrained(name)(torch.zeros(1, 1, 28, 28)).activations.shape)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "torch.Size([1, 10])\n" * len(tc.PRETRAINED), done.stderr


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(
        ValueError, match=r"load_pretrained: expected name to be one of 'mnist-efficient'.*, got 'alexnet'"
    ):
        tc.load_pretrained("alexnet")


@each_network
def test_the_script_would_train_with_the_options_written_down(script, name):
    written = load_config(FOLDER / name / "config.json")
    assert resolve(script.CONFIGS[name], written.limit or 55_000) == written


def test_the_script_turns_a_run_into_a_network_that_loads(script, tmp_path, monkeypatch, capsys):
    run = train(TrainConfig(data="digits", out=tmp_path / "run", epochs=1, option=("capsules=8",)))
    monkeypatch.setattr(script, "FOLDER", tmp_path)
    monkeypatch.setattr(torchcaps.models.pretrained, "FOLDER", tmp_path)
    script.convert("mnist-efficient", run, None)
    facts = pretrained_metadata("mnist-efficient")
    model = tc.load_pretrained("mnist-efficient")
    result = evaluate(model, load_dataset("digits").test)
    assert (facts["accuracy"], facts["examples"]) == (result.accuracy, 400)
    assert f"accuracy {result.accuracy:.2%} on 400 examples" in capsys.readouterr().out
    assert model.image_shape == (1, 8, 8)
    for name, tensor in run.load_model().state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor.half().to(tensor.dtype))
    assert str(tmp_path) not in (tmp_path / "mnist-efficient" / "config.json").read_text()


def test_the_script_refuses_a_run_with_other_options(script, tmp_path):
    other = dataclasses.replace(resolve(script.CONFIGS["mnist-efficient"], 55_000), lr=1.0, seed=5)
    run = Run(tmp_path, other, RunMetadata(("0", "1")))
    with pytest.raises(ValueError, match=r"expected a run with the options of this script, got lr, seed\."):
        script.check_same("mnist-efficient", run, 55_000)
