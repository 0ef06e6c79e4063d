"""Hard use in small: the campaigns of `torture`, and each fault that they found."""

import gzip
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import loadmat, savemat
from torture import broken, disk, fuzz, kill, leaks, routings
from torture.__main__ import main
from torture.result import Result, table

import torchcaps as tc
from torchcaps._core.errors import InputError
from torchcaps._core.files import atomic_write, is_temporary
from torchcaps.data import load_folder, load_npz, read_idx
from torchcaps.data.matlab import read_mat
from torchcaps.data.texts import Vocabulary
from torchcaps.functional import safe_divide
from torchcaps.runs.config import TrainConfig, parse_option
from torchcaps.runs.metadata import load_metadata
from torchcaps.runs.recipes import resolve
from torchcaps.runs.run import Run, RunMetadata
from torchcaps.runs.weights import load_weights, save_weights
from torchcaps.train import resume, train

SMALL = TrainConfig(data="digits", limit=100, epochs=2, batch_size=50, option=("capsules=4",), reconstruction=0.0)


# The campaigns


@pytest.mark.parametrize("reader", fuzz.readers(), ids=lambda reader: reader.name)
def test_broken_files_are_read_or_refused(reader):
    result = fuzz.try_reader(reader, 25, seed=1)
    assert not result.faults, result.faults[0]
    assert result.cases == 25
    assert result.outcomes["refused"] + result.outcomes["read"] == 25


@pytest.mark.parametrize("name", tc.ROUTINGS)
def test_extreme_votes_leave_values_and_gradients_finite(name):
    result = routings.try_routing(name, 1)  # a batch for each kind of options
    assert not result.faults, result.faults[0]
    assert result.cases == result.outcomes["finite"] >= 400


@pytest.fixture(scope="module")
def image_run(tmp_path_factory):
    return broken.image_run(tmp_path_factory.mktemp("broken") / "run")


@pytest.fixture(scope="module")
def text_run(tmp_path_factory):
    return broken.text_run(tmp_path_factory.mktemp("broken") / "texts")


@pytest.mark.parametrize("file", ["config.json", "metadata.json", "model.safetensors", "last.ckpt"])
def test_broken_runs_on_images_get_a_sentence(image_run, file):
    result = broken.try_file(image_run, file, 9, 100)
    assert not result.faults, result.faults[0]
    assert result.cases == 9


@pytest.mark.parametrize("file", ["split.json", "vocabulary.json"])
def test_broken_runs_on_texts_get_a_sentence(text_run, file):
    result = broken.try_file(text_run, file, 9, 100, texts=True)
    assert not result.faults, result.faults[0]
    assert result.cases == 9


def test_the_traps_are_real(tmp_path):
    for number, content in enumerate(broken.traps(tmp_path / "mark")[:1]):
        torch.load(io.BytesIO(content), weights_only=False)
        assert (tmp_path / "mark").exists(), number


@pytest.mark.skipif(not disk.can_mount(), reason="only root can mount a small disk")
def test_a_full_disk_gets_a_sentence_and_loses_nothing(tmp_path):
    (result,) = disk.run(1)
    assert not result.faults, result.faults[0]
    assert result.outcomes.keys() <= {"model.safetensors", "metrics.csv", "last.ckpt", "the folder"}


def test_cycles_leave_no_open_files_and_threads():
    (result,) = leaks.run(3)
    assert not [fault for fault in result.faults if "memory" not in fault]  # three are too few to see it grow


def test_a_slope_is_found_with_its_error():
    places = np.arange(100.0)
    noise = np.random.default_rng(0).normal(0, 5, 100)
    rise, error = leaks.slope(3 * places + noise)
    fitted, covariance = np.polyfit(places, 3 * places + noise, 1, cov=True)
    assert rise == pytest.approx(fitted[0])
    assert error == pytest.approx(covariance[0, 0] ** 0.5, rel=0.02)


def test_the_table_tells_faults_and_the_exit_code_too(tmp_path, capsys):
    result = Result("fuzz", "png")
    result.ended("read")
    result.fault("it hung")
    assert table([result]).splitlines()[2:] == ["| fuzz | png | 2 | read 1 | 1 | 0 |", "fuzz, png: it hung"]
    assert main(["routing", "--cases", "100", "--json", str(tmp_path / "t.json")]) == 0
    assert "| routing | dynamic, 15 kinds of options | 1,500 | finite 1,500 | 0 |" in capsys.readouterr().out
    assert len(json.loads((tmp_path / "t.json").read_text())) == len(tc.ROUTINGS)
    with pytest.raises(SystemExit):
        main(["tickle"])


# Kills


