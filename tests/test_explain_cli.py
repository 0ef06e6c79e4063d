"""Explaining pictures, as a user meets it."""

import json

import pytest
import torch

from tests.support.commands import SMALL, refused, run, save_pictures
from torchcaps.data import Splits
from torchcaps.data.builtin import mnist_5k

KINDS = ("evidence", "reconstruction", "perturbation", "tree", "couplings")


@pytest.fixture(scope="module")
def plain(tmp_path_factory, pictures):
    out = tmp_path_factory.mktemp("runs") / "cnn"
    assert run("train", pictures, "--model", "cnn-small", "--epochs", 1, "--out", out) == 0
    return out


def test_data_that_are_no_longer_there_are_named(tmp_path, capsys):
    pictures = save_pictures(tmp_path / "squares", 12)
    assert run("train", pictures, *SMALL, "--out", tmp_path / "run") == 0
    pictures.rename(tmp_path / "elsewhere")
    said = refused(capsys, "report", tmp_path / "run")
    assert f"its data in {pictures}, got nothing there. Put them back, or test on others: torchcaps evaluate" in said


def test_a_picture_is_explained_in_a_table_and_five_pictures(trained, pictures, capsys):
    assert run("explain", trained, pictures / "left" / "3.png", "--top", 2) == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert lines[0] == "3"
    assert lines[1].split()[:2] == ["class", "activation"]
    assert lines[2].split()[0] == "left"
    assert sum(line.strip().startswith("type ") for line in lines) == 2
    named = [line.removeprefix("picture: ") for line in said.err.splitlines()]
    assert named == [str(trained / "explain" / f"3-{kind}.png") for kind in KINDS]
    assert all((trained / "explain" / f"3-{kind}.png").stat().st_size > 3000 for kind in KINDS)
    (facts,) = json.loads((trained / "explain" / "results.json").read_text())["pictures"]
    assert facts["classes"][0]["class"] == "left"
    assert len(facts["parts"]) == 2
    assert set(facts["errors"]) == {"left", "right"}


def test_json_has_the_same_numbers_and_names_do_not_collide(trained, pictures, capsys):
    assert run("explain", trained, pictures / "left" / "0.png", pictures / "right" / "0.png", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts == json.loads((trained / "explain" / "results.json").read_text())
    assert [one["name"] for one in facts["pictures"]] == ["0", "0-2"]
    assert [one["classes"][0]["class"] for one in facts["pictures"]] == ["left", "right"]
    assert (trained / "explain" / "0-2-tree.png").exists()
    for one in facts["pictures"]:
        for part in one["parts"]:
            assert part["contribution"] == pytest.approx(part["couplings"][-1] * part["activation"], rel=1e-4)


def test_an_example_of_the_test_part_from_another_class(trained, capsys):
    assert run("explain", trained, "--example", 2, "--label", "right") == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[0] == "test-2, truth right"
    parts = [line.split() for line in said.out.splitlines() if line.strip().startswith("type ")]
    assert parts
    assert all(words[2] == "right" for words in parts)
    assert (trained / "explain" / "test-2-perturbation.png").exists()


def test_the_test_part_in_a_grid_and_its_factors(trained, capsys):
    assert run("explain", trained, "--grid", "--factors") == 0
    said = capsys.readouterr()
    assert "right answers" in said.out
    assert "shift x" in said.out
    assert [line.split("/")[-1] for line in said.err.splitlines()] == ["grid.png", "factors.png"]
    facts = json.loads((trained / "explain" / "results.json").read_text())
    assert 0 <= facts["reconstruction errors"]["right answers"] < 0.3
    names = {"shift x", "shift y", "rotation", "scale", "thickness", "what chance would give"}
    assert set(facts["best dimension, mean |r|"]) == names


def test_a_plain_network_says_what_it_cannot_show(plain, pictures, capsys):
    assert run("explain", plain, pictures / "left" / "3.png") == 0
    said = capsys.readouterr()
    assert "activation" in said.out
    assert said.err == (
        f"picture: {plain / 'explain' / '3-evidence.png'}\n"
        "not drawn: reconstruction and perturbation (the model has no decoder); "
        "routing tree and couplings (the model has no routing).\n"
    )
    expected = "--grid: expected a model with a decoder, got none. Train with --reconstruction above 0."
    assert refused(capsys, "explain", plain, "--grid") == expected
    assert refused(capsys, "explain", plain, "--factors") == (
        "--factors: expected a capsule network, got cnn-small. Drop it."
    )


def test_pairs_are_taken_apart(tmp_path, capsys, monkeypatch):
    parts = mnist_5k()
    few = Splits(*(part.take(torch.arange(40)) for part in parts[:3]))
    monkeypatch.setattr("torchcaps.data.generated.mnist_5k", lambda folder: few)
    out = tmp_path / "pairs"
    words = ["multimnist-5k", "--limit", 64, "--epochs", 1, "--batch-size", 32]
    assert run("train", *words, "--out", out) == 0
    capsys.readouterr()
    assert run("explain", out, "--example", 0, "--grid") == 0
    said = capsys.readouterr().out
    assert "absent" in said
    facts = json.loads((out / "explain" / "results.json").read_text())
    assert len({part["class"] for part in facts["pictures"][0]["parts"]}) == 2
    assert facts["overlap"]["count"] == 40
    assert facts["overlap"]["blank"] > facts["overlap"]["parts"] ** 2
    assert run("evaluate", out, "--no-pictures", "--json") == 0
    found = json.loads(capsys.readouterr().out)["test"]
    wrong = (out / "evaluation" / "mistakes.csv").read_text().splitlines()[1:]
    assert len(wrong) == round(found["error"] * found["examples"])
    assert all(len(line.split(",")[1].split("; ")) == 2 for line in wrong)
    assert (out / "explain" / "overlap.png").exists()
    assert "expected images of one object each, got pairs" in refused(capsys, "explain", out, "--factors")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "explain: expected picture files after the run, got none. Name some, or give --example 0."),
        (["--example", "999"], "--example: expected a number from 0 to 11, got 999. Choose one of the test part."),
        (["--example=-1"], "--example: expected a number from 0 to 11, got -1. Choose one of the test part."),
        (["nothere.png"], "explain: expected files or folders of pictures, got nothere.png, which is not there."),
        (["a.png", "--example", "0"], "explain: expected picture files or --example, got both. Drop one of them."),
        (["--example", "0", "--label", "up"], "expected --label to be one of 'left', 'right', got 'up'"),
        (["--example", "0", "--top", "0"], "explain: expected top to be a whole number from 1 on, got 0"),
        (["--example", "0", "--html", "x.html"], "--html: expected a run on texts, got one on images."),
    ],
)
def test_what_cannot_be_meant_gets_one_sentence(trained, capsys, words, expected):
    assert expected in refused(capsys, "explain", trained, *words)
