"""Bad input: one sentence, exit code 2, nothing lost."""

import gzip
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from tests.support.commands import SMALL, refused, run, save_pictures
from torchcaps.apps.cli.commands import COMMANDS


def test_empty_folder(capsys, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "expected pictures in one subfolder for each class" in refused(capsys, "train", tmp_path / "empty")


def test_large_pictures_ask_for_a_size(capsys, tmp_path):
    folder = save_pictures(tmp_path / "large", 3, size=300)
    assert "Give --size" in refused(capsys, "train", folder)
    Image.new("L", (30, 20)).save(folder / "left" / "0.png")
    for number in (1, 2):
        Image.new("L", (20, 20)).save(folder / "left" / f"{number}.png")
        Image.new("L", (20, 20)).save(folder / "right" / f"{number}.png")
    (folder / "right" / "0.png").unlink()
    assert "expected pictures of one size" in refused(capsys, "train", folder)


@pytest.mark.parametrize(
    "arrays",
    [
        {"images": np.array(["a", "b"]), "labels": np.arange(2)},
        {"images": np.array(5), "labels": np.arange(2)},
        {"images": np.zeros((2, 0, 0)), "labels": np.arange(2)},
        {"images": np.array([object()]), "labels": np.arange(1)},
        {"pixels": np.zeros((2, 8, 8)), "labels": np.arange(2)},
        {"images": np.full((2, 8, 8), np.nan), "labels": np.arange(2)},
    ],
)
def test_arrays_that_are_no_images(capsys, tmp_path, arrays):
    np.savez(tmp_path / "odd.npz", **arrays)
    assert "odd.npz: expected" in refused(capsys, "train", tmp_path / "odd.npz")


def test_data_that_changed_under_a_run_are_refused(capsys, tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (30, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "set.npz", images=images, labels=np.arange(30) % 3)
    assert run("train", tmp_path / "set.npz", *SMALL, "--out", tmp_path / "run") == 0
    np.savez(tmp_path / "set.npz", images=images[::-1], labels=np.arange(30) % 3)
    assert "other pixels or labels in the train part" in refused(capsys, "evaluate", tmp_path / "run")
    assert "other pixels or labels" in refused(capsys, "train", "--resume", tmp_path / "run")


@pytest.fixture(scope="module")
def small_run(tmp_path_factory):
    folder = save_pictures(tmp_path_factory.mktemp("data") / "squares")
    out = tmp_path_factory.mktemp("runs") / "squares"
    assert run("train", folder, *SMALL, "--out", out) == 0
    return out


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("split.json", "{}"),
        ("split.json", '{"train": 5, "validation": [], "test": []}'),
        ("split.json", "no json"),
        ("metadata.json", '{"classes": ["a", "b"], "image_shape": [1, 20, 20], "labels_per_image": "x"}'),
        ("metadata.json", '{"classes": 3}'),
        ("metadata.json", "[]"),
        ("config.json", '{"out": 5}'),
        ("config.json", '{"preset": "foo"}'),
        ("config.json", '{"seed": "a"}'),
        ("config.json", '{"colors": true}'),
        ("model.safetensors", "no weights"),
    ],
)
def test_broken_files_of_a_run(capsys, tmp_path, small_run, file, text):
    shutil.copytree(small_run, tmp_path / "run")
    (tmp_path / "run" / file).write_text(text)
    assert f"{file}: expected" in refused(capsys, "evaluate", tmp_path / "run", "--no-pictures")


@pytest.mark.parametrize("content", [b"", b"junk", b"PK\x03\x04 cut off"])
def test_broken_checkpoint(capsys, tmp_path, small_run, content):
    shutil.copytree(small_run, tmp_path / "run")
    (tmp_path / "run" / "last.ckpt").write_bytes(content)
    said = refused(capsys, "train", "--resume", tmp_path / "run")
    assert "expected a checkpoint of this run, got a broken or foreign file. Delete it to begin anew" in said
    (tmp_path / "run" / "last.ckpt").unlink()
    weights = (small_run / "model.safetensors").read_bytes()
    assert run("train", "--resume", tmp_path / "run") == 0
    assert (tmp_path / "run" / "model.previous.safetensors").read_bytes() == weights  # nothing was lost


