"""The commands that question a run: attack, jumble, strange."""

import json
import re
import shutil
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.support.commands import SMALL, run, save_pictures
from torchcaps.analysis.images import InMemoryImages
from torchcaps.analysis.jumble import jumbled_sets
from torchcaps.analysis.strange import area_interval


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Capsules and a plain network, both trained on bright squares."""
    folder = tmp_path_factory.mktemp("questions")
    pictures = save_pictures(folder / "squares", 30)
    caps, plain = folder / "caps", folder / "plain"
    assert run("train", pictures, *SMALL, "--epochs", 8, "--out", caps) == 0
    assert run("train", pictures, "--model", "cnn-small", "--epochs", 4, "--batch-size", 32, "--out", plain) == 0
    return caps, plain


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    rows = [f"{word} number {row},{word}" for row in range(20) for word in ("good", "bad")]
    (folder / "texts.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    words = ["--model", "textcnn", "--epochs", 1, "--out", folder / "run"]
    assert run("train", folder / "texts.csv", *words) == 0
    return folder / "run"


def test_attack_prints_clean_accuracies_and_a_table_and_draws(capsys, runs):
    caps, plain = runs
    words = ["--beside", plain, "--methods", "fgsm", "bim", "--epsilons", 0.3, 0.1, "--steps", 3]
    assert run("attack", caps, *words) == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert lines[1].startswith("caps: clean accuracy 100.0% (")
    assert lines[2].startswith("plain: clean accuracy ")
    assert lines[3] == "The intervals of the clean accuracies overlap: 12 examples do not distinguish them."
    head = next(line for line in lines if line.startswith("epsilon"))
    assert re.split(r"\s{2,}", head) == ["epsilon", "caps fgsm", "caps bim", "plain fgsm", "plain bim"]
    assert [line.split()[0] for line in lines[lines.index(head) + 1 :]] == ["0.1", "0.3"]
    assert re.findall(r"picture: .*/caps/attack/(\w+).png", said.err) == ["curve", "examples"]
    kept = json.loads((caps / "attack" / "results.json").read_text())
    points = kept["runs"]["caps"]["attacks"]["bim"]["points"]
    assert [point["epsilon"] for point in points] == [0.1, 0.3]
    assert kept["runs"]["caps"]["accuracy"] == 1
    assert points[1]["accuracy"] < 1  # brightness tells the classes apart


def test_clean_accuracies_that_differ_are_told(capsys, runs, tmp_path):
    caps, plain = runs
    dead = shutil.copytree(plain, tmp_path / "dead")
    weights = load_file(dead / "model.safetensors")
    save_file({name: 0 * tensor for name, tensor in weights.items()}, dead / "model.safetensors")
    assert run("attack", caps, "--beside", dead, "--methods", "fgsm", "--epsilons", 0.1) == 0
    said = capsys.readouterr()
    assert "differ by more than their intervals: a fair comparison needs runs of equal accuracy.\n" in said.out
    expected = "warning: 100.0% of the examples have no gradient at all in dead, for which the attack shows nothing\n"
    assert expected in said.err


def test_attack_with_targets_from_another_run(capsys, runs):
    caps, plain = runs
    words = ["--transfer", plain, "--targeted", "--methods", "pgd", "--epsilons", 0.2, "--steps", 2, "--count", 6]
    assert run("attack", caps, *words, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["examples"], found["targeted"], found["transfer"]) == (6, True, str(plain))
    (point,) = found["runs"]["caps"]["attacks"]["pgd"]["points"]
    assert point["driven"] == pytest.approx(1 - point["accuracy"])  # there are two classes
    assert run("attack", caps, *words) == 0
    out = capsys.readouterr().out
    assert "classified as the target" in out
    assert f"changes made on {plain}" in out


def test_jumble_prints_a_table_and_a_verdict(capsys, runs):
    caps, plain = runs
    assert run("jumble", caps, "--json") == 0
    kept = json.loads(capsys.readouterr().out)
    assert kept == json.loads((caps / "jumble" / "results.json").read_text())
    assert run("jumble", caps, "--beside", plain) == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert len([line for line in lines if line.startswith("caps ")]) == 6
    told = (
        r"(stays as sure|becomes less sure|becomes unsure) when parts are shuffled \(\d+% of its confidence, \d+% to "
    )
    few = r"was shown too few images \(12\) to tell how sure it stays when parts are shuffled\.$"
    assert re.match(f"^caps ({told}|{few})", lines[-3])
    assert re.match(f"^plain ({told}|{few})", lines[-2])
    assert lines[-1] == "Side by side is left out: with two classes, naming both is trivial."
    assert re.findall(r"picture: .*/caps/jumble/(\w+).png", said.err) == ["examples", "confidence"]
    assert set(kept["runs"]["caps"]["images"]) == {"whole", "2x2", "3x3", "rows", "mirrored"}
    assert kept["runs"]["caps"]["images"]["whole"]["accuracy"] == 1


def test_two_things_are_named_of_three_classes_or_more():
    images = torch.zeros(6, 1, 8, 8)
    for classes in (("a", "b"), ("a", "b", "c")):
        data = InMemoryImages(images, torch.arange(6) % len(classes), classes)
        assert ("side by side" in jumbled_sets(data)) == (len(classes) == 3)


def test_strange_compares_its_two_detectors(capsys, runs):
    caps, _ = runs
    assert run("strange", caps, "--against", "noise", "digits", "--count", 12) == 0
    said = capsys.readouterr()
    rows = [line.split() for line in said.out.splitlines() if line.startswith(("noise ", "digits "))]
    assert [(row[0], row[2]) for row in rows] == [
        ("noise", "reconstruction"),
        ("noise", "confidence"),
        ("digits", "reconstruction"),
        ("digits", "confidence"),
    ]
    assert re.search(r"^noise: (the reconstruction error|the confidence|the intervals of both)", said.out, re.MULTILINE)
    assert "picture: " in said.err
    assert (caps / "strange" / "roc.png").stat().st_size > 5000
    kept = json.loads((caps / "strange" / "results.json").read_text())
    curve = kept["against"]["noise"]["reconstruction"]
    assert curve["area"] > 0.9
    assert curve["interval_95"] == pytest.approx(area_interval(curve["area"], 12, 12))
    assert len(kept["verdicts"]) == 2


def test_strange_takes_folders_and_runs_without_a_decoder(capsys, runs, tmp_path):
    _, plain = runs
    others = save_pictures(tmp_path / "others", 3, size=32)
    assert run("strange", plain, "--against", others, "attacked", "--json") == 0
    found = json.loads(capsys.readouterr().out)["against"]
    assert list(found) == [str(others), "attacked"]
    assert set(found["attacked"]) == {"examples", "confidence"}
    assert found[str(others)]["examples"] == 6
    assert run("strange", plain, "--against", "noise", "jumbled") == 0
    assert capsys.readouterr().out.count("The run has no decoder, so its confidence is the only detector.\n") == 1


@pytest.mark.parametrize("command", ["attack", "jumble"])
def test_texts_are_refused(capsys, texts, command):
    assert run(command, texts) == 2
    expected = f"torchcaps {command}: expected a run on images, got {texts}, on texts. Choose another run.\n"
    assert capsys.readouterr().err.endswith(expected)


def test_texts_are_no_strange_images(capsys, runs, texts):
    table = texts.parent / "texts.csv"
    assert run("strange", runs[0], "--against", table) == 2
    expected = "--against: expected images, noise, jumbled, attacked or scattered, got"
    assert capsys.readouterr().err == f"{expected} {table}, which are texts. Choose another.\n"


def test_help_answers_without_torch():
    code = """
