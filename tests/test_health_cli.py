"""The command health, on tiny runs of images and texts."""

import json
import random

import pytest

from tests.support.commands import SMALL, refused, run, save_pictures
from tests.test_text_cli import SLIM, sentence, write_table


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    pictures = save_pictures(tmp_path_factory.mktemp("data") / "squares", 20)
    out = tmp_path_factory.mktemp("runs") / "squares"
    assert run("train", pictures, *SMALL, "--routing", "dynamic", "--epochs", 4, "--out", out) == 0
    return out


def test_health_prints_tables_and_keeps_results_and_pictures(capsys, trained):
    assert run("health", trained) == 0
    said = capsys.readouterr()
    assert said.out.startswith("8 examples of the test part\n")
    lines = said.out.splitlines()
    for title in ("capsules: ", "couplings: ", "sign and gradient: ", "moves of the image: ", "cost: ", "ablations "):
        assert any(line.startswith(title) for line in lines), title
    assert "  -> classes: dead: 0 of 2; starved: 0 of 2" in lines
    assert any(line.split()[:2] == ["uniform", "classes"] for line in lines)
    folder = trained / "health"
    names = ["couplings.png", "mass.png", "entropy.png", "ablations.png"]
    assert said.err.splitlines()[-4:] == [f"picture: {folder / name}" for name in names]
    kept = json.loads((folder / "results.json").read_text())
    (layer,) = kept["layers"]
    assert (layer["name"], layer["routing"], len(layer["entropy"])) == ("classes", "dynamic", 3)
    uniform, one = (
        next(row for row in kept["ablations"]["rows"] if row["kind"] == kind) for kind in ("uniform", "one iteration")
    )
    assert uniform["accuracy"] == one["accuracy"]
    assert kept["verdicts"][-1].startswith("too few examples to tell whether routing in classes matters: ")
    assert any(line.startswith("cost: ") and " for 8 examples " in line for line in lines)


def test_health_as_json_of_fewer_examples_without_ablations(capsys, trained):
    capsys.readouterr()
    assert run("health", trained, "--count", 4, "--no-ablate", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["examples"] == 4
    assert "ablations" not in found
    assert not (trained / "health" / "ablations.png").exists()
    assert len(found["moves"]["responses"]) == 4
    assert found == json.loads((trained / "health" / "results.json").read_text())


def test_health_of_texts(capsys, tmp_path):
    generator = random.Random(0)
    rows = [(sentence(generator, kind), kind) for kind in ("good", "bad") for _ in range(20)]
    table = write_table(tmp_path / "films.csv", rows)
    assert (
        run("train", table, *SLIM, "--option", "window=3", "--epochs", 1, "--batch-size", 20, "--out", tmp_path / "run")
        == 0
    )
    capsys.readouterr()
    assert run("health", tmp_path / "run", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [layer["name"] for layer in found["layers"]] == ["3-grams layer 1", "3-grams classes"]
    assert found["moves"] is None


def test_a_network_without_capsules_is_refused(capsys, tmp_path):
    pictures = save_pictures(tmp_path / "squares", 12)
    assert run("train", pictures, "--model", "cnn-small", "--epochs", 1, "--out", tmp_path / "run") == 0
    expected = "health: expected a network that routes capsules, got SmallCNN. "
    expected += "Choose a run of efficient, capsnet, matrix, matrix-small, deep, text, text-a, text-b."
    assert refused(capsys, "health", tmp_path / "run") == expected


def test_no_examples_are_refused(capsys, trained):
    expected = "health: expected --count to be a whole number from 1 on, got 0. Choose a whole number as --count."
    assert refused(capsys, "health", trained, "--count", 0) == expected