def test_metrics_of_another_kind_do_not_hide_the_runs(capsys, tmp_path, small_run):
    shutil.copytree(small_run, tmp_path / "runs" / "run")
    (tmp_path / "runs" / "run" / "metrics.csv").write_text("a,b\n1,2\n")
    assert run("list", "runs", "--folder", tmp_path / "runs") == 0
    assert "?" in capsys.readouterr().out


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read and write everything")
def test_folders_without_rights(capsys, tmp_path):
    (tmp_path / "locked").mkdir(mode=0)
    assert "Permission denied" in refused(capsys, "train", tmp_path / "locked")


def test_results_that_cannot_be_written(capsys, tmp_path, small_run):
    shutil.copytree(small_run, tmp_path / "run")
    (tmp_path / "run" / "evaluation").touch()
    assert "File exists" in refused(capsys, "evaluate", tmp_path / "run", "--no-pictures")


def test_out_that_is_a_file(capsys, tmp_path):
    (tmp_path / "file").touch()
    assert "file" in refused(capsys, "train", "digits", *SMALL, "--out", tmp_path / "file")


def test_idx_files_of_two_training_sets(capsys, tmp_path):
    for name in ("a", "b"):
        for kind in ("images-idx3", "labels-idx1"):
            shape = [12, 8, 8] if "images" in kind else [12]
            header = bytes([0, 0, 8, len(shape)]) + b"".join(size.to_bytes(4, "big") for size in shape)
            (tmp_path / f"{name}-{kind}-ubyte").write_bytes(header + bytes(i % 3 for i in range(int(np.prod(shape)))))
    assert "expected one file of train images" in refused(capsys, "train", tmp_path)


def test_one_class(capsys, tmp_path):
    folder = save_pictures(tmp_path / "one")
    for path in (folder / "right").iterdir():
        path.unlink()
    assert "expected at least two classes with examples, got left" in refused(capsys, "train", folder)


