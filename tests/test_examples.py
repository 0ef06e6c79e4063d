"""The examples run and show what they say."""

import importlib.util
import math
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[1] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def toy():
    return load("two_or_three")


@pytest.mark.parametrize(("scene", "winner"), [("a 2", 0), ("a 3", 1)])
def test_a_whole_digit_wins_and_takes_the_shared_hook(toy, scene, winner):
    steps = toy.watch(toy.SCENES[scene])
    last = steps[-1].routed
    assert last.activations[winner] > 0.99
    assert last.activations[1 - winner] < 0.01
    assert last.couplings[0, winner] > 0.99  # the top hook belongs to both digits; the picture decides
    assert steps[0].routed.couplings[0].tolist() == [0.5, 0.5]
    shares = [float(step.routed.couplings[0, winner]) for step in steps]
    assert shares == sorted(shares)


@pytest.mark.parametrize("whole", ["2", "3"])
def test_no_class_wins_when_parts_are_jumbled(toy, whole):
    """A few of many random jumbles happen to agree; nearly none may."""
    winners = [float(toy.watch(toy.picture(whole, jumble=seed))[-1].routed.activations.max()) for seed in range(100)]
    assert sum(winner > 0.5 for winner in winners) <= 2
    assert max(toy.watch(toy.SCENES["a jumbled 3"])[-1].routed.activations) < 0.1


@pytest.fixture(scope="module")
def animals():
    return load("animals")


def test_features_are_shared_out_among_animals(animals):
    """Softmax runs over animals: every feature gives one unit, feathers to birds, fins to the fish, eyes to all."""
    steps = animals.watch(tuple(animals.FEATURES))
    first, last = steps[0].routed.couplings, steps[-1].routed.couplings
    torch.testing.assert_close(last.sum(-1), torch.ones(len(animals.FEATURES)))
    share = dict(zip(animals.FEATURES, last.tolist(), strict=True))
    assert sum(share["feathers"][:2]) > 0.75
    assert share["fins"][2] == max(share["fins"]) > 0.6
    assert max(share["eyes"]) - min(share["eyes"]) < 0.05
    known = [[math.exp(sum(u * v for u, v in zip(feature, animal, strict=True))) for animal in animals.ANIMALS.values()]
             for feature in animals.FEATURES.values()]  # fmt: skip
    torch.testing.assert_close(first, torch.tensor([[p / sum(row) for p in row] for row in known]))


@pytest.mark.parametrize(("scene", "winner"), [("a hen", 0), ("a fish", 2)])
def test_the_animal_in_the_scene_is_the_longest(animals, scene, winner):
    lengths = animals.watch(animals.SCENES[scene])[-1].routed.activations
    assert int(lengths.argmax()) == winner
    assert lengths[winner] > 0.8


def test_a_face_is_one_wherever_it_is_turned_and_jumbled_parts_are_none():
    face = load("jumbled_face")
    for angle in (0.0, 1.0, 3.0):
        for scale in (0.5, 1.5):
            routed = face.look(face.face(angle, scale))
            assert float(routed.activations[0]) > 0.99
            torch.testing.assert_close(routed.poses[0].view(3, 3), face.pose(0, 0, angle, scale), atol=1e-5, rtol=0)
    jumbles = [float(face.look(face.jumbled(seed)).activations[0]) for seed in range(100)]
    assert sum(active > 0.5 for active in jumbles) <= 2
    assert float(face.look(face.SCENES["the same parts, jumbled"]).activations[0]) < 0.1


@pytest.mark.parametrize(
    ("name", "line"),
    [("animals", "a fish: shares in the first and in the last iteration"), ("jumbled_face", "its votes are apart")],
)
def test_small_examples_print_and_draw(tmp_path, capsys, monkeypatch, name, line):
    picture = tmp_path / "new" / "picture.png"
    monkeypatch.setattr(sys, "argv", [name, "--out", str(picture)])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert line in capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")


def output_of(name, capsys, monkeypatch):
    """What an example prints, as a script."""
    monkeypatch.setattr(sys, "argv", [name])
    capsys.readouterr()
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    return capsys.readouterr().out


def test_two_or_three_prints_tables_and_draws(tmp_path):
    """In a process of its own, as a user runs it."""
    picture = tmp_path / "new" / "toy.png"
    command = [sys.executable, EXAMPLES / "two_or_three.py", "--out", picture]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert text.count("iteration 3") == 3
    assert [line for line in text.splitlines() if line.startswith("=>")] == [
        "=> it is a 3",
        "=> it is a 2",
        "=> no class wins",
    ]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_self_pooling_leaves_the_outliers(capsys, monkeypatch):
    printed = output_of("self_pooling", capsys, monkeypatch)
    weights = [float(line.split()[-1]) for line in printed.splitlines()[1:]]
    assert weights == sorted(weights, reverse=True)
    assert weights[-1] < 0.001


def test_segmentation_finds_which_pixel_belongs_to_what():
    """In a process of its own, with one thread and fewer steps than a user's."""
    command = [sys.executable, EXAMPLES / "segmentation.py", "--steps", "150"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    text = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    mine, background = map(float, re.search(r"mean IoU ([\d.]+), of background alone ([\d.]+)", text).groups())
    assert mine > 0.55 > 2 * background
    right, share = map(float, re.search(r"pixels right ([\d.]+), share of background ([\d.]+)", text).groups())
    assert right > 0.9 > share


def test_own_backbone_learns_through_its_capsules(capsys, monkeypatch):
    printed = output_of("own_backbone", capsys, monkeypatch)
    assert "class capsules (4, 5, 16)" in printed
    assert "gradient reaches the backbone: True" in printed