@pytest.mark.slow
def test_a_run_killed_while_its_checkpoint_is_half_written_goes_on(tmp_path):
    training = [*kill.TRAINING[:6], "--epochs", "2", "--option", "capsules=4", "--reconstruction", "0"]
    whole = disk.command(*training, "--out", str(tmp_path / "whole"))
    assert whole == (0, "")
    files = ["split.json", "metadata.json", "config.json", "metadata.json"]
    files += ["model.safetensors", "metrics.csv", "layers.csv", "last.ckpt"] * 2
    place = files.index("last.ckpt", 8) + 1
    words = [sys.executable, "-m", "torture.victim", "half written", str(place), *training, "--out", tmp_path / "run"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    (loose,) = (path for path in (tmp_path / "run").iterdir() if is_temporary(path.name))
    assert loose.stat().st_size > 1000
    torch.load(tmp_path / "run" / "last.ckpt", weights_only=True)
    code, said = disk.command("train", "--resume", str(tmp_path / "run"))
    assert code == 0
    assert re.fullmatch(
        r"process \d+ on .* ended before it could finish this run; it goes on from its last epoch\.", said
    )
    assert not loose.exists()
    wanted, found = (load_weights(tmp_path / name / "model.safetensors") for name in ("whole", "run"))
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_a_folder_without_a_config_is_told(tmp_path):
    (tmp_path / "split.json").write_text("{}")
    code, said = disk.command("train", "--resume", str(tmp_path))
    assert (code, said.count("\n")) == (2, 0)
    assert "expected a run folder, got no config.json in it" in said


def test_a_run_killed_between_its_last_epoch_and_its_end_stops_all_the_same(tmp_path):
    run = train(replace(SMALL, epochs=30, patience=1, lr=1e-9, out=tmp_path / "run"))
    assert run.metadata.stopped
    metrics, checkpoint = run.metrics.read_bytes(), run.checkpoint.read_bytes()
    assert metrics.count(b"\n") < 30
    run.with_metadata(stopped=False)
    (run.folder / "README.md").unlink()
    assert resume(run.folder).metadata == run.metadata
    assert (run.metrics.read_bytes(), run.checkpoint.read_bytes()) == (metrics, checkpoint)
    (run.folder / "README.md").unlink()
    resume(run.folder)  # killed before the card was written
    assert (run.folder / "README.md").exists()


def test_files_reach_the_disk_before_their_names(tmp_path, monkeypatch):
    calls = []
    sync, rename = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda file: (calls.append(os.readlink(f"/proc/self/fd/{file}")), sync(file)))
    monkeypatch.setattr(os, "replace", lambda old, new: (calls.append("replace"), rename(old, new)))
    atomic_write(tmp_path / "a.txt", "ü")
    assert calls[1:] == ["replace", str(tmp_path)]
    assert (Path(calls[0]).parent, is_temporary(Path(calls[0]).name)) == (tmp_path, True)
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "ü"


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    def full(file):
        raise OSError(28, "No space left on device")

    atomic_write(tmp_path / "a.txt", "old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: .*a\.txt'"):
        atomic_write(tmp_path / "a.txt", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
    assert (tmp_path / "a.txt").read_text() == "old"


# What broken files did


def test_a_flipped_bit_among_the_weights_is_noticed(tmp_path):
    path = tmp_path / "model.safetensors"
    save_weights(path, torch.nn.Linear(4, 4))
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match="expected the weights of this run, got numbers that have changed"):
        load_weights(path)


def test_a_network_that_no_memory_holds_is_refused_at_once(tmp_path):
    config = resolve(TrainConfig(data="mnist", model="capsnet", option=("capsules=100000000",)), 100)
    run = Run(tmp_path, config, RunMetadata(tuple("0123456789"), image_shape=(1, 28, 28)))
    with pytest.raises(InputError, match=r"expected a network that fits .* GB of memory, got one of .* GB"):
        run.new_model()


def test_a_flipped_bit_in_a_checkpoint_is_noticed(tmp_path, image_run):
    shutil.copytree(image_run, tmp_path / "run")
    path = tmp_path / "run" / "last.ckpt"
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        largest = max(archive.infolist(), key=lambda entry: entry.file_size)
    content[largest.header_offset + 500] ^= 4
    path.write_bytes(content)
    torch.load(path, weights_only=True)  # torch sees nothing
    with pytest.raises(InputError, match="expected a checkpoint of this run, got a broken or foreign file"):
        resume(tmp_path / "run")


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "epoch\nx\n", "\xff", "epoch,train_loss\n1\n"])
def test_a_broken_table_of_metrics_is_told(tmp_path, image_run, text):
    shutil.copytree(image_run, tmp_path / "run")
    (tmp_path / "run" / "metrics.csv").write_text(text, encoding="latin-1")
    with pytest.raises(InputError, match=r"metrics\.csv: expected (a table of metrics|the columns epoch)"):
        Run.open(tmp_path / "run").rows()
    assert disk.command("list", "runs", "--folder", str(tmp_path))[0] == 0