import sys
from torchcaps.apps.cli.main import main
for command in ("attack", "jumble", "strange"):
    try:
        main([command, "--help"])
    except SystemExit:
        pass
print([name for name in ("torch", "numpy", "matplotlib") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.endswith("[]\n"), done.stdout + done.stderr
    assert done.stdout.count("examples:") == 3


def test_runs_on_other_images_are_refused(capsys, runs, tmp_path):
    caps, _ = runs
    small = save_pictures(tmp_path / "small", 8, size=16)
    assert run("train", small, *SMALL, "--out", tmp_path / "run") == 0
    capsys.readouterr()
    assert run("attack", caps, "--beside", tmp_path / "run") == 2
    expected = (
        f"{tmp_path / 'run'}: expected images (1, 20, 20), as in {caps}, got images (1, 16, 16). Choose another run.\n"
    )
    assert capsys.readouterr().err == expected


def test_a_run_with_another_test_part_is_told_of(capsys, runs, tmp_path):
    caps, plain = runs
    other = shutil.copytree(plain, tmp_path / "other")
    facts = json.loads((other / "metadata.json").read_text())
    facts["fingerprints"]["test"] = "00000000"
    (other / "metadata.json").write_text(json.dumps(facts))
    assert run("jumble", caps, "--beside", other, "--count", 4) == 0
    expected = f"warning: {other} has another test part: it may have trained on these images\n"
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["attack", "--epsilons", 2], "attack: expected --epsilons between 0.001 and 1, got 2.0."),
        (["attack", "--count", 0], "attack: expected --count to be a whole number from 1 on, got 0."),
        (["attack", "--steps", 0], "attack: expected --steps to be a whole number from 1 on, got 0."),
        (["jumble", "--count", 0], "jumble: expected --count to be a whole number from 1 on, got 0."),
        (["strange", "--against", "nothing"], "got 'nothing', which is none of these."),
    ],
)
def test_mistakes_are_told(capsys, runs, words, expected):
    command, *more = words
    assert run(command, runs[0], *more) == 2
    said = capsys.readouterr().err
    assert expected in said
    assert said.count("\n") == 1
