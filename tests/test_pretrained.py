"""The networks that come along: they load without data or network, and do what is written beside them."""

import json
import subprocess
import sys

import pytest
import torch

import torchcaps as tc
from torchcaps.data import load_dataset
from torchcaps.evaluate import evaluate
from torchcaps.pretrained import FOLDER, pretrained_facts
from torchcaps.runs import load_config

pytestmark = pytest.mark.parametrize("name", tc.PRETRAINED)


def test_shipped_weights_are_small_numbers_in_evaluation_mode(name):
    model = tc.load_pretrained(name)
    assert not model.training
    assert {tensor.dtype for tensor in model.state_dict().values()} <= {torch.float32, torch.int64}
    assert (FOLDER / name / "model.safetensors").stat().st_size < 4e6


def test_digits_are_read_as_well_as_is_written_down(name):
    facts = pretrained_facts(name)
    digits = load_dataset("mnist-5k").test
    few = digits.take(torch.arange(300))
    result = evaluate(tc.load_pretrained(name), few)
    assert facts["examples"] == 10_000
    assert facts["classes"] == list(result.classes)
    assert result.accuracy >= min(0.99, facts["accuracy"] - 0.01)


def test_the_written_options_are_those_of_the_network(name):
    facts, config = pretrained_facts(name), load_config(FOLDER / name / "config.json")
    assert (config.model, config.data) == (facts["model"], facts["data"])
    assert json.loads(json.dumps(config.model_options())) == facts["options"]
    assert (config.out, config.data_dir) == (None, None)
    assert facts["command"] == f"python scripts/pretrain.py {name}"


def test_loading_needs_neither_network_nor_more_than_the_core(name):
    missing = ("tyro", "lightning", "matplotlib", "sklearn", "mlxtend", "pooch", "tokenizers", "fastapi", "PIL")
    code = f"""
import sys, socket
sys.modules.update(dict.fromkeys({missing}))
socket.socket.connect = None
import torch, torchcaps
print(torchcaps.load_pretrained({name!r})(torch.zeros(1, 1, 28, 28)).activations.shape)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "torch.Size([1, 10])\n", done.stderr


def test_an_unknown_name_lists_the_known_ones(name):
    with pytest.raises(ValueError, match=f"load_pretrained: expected name to be one of .*'{name}'.*, got 'alexnet'"):
        tc.load_pretrained("alexnet")
