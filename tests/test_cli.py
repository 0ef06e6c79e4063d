"""The command line, as a user meets it."""

import csv
import gzip
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.support.commands import SMALL, run, save_norb, save_pictures
from torchcaps.apps.cli.main import COMMANDS, main
from torchcaps.data import load_dataset


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return save_pictures(tmp_path_factory.mktemp("data") / "squares", 30)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, pictures):
    out = tmp_path_factory.mktemp("runs") / "squares"
    assert run("train", pictures, *SMALL, "--epochs", 8, "--out", out) == 0
    return out


# Help


def test_help_answers_without_torch():
    """In one process: what a command imports is there after all that follow."""
    asked = [[], ["draw", "clusters", "--help"], *([name, "--help"] for name in COMMANDS)]
    code = f"""
import sys
from torchcaps.apps.cli.main import main
for words in {asked}:
    try:
        main(words)
    except SystemExit:
        pass
    print([name for name in ("torch", "lightning", "numpy", "matplotlib") if name in sys.modules], end="\\f")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    answers = done.stdout.split("\f")[:-1]
    assert len(answers) == len(asked), done.stdout + done.stderr
    for words, answer in zip(asked, answers, strict=True):
        assert answer.endswith("\n[]"), (words, answer, done.stderr)
        about, examples, _ = answer.partition("examples:")
        assert examples, words
        assert "\n    " not in about.partition("\n\n")[2]  # what a docstring is indented by is no part of it


def test_help_names_every_command(capsys):
    assert main([]) == 0
    text = capsys.readouterr().out
    assert all(f"\n  {name} " in text for name in COMMANDS)


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == "torchcaps 0.2.0\n"


@pytest.mark.parametrize(
    ("what", "names"),
    [("models", ["efficient", "matrix-small"]), ("routings", ["em", "dynamic"]), ("datasets", ["mnist-5k", "toys"])],
)
def test_list(capsys, what, names):
    assert run("list", what) == 0
    lines = capsys.readouterr().out.splitlines()
    assert set(names) <= {line.split()[0] for line in lines}
    assert all(len(line.split()) > 2 for line in lines)  # each with a description


# The main job


def test_own_pictures_are_learned_evaluated_and_predicted(capsys, trained, pictures, tmp_path):
    assert run("evaluate", trained) == 0
    said = capsys.readouterr()
    assert "12 examples" in said.out
    assert "accuracy 100.00%, error 0.00% (95 % interval 0.00% to " in said.out
    assert (trained / "evaluation" / "confusion.png").stat().st_size > 5000
    assert (trained / "evaluation" / "examples.png").stat().st_size > 5000
    assert run("evaluate", trained, "--json", "--no-pictures") == 0
    assert json.loads(capsys.readouterr().out)["test"]["accuracy"] == 1
    strange = tmp_path / "strange.png"
    Image.fromarray(255 * (np.indices((40, 60)).sum(0) % 2).astype(np.uint8)).save(strange)
    assert run("predict", trained, pictures / "left" / "0.png", strange, "--json") == 0
    answers = json.loads(capsys.readouterr().out)
    assert [answer["file"] for answer in answers] == [str(pictures / "left" / "0.png"), str(strange)]
    assert answers[0]["labels"] == ["left"]
    assert 0.5 < answers[0]["confidence"][0] <= 1
    assert [answer["fits"] for answer in answers] == [True, False]
    assert run("predict", trained, pictures / "right") == 0
    table = capsys.readouterr().out.splitlines()
    assert table[0].split() == ["file", "class", "confidence", "reconstruction"]
    assert len(table) == 31
    assert run("list", "runs", "--folder", trained.parent) == 0
    assert "8/8" in capsys.readouterr().out


def test_the_split_of_own_pictures_stays_when_files_are_added(capsys, trained, pictures):
    names = json.loads((trained / "split.json").read_text())["test"]
    assert len(names) == 12
    assert all(name.startswith(("left/", "right/")) for name in names)
    extra = pictures / "left" / "new.png"
    Image.new("L", (20, 20)).save(extra)
    try:
        assert run("evaluate", trained, "--json", "--no-pictures") == 0
        assert json.loads(capsys.readouterr().out)["test"]["examples"] == 12
    finally:
        extra.unlink()


def test_every_mistake_is_named(trained, pictures, tmp_path, capsys):
    """Pictures of the left under the name of the right: a mistake each, and no other."""
    assert run("evaluate", trained) == 0
    assert (trained / "evaluation" / "mistakes.csv").read_text() == "example,label,answer,confidence\n"
    for name, source in (("left", "right"), ("right", "right")):
        (tmp_path / "half" / name).mkdir(parents=True)
        for number in range(3):
            copied = (pictures / source / f"{number}.png").read_bytes()
            (tmp_path / "half" / name / f"{number}.png").write_bytes(copied)
    assert run("evaluate", trained, "--data", tmp_path / "half") == 0
    with open(trained / "evaluation" / "half-test" / "mistakes.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["example"] for row in rows} == {f"left/{number}.png" for number in range(3)}
    assert {(row["label"], row["answer"]) for row in rows} == {("left", "right")}
    sure = [float(row["confidence"]) for row in rows]
    assert sure == sorted(sure, reverse=True)


def test_other_data_are_evaluated_in_the_classes_of_the_run(capsys, trained, tmp_path):
    folder = save_pictures(tmp_path / "others", 5, size=32)
    (folder / "left").rename(folder / "aside")
    assert run("evaluate", trained, "--data", folder, "--no-pictures") == 2
    assert "expected classes among left, right, got aside" in capsys.readouterr().err
    (folder / "aside").rename(folder / "left")
    assert run("evaluate", trained, "--data", folder, "--no-pictures", "--json") == 0
    assert json.loads(capsys.readouterr().out)["test"]["examples"] == 10


def test_config_is_read_back_and_options_beside_it_win(trained, pictures, tmp_path):
    out = tmp_path / "again"
    assert run("train", "--config", trained / "config.json", "--epochs", 1, "--out", out) == 0
    first, second = (json.loads((folder / "config.json").read_text()) for folder in (trained, out))
    assert second["epochs"] == 1
    changed = {"epochs", "out"}
    assert {key: first[key] for key in first if key not in changed} == {
        key: second[key] for key in second if key not in changed
    }


def test_npz_and_idx_files_train(tmp_path, capsys):
    digits = load_dataset("digits").validation
    np.savez(tmp_path / "digits.npz", images=digits.images[:, 0].numpy(), labels=digits.labels.numpy())
    assert run("train", tmp_path / "digits.npz", *SMALL, "--out", tmp_path / "a") == 0
    for name, array in (
        ("images-idx3-ubyte", digits.images[:, 0].numpy()),
        ("labels-idx1-ubyte", digits.labels.numpy()),
    ):
        array = array.astype(np.uint8)
        header = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
        (tmp_path / "idx").mkdir(exist_ok=True)
        with gzip.open(tmp_path / "idx" / f"train-{name}-ubyte.gz", "wb") as file:
            file.write(header + array.tobytes())
    assert run("train", tmp_path / "idx", *SMALL, "--out", tmp_path / "b") == 0
    assert run("evaluate", tmp_path / "b", "--no-pictures") == 0


def test_smallnorb_in_its_public_format_trains_end_to_end(tmp_path, capsys):
    save_norb(tmp_path / "data")
    words = ["smallnorb", "--data-dir", tmp_path / "data", "--model", "matrix-small", "--option", "sizes=[8,2,2,2]"]
    assert run("train", *words, "--size", 32, "--epochs", 1, "--iterations", 1, "--out", tmp_path / "run") == 0
    assert run("evaluate", tmp_path / "run", "--data-dir", tmp_path / "data") == 0
    assert "smallnorb, test: 60 examples" in capsys.readouterr().out
    words += ["--size", 32, "--epochs", 1, "--iterations", 1, "--viewpoint", "elevation"]
    assert run("train", *words, "--out", tmp_path / "views") == 0
    assert run("evaluate", tmp_path / "views", "--no-pictures") == 0
    said = capsys.readouterr().out
    assert "familiar viewpoints" in said
    assert "novel viewpoints" in said


def test_moved_pictures_keep_the_split_of_the_run(capsys, trained, pictures, tmp_path):
    shutil.copytree(pictures, tmp_path / "moved")
    assert run("evaluate", trained, "--data", tmp_path / "moved", "--no-pictures", "--json") == 0
    assert json.loads(capsys.readouterr().out)["test"]["examples"] == 12  # not the 48 it was trained on


def test_a_run_is_evaluated_from_any_folder(capsys, trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("evaluate", trained, "--no-pictures") == 0


def test_new_classes_do_not_shift_the_labels_of_a_run(capsys, trained, pictures):
    shutil.copytree(pictures / "left", pictures / "another")  # before "left" in the alphabet
    try:
        assert run("evaluate", trained, "--no-pictures", "--json") == 0
        assert json.loads(capsys.readouterr().out)["test"]["accuracy"] == 1
    finally:
        shutil.rmtree(pictures / "another")


def test_folders_of_train_and_test_are_the_parts(tmp_path):
    save_pictures(tmp_path / "parted" / "train", 20)
    save_pictures(tmp_path / "parted" / "Test", 6)
    assert run("train", tmp_path / "parted", *SMALL, "--validation", 0.2, "--out", tmp_path / "run") == 0
    assert json.loads((tmp_path / "run" / "metadata.json").read_text())["classes"] == ["left", "right"]
    split = json.loads((tmp_path / "run" / "split.json").read_text())
    assert {part: len(names) for part, names in split.items()} == {"train": 32, "validation": 8, "test": 12}


def test_class_names_of_any_kind_are_drawn(tmp_path, capsys):
    folder = save_pictures(tmp_path / "names", 8)
    (folder / "left").rename(folder / "a$_$b")
    (folder / "right").rename(folder / "\u732b")
    assert run("train", folder, *SMALL, "--out", tmp_path / "run") == 0
    assert run("evaluate", tmp_path / "run") == 0
    assert (tmp_path / "run" / "evaluation" / "examples.png").exists()


def test_results_are_json_even_for_classes_without_images(tmp_path, trained, capsys):
    folder = save_pictures(tmp_path / "half", 3)
    for file in (folder / "right").iterdir():
        file.unlink()
    assert run("evaluate", trained, "--data", folder, "--json", "--no-pictures") == 0
    text = capsys.readouterr().out
    assert "NaN" not in text
    assert json.loads(text)["test"]["classes"][1]["recall"] is None
    kept = trained / "evaluation" / "half-test" / "results.json"
    assert json.loads(kept.read_text())["data"] == str(folder)


def test_examples_of_the_help_can_be_parsed():
    from torchcaps.apps.cli import commands, parsing
    from torchcaps.apps.cli.commands.train import Train
    from torchcaps.apps.cli.main import HELP

    files = sorted(Path(commands.__file__).parent.glob("*.py"))
    text = HELP + "".join(file.read_text() for file in files)
    lines = set(re.findall(r"^ *(?:\"  |  )torchcaps train (.*?)(?:  .*)?$", text, re.MULTILINE))
    assert len(lines) >= 6
    for line in lines:
        if not line.startswith(("DATA", "--config")):
            parsing.parse(Train, line.rstrip('"').split(), "train", "", Train())