def test_broken_pictures_among_many_are_left_out_with_a_warning(capsys, tmp_path):
    folder = save_pictures(tmp_path / "some")
    whole = (folder / "left" / "0.png").read_bytes()
    (folder / "left" / "0.png").write_bytes(whole[: len(whole) // 2])
    (folder / "left" / "1.png").write_text("this is no picture")
    assert run("train", folder, *SMALL, "--out", tmp_path / "run") == 0
    assert "warning:" in (said := capsys.readouterr().err)
    assert "left out 2 of 24 pictures that cannot be read" in said


def test_rgba_and_16_bit_pictures_are_read(capsys, tmp_path):
    folder = save_pictures(tmp_path / "kinds")
    Image.new("RGBA", (20, 20), (255, 0, 0, 128)).save(folder / "left" / "0.png")
    Image.fromarray(np.full((20, 20), 40_000, np.uint16)).save(folder / "right" / "0.png")
    assert run("train", folder, *SMALL, "--out", tmp_path / "run") == 0
    assert json.loads((tmp_path / "run" / "metadata.json").read_text())["image_shape"] == [3, 20, 20]
    assert run("predict", tmp_path / "run", folder / "left" / "0.png", folder / "right" / "0.png") == 0


def test_only_broken_pictures(capsys, tmp_path, small_run):
    (tmp_path / "bad.png").write_text("no picture")
    assert "expected readable pictures" in refused(capsys, "predict", small_run, tmp_path / "bad.png")
    assert "which is not there" in refused(capsys, "predict", small_run, tmp_path / "nowhere.png")


def test_idx_file_of_no_bytes(capsys, tmp_path):
    (tmp_path / "train-images-idx3-ubyte").touch()
    (tmp_path / "train-labels-idx1-ubyte").touch()
    assert "expected an idx file" in refused(capsys, "train", tmp_path)


def test_wrong_checksum(capsys, tmp_path):
    folder = tmp_path / "mnist"
    folder.mkdir()
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (folder / f"{name}-ubyte.gz").write_bytes(gzip.compress(b"other", mtime=0))
    assert "md5" in refused(capsys, "train", "mnist", "--data-dir", tmp_path)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["train", "digitz"], "expected a folder with one subfolder"),
        (["train", "digits", "--model", "capsnett"], "model to be one of 'efficient'"),
        (["train", "digits", "--routing", "emm"], "'emm'"),
        (["train", "digits", "--augment", "blur"], "augment to be one of 'none'"),
        (["train", "digits", "--model", "capsnet"], "images of at least 17 pixels"),
        (["train", "digits", "--option", "wings=2"], "got wings"),
        (["train", "digits", "--device", "cuda"], "expected a device cuda, got none"),
        (["train", "digits", "--device", "tpu"], "expected device to be one of 'auto'"),
        (["evaluate", "nowhere", "--device", "cuda"], "evaluate: expected a device cuda, got none"),
        (["predict", "nowhere", "x.png", "--device", "cuda"], "predict: expected a device cuda, got none"),
        (["train", "digits", "--color", "True"], "--color: expected a folder of pictures, got digits"),
        (["train", "--resume", "nowhere"], "expected a run folder, got no such folder"),
        (["train", "digits", "--resume", "nowhere"], "expected no other options"),
        (["train", "--config", "nowhere.json"], "expected a JSON file of options"),
        (["train", "multimnist-5k", "--augment", "shift"], "no augmentation and the margin loss"),
        (["train", "multimnist-5k", "--size", "20"], "its images are made as they are shown"),
        (["evaluate", "nowhere"], "expected a run folder, got no such folder"),
        (["predict", "nowhere"], "expected files or texts"),
        (["train", "--epoch", "3"], "Unrecognized options: --epoch"),
        (["train", "--epochs", "abc"], "train: --epochs: expected a whole number, got 'abc'. Try"),
        (["train", "--size", "32*48"], "--size: expected a side of 4 to 1024 pixels, or height x width, got '32*48'."),
        (["train", "--accumulate", "two"], "train: --accumulate: expected a whole number, got 'two'. Try"),
        (["train", "--lr", "fast"], "train: --lr: expected a number, got 'fast'. Try"),
        (["train", "digits", "--color", "false"], "--color: expected a folder of pictures, got digits"),
        (["evaluate"], "Missing from torchcaps evaluate: RUN"),
        (["list", "foo"], "invalid choice 'foo'"),
        (["train", "digits", "--size", "0"], "a side of 4 to 1024 pixels, or height x width, got 0"),
        (["train", "digits", "--size", "100000"], "a side of 4 to 1024 pixels, or height x width, got 100000"),
        (["train", "digits", "--validation", "nan"], "validation between 0 and 0.9"),
        (
            ["train", "digits", "--test", "0.3"],
            "--test: expected data without parts of their own, got digits. Drop --test.",
        ),
        (["train", "digits", "--seed", "99999999999999"], "seed between 0"),
        (["train", "digits", "--limit", "3"], "expected examples of every class, got none of"),
        (["train", "digits", "--viewpoint", "azimuth"], "azimuth"),
        (["train", "digits", "--option", "capsules=abc"], "capsules to be a whole number from 1 on"),
        (["train", "digits", "--option", "capsules=0"], "capsules to be a whole number from 1 on"),
        (["train", "digits", "--option", "decoder=5"], "no option that has a flag of its own, got decoder"),
        (["train", "digits", "--option", "encoder=vgg"], "no option that has a flag of its own, got encoder"),
        (["train", "digits", "--model", "matrix-small", "--size", "20", "--option", "sizes=3"], "four sizes A, B, C"),
        (
            ["train", "digits", "--model", "matrix-small", "--size", "20", "--option", "sizes=[8,2]"],
            "four sizes A, B, C and D, got (8, 2)",
        ),
        (
            ["train", "digits", "--model", "cnn-small", "--reconstruction", "1"],
            "expected a capsule model, got cnn-small",
        ),
        (["train", "digits", "--iterations", "2"], "got iterations"),
        (["train", "digits", "--routing", "dynamc", "--iterations", "2"], "got 'dynamc'"),
        (["dance"], f"expected {', '.join(COMMANDS)}, got 'dance'"),
    ],
)
def test_unknown_names_and_misfits(capsys, tmp_path, monkeypatch, words, expected):
    if "cuda" in words and torch.cuda.is_available():
        pytest.skip("this machine has what the test wants missing")
    monkeypatch.chdir(tmp_path)
    assert expected in refused(capsys, *words)
    assert not list(tmp_path.iterdir())  # no half-made run


def test_terminals_without_frames_get_the_same_sentence():
    told = [
        subprocess.run(
            [sys.executable, "-m", "torchcaps", "train", "--epoch", "3"],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONIOENCODING": encoding},
        ).stderr
        for encoding in ("utf-8", "ascii")
    ]
    assert told[0] == told[1]
    assert told[0].startswith("torchcaps train: Unrecognized options: --epoch")
