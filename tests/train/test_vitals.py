"""What training shows of routed layers: activations, dead and starved parents, entropy and gradients, and a word when
a layer has died."""

import csv
import math

import pytest
import torch

from tests.support.commands import run as run_command
from torchcaps.analysis.vitals import vitals
from torchcaps.data import load_dataset
from torchcaps.losses import margin_loss, spread_loss
from torchcaps.models import create_model

SMALL = ("--model", "deep", "--epochs", 2, "--limit", 64, "--batch-size", 32, "--option", "capsules=2")
FEW = (*SMALL, "--option", "channels=4", "--option", "depth=2")


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits").validation.batch(torch.arange(8))


def margin(capsules, labels):
    return margin_loss(capsules.activations, labels)


def spread(capsules, labels):
    return spread_loss(capsules.activations, labels)


def test_vitals_are_those_of_the_answer(digits):
    torch.manual_seed(0)
    model = create_model("deep", image_shape=(1, 8, 8), classes=10, depth=2, capsules=3, channels=4)
    found = vitals(model, digits, spread)
    assert list(found) == ["layer 1", "classes"]
    answer = model.eval()(digits.inputs)
    assert math.isclose(found["classes"].activation, float(answer.activations.detach().mean()), rel_tol=1e-5)
    assert found["classes"].parents == 10
    for each in found.values():
        assert not each.silent
        assert each.gradient > 0
        assert 0 <= each.entropy <= 1 + 1e-6


def test_uniform_couplings_have_entropy_one_and_starve_nobody(digits):
    model = create_model("deep", image_shape=(1, 8, 8), classes=10, depth=2, capsules=3, channels=4, routing="uniform")
    for each in vitals(model, digits, margin).values():
        assert math.isclose(each.entropy, 1, rel_tol=1e-4)
        assert each.starved == 0


def test_a_layer_without_votes_is_silent(digits):
    model = create_model("efficient", image_shape=(1, 8, 8), classes=10, routing="dynamic")
    model.routed_layers[-1].transform.weight.data.zero_()
    assert vitals(model, digits, margin)["classes"].silent


def test_networks_without_capsules_have_no_vitals(digits):
    model = create_model("cnn-small", image_shape=(1, 8, 8), classes=10, width=0.1)
    assert vitals(model, digits, margin) == {}


def test_training_shows_and_keeps_them(tmp_path, capsys):
    assert run_command("train", "digits", *FEW, "--out", tmp_path / "run") == 0
    shown = capsys.readouterr().out
    assert shown.count("   active 0.") == 2
    rows = list(csv.DictReader((tmp_path / "run" / "layers.csv").read_text().splitlines()))
    assert [(row["epoch"], row["layer"]) for row in rows] == [
        ("1", "layer 1"),
        ("1", "classes"),
        ("2", "layer 1"),
        ("2", "classes"),
    ]
    assert all(float(row["gradient"]) > 0 for row in rows)


def test_a_layer_that_has_died_is_told_once(tmp_path, capsys):
    dead = ("--routing", "dynamic", "--option", "normalize_poses=false", "--option", "std=1e-12")
    assert run_command("train", "digits", *FEW, *dead, "--out", tmp_path / "run") == 0
    said = capsys.readouterr().err
    assert said.count("classes has died: none of its capsules is active. Try --option normalize_poses=true, or a") == 1
