"""Run folders of strangers: nothing outside of them is read or written, and what they name does no harm."""

import json
import os
import shutil
import stat
import subprocess
import sys

import pytest
import torch

from tests.support.commands import SMALL, refused, run, save_pictures
from torchcaps._core.errors import InputError
from torchcaps._core.files import atomic_write, inside, is_temporary, open_regular, read_bytes
from torchcaps.analysis.evaluate import evaluate
from torchcaps.apps.studio.networks import run_networks
from torchcaps.data import only_reading
from torchcaps.data.toys import SIDE, _write
from torchcaps.runs.load import load
from torchcaps.runs.run import Run
from torchcaps.runs.weights import save_weights


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return save_pictures(tmp_path_factory.mktemp("data") / "squares", 20)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, pictures):
    out = tmp_path_factory.mktemp("runs") / "squares"
    assert run("train", pictures, *SMALL, "--epochs", 2, "--out", out) == 0
    assert run("attack", out, "--count", "8") == 0
    return out


@pytest.fixture
def stranger(tmp_path, trained):
    """A copy of a run to prepare, and a file outside of it that nobody may touch."""
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "key").write_text("secret")
    return tmp_path / "run"


# Files


def test_a_link_that_stays_inside_is_followed(tmp_path):
    (tmp_path / "real").write_text("x")
    (tmp_path / "link").symlink_to("real")
    assert inside(tmp_path, "link").read_text() == "x"


@pytest.mark.parametrize("target", ["..", "../other", "/etc/passwd", "gone/../../x", "link"])
def test_a_link_that_leaves_a_folder_is_refused(tmp_path, target):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link").symlink_to(target)
    with pytest.raises(InputError, match="link"):
        inside(folder, "link", "name")


def test_a_folder_that_the_user_names_may_be_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "named").symlink_to("real")
    atomic_write(inside(tmp_path / "named", "a.txt"), "x")
    assert (tmp_path / "real" / "a.txt").read_text() == "x"


def test_files_are_not_written_through_links(tmp_path):
    (tmp_path / "private").write_text("secret")
    (tmp_path / "a.txt").symlink_to("private")
    with pytest.raises(InputError, match=r"expected the place of a file to write, got a link\. Remove it"):
        atomic_write(tmp_path / "a.txt", "x")
    assert (tmp_path / "private").read_text() == "secret"


def test_devices_and_pipes_are_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="got a pipe or a device"):
        atomic_write(tmp_path / "pipe", "x")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_temporary_names_cannot_be_foreseen(tmp_path, monkeypatch):
    names = []
    rename = os.replace
    monkeypatch.setattr(os, "replace", lambda old, new: (names.append(old.name), rename(old, new)))
    for _ in range(3):
        atomic_write(tmp_path / "a.txt", "x")
    assert len(set(names)) == 3
    assert all(map(is_temporary, names))


def test_what_a_killed_writer_left_is_removed_and_what_a_living_one_writes_is_not(tmp_path):
    write = "import os, sys, time; from pathlib import Path; from torchcaps._core.files import _new_temporary\n"
    write += f"print(_new_temporary(Path({str(tmp_path / 'a.txt')!r}))[1].name, flush=True); time.sleep(60)"
    names = []
    with subprocess.Popen([sys.executable, "-c", write], stdout=subprocess.PIPE, text=True) as writer:
        names.append(writer.stdout.readline().strip())
        atomic_write(tmp_path / "a.txt", "x")
        assert (tmp_path / names[0]).exists()
        writer.kill()
    atomic_write(tmp_path / "a.txt", "y")
    assert os.listdir(tmp_path) == ["a.txt"]


def test_files_get_the_usual_rights(tmp_path):
    atomic_write(tmp_path / "a.txt", "x")
    (tmp_path / "b.txt").write_text("x")
    assert (tmp_path / "a.txt").stat().st_mode == (tmp_path / "b.txt").stat().st_mode


@pytest.mark.parametrize("special", ["/dev/zero", "pipe", "folder"])
def test_only_regular_files_are_read(tmp_path, special):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="not a regular file"):
        open_regular(tmp_path / special)


def test_no_more_is_read_than_allowed(tmp_path):
    (tmp_path / "a").write_bytes(bytes(3 << 20))
    assert len(read_bytes(tmp_path / "a", 3 << 20)) == 3 << 20
    with pytest.raises(OSError, match="more than 2 MB"):
        read_bytes(tmp_path / "a", 2 << 20)


@pytest.mark.parametrize("command", ["train", "evaluate"])
def test_endless_files_in_the_place_of_options_get_a_sentence(stranger, capsys, command):
    words = ["train", "--config", "/dev/zero"]
    if command == "evaluate":
        (stranger / "config.json").unlink()
        os.mkfifo(stranger / "config.json")
        words = ["evaluate", stranger]
    assert "not a regular file" in refused(capsys, *words)


# Links in a run folder

READ = ["config.json", "metadata.json", "split.json", "model.safetensors", "README.md"]


@pytest.mark.parametrize("name", READ)
def test_no_command_reads_a_file_that_is_a_link_out_of_the_run(stranger, capsys, name):
    shutil.move(stranger / name, stranger.parent / "private" / name)
    (stranger / name).symlink_to(f"../private/{name}")
    before = (stranger.parent / "private" / name).read_bytes()
    assert "expected a place inside" in refused(capsys, "evaluate", stranger, "--no-pictures")
    assert (stranger.parent / "private" / name).read_bytes() == before


