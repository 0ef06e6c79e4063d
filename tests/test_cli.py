"""The command line, as a user meets it."""

import gzip
import json
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from PIL import Image

from torchcaps.cli import COMMANDS, main
from torchcaps.data import load_dataset, write_norb

SMALL = ["--epochs", "1", "--option", "capsules=8", "--batch-size", "32"]


@pytest.fixture(autouse=True)
def _plain_warnings(monkeypatch):
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # main sets its own


def run(*words):
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        return main([str(word) for word in words])


def save_pictures(folder, per_class=12, size=20):
    """Bright squares on the left or on the right."""
    generator = np.random.default_rng(0)
    for label, name in enumerate(("left", "right")):
        (folder / name).mkdir(parents=True)
        for number in range(per_class):
            pixels = generator.integers(0, 60, (size, size), dtype=np.uint8)
            pixels[5:15, 2 + 9 * label : 9 + 9 * label] += 180
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder


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
    for words in ([], ["train", "--help"], ["evaluate", "--help"], ["predict", "--help"], ["list", "--help"]):
        code = f"""
import sys
from torchcaps.cli import main
try:
    main({words})
finally:
    print([name for name in ("torch", "lightning", "numpy", "matplotlib") if name in sys.modules])
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.stdout.endswith("[]\n"), done.stdout + done.stderr
        assert "examples:" in done.stdout


def test_help_names_every_command(capsys):
    assert main([]) == 0
    text = capsys.readouterr().out
    assert all(f"\n  {name} " in text for name in COMMANDS)


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == "torchcaps 0.1.0\n"


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
    assert "12 images" in said.out
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
        assert json.loads(capsys.readouterr().out)["test"]["images"] == 12
    finally:
        extra.unlink()


def test_other_data_are_evaluated_in_the_classes_of_the_run(capsys, trained, tmp_path):
    folder = save_pictures(tmp_path / "others", 5, size=32)
    (folder / "left").rename(folder / "aside")
    assert run("evaluate", trained, "--data", folder, "--no-pictures") == 2
    assert "expected classes among left, right, got aside" in capsys.readouterr().err
    (folder / "aside").rename(folder / "left")
    assert run("evaluate", trained, "--data", folder, "--no-pictures", "--json") == 0
    assert json.loads(capsys.readouterr().out)["test"]["images"] == 10


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
    generator = np.random.default_rng(0)
    folder = tmp_path / "data" / "smallnorb"
    folder.mkdir(parents=True)
    stems = ("smallnorb-5x46789x9x18x6x2x96x96-training", "smallnorb-5x01235x9x18x6x2x96x96-testing")
    for stem in stems:
        views = np.stack([np.arange(60) % 5, np.arange(60) % 9, 2 * (np.arange(60) % 18), np.arange(60) % 6], 1)
        write_norb(folder / f"{stem}-dat.mat", generator.integers(0, 256, (60, 2, 96, 96), dtype=np.uint8))
        write_norb(folder / f"{stem}-cat.mat", (np.arange(60) // 12).astype(np.int32))
        write_norb(folder / f"{stem}-info.mat", views.astype(np.int32))
    words = ["smallnorb", "--data-dir", tmp_path / "data", "--model", "matrix-small", "--option", "sizes=[8,2,2,2]"]
    assert run("train", *words, "--size", 32, "--epochs", 1, "--iterations", 1, "--out", tmp_path / "run") == 0
    assert run("evaluate", tmp_path / "run", "--data-dir", tmp_path / "data") == 0
    assert "smallnorb, test: 60 images" in capsys.readouterr().out
    words += ["--size", 32, "--epochs", 1, "--iterations", 1, "--viewpoint", "elevation"]
    assert run("train", *words, "--out", tmp_path / "views") == 0
    assert run("evaluate", tmp_path / "views", "--no-pictures") == 0
    said = capsys.readouterr().out
    assert "familiar viewpoints" in said
    assert "novel viewpoints" in said


# Bad input: one sentence, exit code 2, nothing lost


def sentence(capsys, *words):
    capsys.readouterr()
    assert run(*words) == 2
    said = capsys.readouterr().err.strip()
    assert "Traceback" not in said
    assert len(said.splitlines()) == 1, said
    return said


def test_empty_folder(capsys, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "expected pictures in one subfolder for each class" in sentence(capsys, "train", tmp_path / "empty")


def test_one_class(capsys, tmp_path):
    folder = save_pictures(tmp_path / "one")
    for path in (folder / "right").iterdir():
        path.unlink()
    assert "expected at least two classes with images, got left" in sentence(capsys, "train", folder)


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
    assert json.loads((tmp_path / "run" / "data.json").read_text())["image_shape"] == [3, 20, 20]
    assert run("predict", tmp_path / "run", folder / "left" / "0.png", folder / "right" / "0.png") == 0


def test_only_broken_pictures(capsys, tmp_path, trained):
    (tmp_path / "bad.png").write_text("no picture")
    assert "expected readable pictures" in sentence(capsys, "predict", trained, tmp_path / "bad.png")
    assert "which is not there" in sentence(capsys, "predict", trained, tmp_path / "nowhere.png")


def test_idx_file_of_no_bytes(capsys, tmp_path):
    (tmp_path / "train-images-idx3-ubyte").touch()
    (tmp_path / "train-labels-idx1-ubyte").touch()
    assert "expected an idx file" in sentence(capsys, "train", tmp_path)


def test_wrong_checksum(capsys, tmp_path):
    folder = tmp_path / "mnist"
    folder.mkdir()
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (folder / f"{name}-ubyte.gz").write_bytes(gzip.compress(b"other"))
    assert "md5" in sentence(capsys, "train", "mnist", "--data-dir", tmp_path)


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
        (["train", "--resume", "nowhere"], "expected a run folder, got no such folder"),
        (["train", "digits", "--resume", "nowhere"], "expected no other options"),
        (["train", "--config", "nowhere.json"], "expected a JSON file of options"),
        (["train", "multimnist-5k", "--augment", "shift"], "no augmentation and the margin loss"),
        (["train", "multimnist-5k", "--size", "20"], "its images are made as they are shown"),
        (["evaluate", "nowhere"], "expected a run folder, got no such folder"),
        (["predict", "nowhere"], "expected picture files or folders"),
        (["dance"], "expected train, evaluate, predict, list, got 'dance'"),
    ],
)
def test_unknown_names_and_misfits(capsys, tmp_path, monkeypatch, words, expected):
    if "cuda" in words and torch.cuda.is_available():
        pytest.skip("this machine has what the test wants missing")
    monkeypatch.chdir(tmp_path)
    assert expected in sentence(capsys, *words)
    assert not list(tmp_path.iterdir())  # no half-made run


def test_unknown_option_is_told():
    with pytest.raises(SystemExit) as stopped:
        run("train", "--epoch", 3)
    assert stopped.value.code == 2