@pytest.mark.parametrize(
    "facts",
    [
        {"classes": ["a"]},
        {"classes": ["a", "b"]},
        {"image_shape": [0, 8, 8]},
        {"image_shape": [1, 8, 8], "fingerprints": {"trin": "0"}},
    ],
)
def test_facts_that_no_run_has_are_refused(tmp_path, facts):
    (tmp_path / "metadata.json").write_text(json.dumps({"classes": ["a", "b"], **facts}))
    with pytest.raises(InputError, match=r"data\.json: expected two classes or more, the size of images or of"):
        load_metadata(tmp_path / "metadata.json")


def test_a_vocabulary_of_another_run_is_refused(tmp_path, text_run):
    shutil.copytree(text_run, tmp_path / "run")
    run = Run.open(tmp_path / "run")
    Vocabulary.build(["other words"]).save(run.vocabulary)
    with pytest.raises(InputError, match=r"vocabulary\.json: expected the \d+ words of this run, got 4"):
        run.words()
    run.vocabulary.write_text(run.vocabulary.read_text().replace("<unk>", "unknown"))
    with pytest.raises(InputError, match=r"got no <pad> and <unk> as words number 0 and 1"):
        run.words()


def test_deep_values_of_options_are_words():
    assert parse_option("a=" + "[" * 5000) == ("a", "[" * 5000)


def test_no_more_is_unpacked_than_a_header_says(tmp_path):
    head = bytes([0, 0, 8, 1]) + (3).to_bytes(4, "big")
    with gzip.open(tmp_path / "bomb.gz", "wb", 1) as stream:
        stream.write(head)
        for _ in range(300):
            stream.write(bytes(1 << 20))
    with fuzz.in_memory(100 << 20), pytest.raises(InputError, match=r"11 bytes for shape \[3\], got 12 or more"):
        read_idx(tmp_path / "bomb.gz")


def test_an_array_larger_than_its_file_is_refused_unread(tmp_path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)})
    with zipfile.ZipFile(tmp_path / "large.npz", "w") as archive:
        archive.writestr("images.npy", header.getvalue())
    with pytest.raises(InputError, match=r"large\.npz: expected an npz file of plain arrays, got images.npy of shape"):
        load_npz(tmp_path / "large.npz")


@pytest.mark.parametrize("packed", [False, True])
def test_matlab_files_are_read_as_scipy_reads_them(tmp_path, packed):
    draw = np.random.default_rng(0)
    kinds = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8")
    arrays = {f"a{kind}": (100 * draw.random((2, 3, 1 + place))).astype(kind) for place, kind in enumerate(kinds)}
    arrays |= {"x": np.array([[7]], np.uint8), "large": np.arange(6.0).reshape(1, 6), "none": np.zeros((0, 4))}
    savemat(tmp_path / "a.mat", {**arrays, "text": "words", "i": np.array([1j]), "s": {"a": 1}}, do_compression=packed)
    known, found = loadmat(tmp_path / "a.mat"), read_mat(tmp_path / "a.mat")
    assert found.keys() == arrays.keys()
    for name, array in found.items():
        assert array.dtype == known[name].dtype
        np.testing.assert_array_equal(array, known[name])


def test_pictures_of_a_hundred_million_pixels_are_left_out(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    Image.new("L", (20, 20)).save(tmp_path / "a" / "0.png")
    Image.new("1", (10_000, 10_000)).save(tmp_path / "b" / "0.png")
    with pytest.warns(UserWarning, match="left out 1 of 2 pictures that cannot be read") as seen:
        load_folder(tmp_path)
    assert len(seen) == 1  # Pillow's own warning is not shown


# What extreme votes did


def test_all_but_silent_children_with_large_votes_have_finite_gradients():
    votes = torch.full((2, 2, 16), 1e5).requires_grad_()
    activations = torch.zeros(2).requires_grad_()
    routed = tc.make_routing("gaussian")(votes, activations)
    ramp = torch.linspace(-1, 1, 16)
    found = torch.autograd.grad((routed.poses * ramp).sum() + routed.couplings[0, 0], [votes, activations])
    assert all(gradient.isfinite().all() for gradient in found)


def test_what_rounding_leaves_of_zero_divides_as_zero():
    small = torch.tensor([1e-39, 1e-30]).requires_grad_()
    divided = safe_divide(torch.tensor(1e-30), small)
    assert divided.tolist() == pytest.approx([1e-30, 1.0])
    assert torch.autograd.grad(divided[0], small)[0].tolist() == [0, 0]


@pytest.mark.parametrize("kind", ["exponential", "tanh"])
def test_squash_of_the_smallest_vectors_has_gradient_one(kind):
    vectors = torch.tensor([[1e-40, 0.0], [1e-12, 0.0]]).requires_grad_()
    (gradient,) = torch.autograd.grad(tc.squash(vectors, kind)[:, 0].sum(), vectors)
    assert gradient.tolist() == [[1, 0], [1, 0]]