def test_nothing_is_written_through_the_temporary_name_of_the_past(stranger):
    (stranger / "README.md.tmp").symlink_to("../private/key")
    assert run("evaluate", stranger, "--no-pictures") == 0
    assert (stranger.parent / "private" / "key").read_text() == "secret"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["evaluate"], "evaluation"),
        (["report"], "report.html"),
        (["health", "--count", "4", "--no-ablate"], "health"),
        (["attack", "--count", "4"], "attack"),
        (["jumble", "--count", "4"], "jumble"),
        (["explain", "--example", "0"], "explain"),
        (["export", "--torch"], "model.pt2"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_no_command_writes_through_a_link(stranger, capsys, command, name):
    shutil.rmtree(stranger / name, ignore_errors=True)
    (stranger / name).symlink_to("../private" if "." not in name else "../private/key")
    assert "link" in refused(capsys, command[0], stranger, *command[1:])
    assert os.listdir(stranger.parent / "private") == ["key"]
    assert (stranger.parent / "private" / "key").read_text() == "secret"


def test_a_link_among_the_pictures_of_a_question_does_not_reach_the_report(stranger, capsys):
    (stranger / "attack" / "curve.png").unlink()
    (stranger / "attack" / "curve.png").symlink_to("../../private/key")
    assert "expected a place inside" in refused(capsys, "report", stranger, "--count", "8")
    assert not (stranger / "report.html").exists()


def test_pictures_in_the_place_of_links_are_refused_one_by_one(stranger, capsys):
    (stranger / "attack" / "curve.png").unlink()
    (stranger / "attack" / "curve.png").symlink_to("../../private/key")
    assert "got a link" in refused(capsys, "attack", stranger, "--count", "8")
    assert (stranger.parent / "private" / "key").read_text() == "secret"


def test_a_run_that_goes_on_writes_no_logs_through_links(stranger, capsys):
    config = json.loads((stranger / "config.json").read_text())
    (stranger / "config.json").write_text(json.dumps(config | {"tensorboard": True, "epochs": 3}))
    (stranger / "tensorboard").symlink_to("../private")
    assert "expected a place inside" in refused(capsys, "train", "--resume", stranger)
    (stranger / "train.log").unlink()
    (stranger / "train.log").symlink_to("../private/key")
    assert "expected a place inside" in refused(capsys, "train", "--resume", stranger)
    assert (stranger.parent / "private" / "key").read_text() == "secret"


def test_nothing_is_fetched_into_a_folder_that_only_the_run_names(stranger, capsys, tmp_path):
    config = json.loads((stranger / "config.json").read_text())
    changed = {"data": "mnist", "data_dir": str(tmp_path / "private"), "size": None}
    (stranger / "config.json").write_text(json.dumps(config | changed))
    assert "--data-dir" in refused(capsys, "evaluate", stranger)
    assert os.listdir(tmp_path / "private") == ["key"]


def test_nothing_is_kept_in_a_folder_that_only_the_run_names(tmp_path):
    images = torch.zeros(2, SIDE, SIDE, dtype=torch.uint8)
    with only_reading():
        _write(tmp_path / "toys.npz", images)
    assert not os.listdir(tmp_path)
    _write(tmp_path / "toys.npz", images)
    assert os.listdir(tmp_path) == ["toys.npz"]


def test_the_studio_reads_nothing_through_links(stranger):
    shutil.rmtree(stranger / "evaluation", ignore_errors=True)
    (stranger / "evaluation").symlink_to("../private")
    with pytest.raises(InputError, match="expected a place inside"):
        run_networks([stranger], None)


@pytest.mark.parametrize("name", ["model.safetensors", "split.json", "metrics.csv", "attack/curve.png"])
def test_pipes_in_a_run_are_not_waited_for(stranger, capsys, name):
    (stranger / name).unlink()
    os.mkfifo(stranger / name)
    assert "not a regular file" in refused(capsys, "report", stranger, "--count", "8")


# What is written beside a run


@pytest.mark.parametrize("command", ["report", "export"])
def test_files_that_a_user_names_are_not_written_through_links(stranger, capsys, tmp_path, command):
    name = "page.html" if command == "report" else "page.pt2"
    (tmp_path / name).symlink_to("private/key")
    more = ["--count", "8"] if command == "report" else ["--torch"]
    assert "got a link" in refused(capsys, command, stranger, "--out", tmp_path / name, *more)
    assert (tmp_path / "private" / "key").read_text() == "secret"


def test_pictures_are_not_drawn_through_links(tmp_path, capsys):
    (tmp_path / "key").write_text("secret")
    (tmp_path / "weights.png").symlink_to("key")
    assert "got a link" in refused(capsys, "draw", "weights", "--out", tmp_path / "weights.png")
    assert (tmp_path / "key").read_text() == "secret"


# Weights


def test_weights_that_are_no_numbers_are_noticed_at_load(stranger, capsys):
    model = load(stranger)
    with torch.no_grad():
        next(model.parameters())[0] = float("nan")
    save_weights(stranger / "model.safetensors", model)
    for words in (["evaluate"], ["report"], ["health"], ["jumble"], ["predict", "x.png"], ["explain", "--example", 0]):
        said = refused(capsys, words[0], stranger, *words[1:])
        assert "expected weights that are finite numbers, got others in " in said
    with pytest.raises(InputError, match="finite numbers"):
        Run.open(stranger).load_model()
    with pytest.raises(InputError, match="expected weights that are finite numbers, got others in "):
        evaluate(model, Run.open(stranger).load_parts().test)


def test_weights_too_large_to_compute_with_are_told(stranger, capsys):
    model = load(stranger)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 1e30
    save_weights(stranger / "model.safetensors", model)
    for words in (["evaluate"], ["report", "--count", "8"], ["jumble", "--count", "8"], ["explain", "--example", "0"]):
        assert "expected finite activations, got NaN or infinity" in refused(capsys, words[0], stranger, *words[1:])
    assert run("health", stranger, "--json", "--no-ablate", "--count", "8") == 0
    json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
