"""The examples run and show what they say."""

import importlib.util
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

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
