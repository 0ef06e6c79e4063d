"""Other people's routings, models and data sets: by --import, and by entry points of packages."""

import importlib
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

import torchcaps as tc
from tests.support.commands import run, save_pictures
from torchcaps._core import extensions
from torchcaps._core.extensions import Registry

MINE = """
import torch
import torchcaps as tc
from torchcaps.apps.cli.commands import COMMANDS
from torchcaps.apps.cli.commands.draw import DRAWINGS
from torchcaps.data import ImageSet
from torchcaps.losses import LOSSES
from torchcaps.models import CapsuleModel
from torchcaps.routing import Uniform
from torchcaps.votes.transforms import VOTES


class Halved(Uniform):
    def read(self, clusters, couplings, weights):
        poses, activations, couplings = super().read(clusters, couplings, weights)
        return tc.Routed(poses / 2, activations / 2, couplings)


class Tiny(CapsuleModel):
    def __init__(self, image_shape, classes, *, routing="halved", **options):
        stem = torch.nn.Conv2d(image_shape[0], 8, 5, stride=4)
        primary = tc.PrimaryCapsules(8, 2, 4)
        side = (image_shape[1] - 5) // 4 + 1
        last = tc.DenseCapsules(2 * side * side, classes, 4, 4, routing=routing, votes="mine", **options)
        super().__init__(image_shape, classes, stem, primary, [last])


def dots(folder):
    '''Dots on the left or on the right.'''
    images = torch.zeros(60, 1, 20, 20, dtype=torch.uint8)
    labels = torch.arange(60) % 2
    for row, label in enumerate(labels):
        images[row, 0, 5:15, 2 + 9 * label : 9 + 9 * label] = 200
    return ImageSet(images, labels, ("left", "right"))


VOTES["mine"] = type("Mine", (VOTES["full"],), {})
LOSSES["brier"] = lambda it: (1 - it.capsules.activations.gather(1, it.labels[:, None])).square().mean()
tc.ROUTINGS["halved"] = Halved
tc.MODELS["tiny"] = Tiny
tc.DATASETS["dots"] = dots


def shout(words):
    '''Say the words loudly.'''
    print(" ".join(words).upper())


def draw_dots(words):
    from matplotlib.figure import Figure

    figure = Figure()
    figure.add_subplot().scatter([0, 1], [0, 1])
    figure.savefig(words[0])


COMMANDS["shout"] = shout
DRAWINGS["dots"] = (draw_dots, "two dots")
"""


@pytest.fixture
def forgotten():
    """What an import enters is taken out again."""
    yield
    from torchcaps.apps.cli.commands import COMMANDS
    from torchcaps.apps.cli.commands.draw import DRAWINGS
    from torchcaps.losses import LOSSES
    from torchcaps.votes.transforms import VOTES

    for table, name in (
        (tc.ROUTINGS, "halved"), (tc.MODELS, "tiny"), (tc.DATASETS, "dots"), (LOSSES, "brier"), (VOTES, "mine"),
        (COMMANDS, "shout"), (DRAWINGS, "dots"),
    ):  # fmt: skip
        table.pop(name, None)
    os.environ.pop(extensions.VARIABLE, None)
    extensions._done.clear()


def torchcaps(*words, folder=None, **environment):
    words = [sys.executable, "-m", "torchcaps", *map(str, words)]
    return subprocess.run(words, capture_output=True, text=True, env={**os.environ, **environment}, cwd=folder)


@pytest.mark.usefixtures("forgotten")
def test_parts_of_a_file_are_trained_and_found_again_only_when_it_is_named_again(tmp_path):
    file, out = tmp_path / "mine.py", tmp_path / "run"
    file.write_text(MINE)
    words = ["--model", "tiny", "--loss", "brier", "--epochs", 1, "--out", out]
    assert run("train", "dots", "--import", file, *words) == 0
    config = json.loads((out / "config.json").read_text())
    assert config["imports"] == [str(file)]
    assert f"--import {file}" in (out / "README.md").read_text()
    done = torchcaps("evaluate", out)
    assert done.returncode == 2
    assert f"got the model tiny, which this run had from {file}. If you trust that file, give --import" in done.stderr
    assert done.stderr.count("\n") == 1
    for command in ("evaluate", "health", "report"):
        done = torchcaps(command, out, "--import", file)
        assert done.returncode == 0, done.stderr
    listed = torchcaps("list", "models", f"--import={file}")
    assert "tiny" in listed.stdout
    assert "tiny" in torchcaps("train", "--help", "--import", file).stdout
    assert torchcaps("train", "--resume", out).returncode == 2


@pytest.mark.usefixtures("forgotten")
def test_a_file_brings_commands_and_pictures(tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    assert run("shout", "hello", "--import", file) == 0
    assert capsys.readouterr().out == "HELLO\n"
    assert run("--help", "--import", file) == 0
    assert re.search(r"extensions:\n  shout +Say the words loudly\.", capsys.readouterr().out)
    assert run("draw", "dots", tmp_path / "dots.png", "--import", file) == 0
    assert (tmp_path / "dots.png").read_bytes().startswith(b"\x89PNG")
    assert run("draw", "--help") == 0
    assert "two dots" in capsys.readouterr().out


def test_the_page_on_extending_can_be_followed(tmp_path):
    page = (Path(__file__).parents[1] / "docs" / "extending.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "mine.py").write_text(block)
    commands = re.findall(r"^    torchcaps (.*)$", page, re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        words = [*command.split(), *(["--epochs", "2"] if command.startswith("train") else [])]
        done = torchcaps(*words, folder=tmp_path)
        assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("forgotten")
def test_several_processes_and_trials_import_the_file_too(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    words = ["compare", "dots", "--vary", "leaky=true,false", "--model", "tiny", "--epochs", "1", "--import", file]
    done = torchcaps(*words, "--out", tmp_path / "trials")
    assert done.returncode == 0, done.stderr
    done = torchcaps(
        "train",
        "dots",
        "--model",
        "tiny",
        "--epochs",
        "1",
        "--devices",
        "2",
        "--import",
        file,
        "--out",
        tmp_path / "run",
    )
    assert done.returncode == 0, done.stderr


def test_files_that_cannot_be_imported_are_told_in_a_sentence(tmp_path, capsys):
    broken = tmp_path / "broken.py"
    broken.write_text("import nothing_of_that_name")
    for words, said in (
        (["--import", broken], "expected a file that can be imported, got ModuleNotFoundError"),
        (["--import", tmp_path / "none.py"], "expected a file of Python (.py), a .pt2 file, or MODULE:FUNCTION, got"),
        (["--import"], "expected a file of Python (.py), got none"),
    ):
        assert run("list", "models", *words) == 2
        assert said in capsys.readouterr().err
    assert "torchcaps_import_broken" not in sys.modules


def test_entry_points_of_packages_are_found(tmp_path):
    (tmp_path / "theirs.py").write_text(MINE.partition("VOTES[")[0].replace('votes="mine", ', ""))
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        textwrap.dedent("""\
        [torchcaps.routings]
        halved = theirs:Halved
        dynamic = theirs:Halved
        broken = theirs:Nothing
        [torchcaps.models]
        tiny = theirs:Tiny
        [torchcaps.datasets]
        dots = theirs:dots
        """)
    )
    path = {"PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])}
    done = torchcaps("train", "dots", "--model", "tiny", "--epochs", "1", "--out", tmp_path / "run", **path)
    assert done.returncode == 0, done.stderr
    assert torchcaps("evaluate", tmp_path / "run", **path).returncode == 0
    listed = torchcaps("list", "routings", **path)
    assert "halved" in listed.stdout
    assert "broken" not in listed.stdout
    assert "the entry point broken of torchcaps.routings was left out: AttributeError" in listed.stderr
    assert "dynamic of torchcaps.routings was left out: there is one of that name already" in listed.stderr


@pytest.mark.parametrize(
    ("module", "table"),
    [("routing", "ROUTINGS"), ("losses", "LOSSES"), ("data.augment", "AUGMENTATIONS"), ("models", "IMAGE_MODELS")],
)
def test_help_reads_the_names_that_a_loaded_module_has(monkeypatch, module, table):
    loaded = list(getattr(importlib.import_module(f"torchcaps.{module}"), table))
    assert extensions.names_of(module, table) == loaded
    monkeypatch.delitem(sys.modules, f"torchcaps.{module}")
    assert extensions.names_of(module, table) == loaded


def test_a_registry_is_a_dict_that_asks_packages_once(monkeypatch):
    asked = []
    monkeypatch.setattr(extensions, "entry_points", lambda group: asked.append(group) or ())
    table = Registry("torchcaps.things", {"a": 1})
    assert table["a"] == 1
    assert "a" in table
    assert not asked  # a known name needs nobody
    table["b"] = 2
    assert list(table.items()) == [("a", 1), ("b", 2)]
    assert "c" not in table
    with pytest.raises(KeyError):
        table["c"]
    assert len(table) == 2
    assert asked == ["torchcaps.things"]


@pytest.mark.usefixtures("forgotten")
def test_a_routing_and_a_vote_transform_from_outside_serve_layers(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    extensions.import_file(str(file))
    layer = tc.DenseCapsules(4, 3, 5, 6, routing="halved", votes="mine")
    assert layer(tc.Capsules(torch.randn(2, 4, 5), torch.ones(2, 4))).poses.shape == (2, 3, 6)


def test_own_pictures_are_no_part_that_is_missing(tmp_path, capsys):
    out = tmp_path / "run"
    pictures = save_pictures(tmp_path / "pictures")
    assert run("train", pictures, "--epochs", 1, "--option", "capsules=8", "--out", out) == 0
    pictures.rename(tmp_path / "moved")
    assert run("evaluate", out) == 2
    assert "--import" not in capsys.readouterr().err
