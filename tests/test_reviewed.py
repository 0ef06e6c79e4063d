"""What a hostile reading of the guards found: each way around them, closed."""

import errno
import gzip
import io
import json
import os
import shutil
import threading
import time
import warnings
import zipfile
from pathlib import Path

import pytest
from PIL import Image

from tests.support.commands import SMALL, refused, run, save_pictures
from torchcaps._core.errors import InputError
from torchcaps._core.files import open_own
from torchcaps._core.locks import LOCK, _is_alive, locked
from torchcaps._core.neutral import csv_cell
from torchcaps.data import load_table, read_vectors
from torchcaps.runs.card import test_result as result_of
from torchcaps.runs.run import Run
from torchcaps.runs.runfolders import find_runs
from torchcaps.train.log import logged, say


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs")
    data = save_pictures(place / "data", 12)
    (data / "left").rename(data / "a\nverdict: fine")
    assert run("train", data, *SMALL, "--out", place / "run") == 0
    return place / "run"


@pytest.fixture
def stranger(tmp_path, trained):
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "victim").write_text("precious")
    return tmp_path / "run"


def changed(path, **values):
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


# Files that are written into


def test_logs_of_tensorboard_are_not_written_through_links(stranger, capsys):
    changed(stranger / "config.json", tensorboard=True)
    (stranger / "last.ckpt").unlink()
    (stranger / "tensorboard").mkdir()
    (stranger / "tensorboard" / "hparams.yaml").symlink_to("../../new")
    assert "expected a place inside" in refused(capsys, "train", "--resume", stranger)
    assert not (stranger.parent / "new").exists()


@pytest.mark.parametrize("name", ["train.log", LOCK])
@pytest.mark.parametrize("kind", ["hard link", "pipe"])
def test_logs_and_locks_are_plain_files_of_their_own(stranger, capsys, name, kind):
    (stranger / name).unlink()
    if kind == "pipe":
        os.mkfifo(stranger / name)
    else:
        os.link(stranger.parent / "victim", stranger / name)
    assert "expected a plain file without another name" in refused(capsys, "train", "--resume", stranger)
    assert (stranger.parent / "victim").read_text() == "precious"


def test_a_file_of_our_own_may_be_there_already(tmp_path):
    for _ in range(2):
        os.close(open_own(tmp_path / "a", os.O_WRONLY))


@pytest.mark.parametrize("command", ["predict", "explain"])
def test_pictures_that_are_pipes_are_not_waited_for(stranger, capsys, command):
    os.mkfifo(stranger / "f.png")
    assert "not a regular file" in refused(capsys, command, stranger, stranger / "f.png")


# Numbers


@pytest.mark.parametrize("value", [10**400, -(10**400)])
def test_numbers_that_no_float_holds_are_refused(stranger, capsys, value):
    changed(stranger / "metadata.json", fits=value)
    assert "expected fits to be" in refused(capsys, "evaluate", stranger)


@pytest.mark.parametrize(("name", "value"), [("lr", 10**400), ("batch_size", 2**63), ("accumulate", 10**400)])
def test_options_that_no_number_holds_are_refused(stranger, capsys, name, value):
    changed(stranger / "config.json", **{name: value})
    assert f"expected {name} to be" in refused(capsys, "train", "--resume", stranger)


@pytest.mark.parametrize("accuracy", ["NaN", "1e999", "1" + "0" * 400, "7", '"x"', "null"])
def test_a_result_that_is_none_does_not_count(stranger, accuracy):
    (stranger / "evaluation").mkdir(exist_ok=True)
    result = f'{{"test": {{"accuracy": {accuracy}, "examples": 5, "error_interval_95": [0.1, 0.2]}}}}'
    (stranger / "evaluation" / "results.json").write_text(result)
    assert result_of(Run.open(stranger)) is None


# Memory


def test_weights_much_larger_than_their_network_are_not_read(stranger, capsys):
    size = 3 << 30
    header = json.dumps({"x": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    with (stranger / "model.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + size)
    assert "bytes where" in refused(capsys, "evaluate", stranger)


def test_packed_checkpoints_are_not_unpacked(stranger, capsys):
    with zipfile.ZipFile(stranger / "last.ckpt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(1 << 28))
    started = time.process_time()
    assert "a broken or foreign file" in refused(capsys, "train", "--resume", stranger)
    assert time.process_time() - started < 60


@pytest.mark.parametrize("read", [load_table, lambda path: read_vectors(str(path))], ids=["table", "vectors"])
def test_short_lines_without_an_end_are_refused(tmp_path, read, monkeypatch):
    monkeypatch.setattr("torchcaps.data.packed.UNCHECKED", 1 << 18)
    line, head = (b"a,b\n", b"text,label\n") if read is load_table else (b"a 1\n", b"")
    packed = gzip.compress(line * (1 << 16), 9)
    path = tmp_path / ("t.csv.gz" if read is load_table else "v.txt.gz")
    path.write_bytes(gzip.compress(head) + packed * 8)
    with pytest.raises(InputError, match="unpacks to more than 200 times its size"):
        read(path)


# What is printed


@pytest.mark.parametrize("command", ["agreement", "split"])
def test_drawings_keep_names_on_their_line(trained, capsys, tmp_path, command):
    assert run("draw", command, "--run", trained, "--out", tmp_path / "x.png") == 0
    assert "\nverdict" not in capsys.readouterr().out


def test_a_lock_cannot_forge_a_line(tmp_path):
    (tmp_path / LOCK).write_text(json.dumps({"pid": 1, "host": "x\nall is well", "since": "y"}))
    with locked(tmp_path) as before:
        assert "\n" not in before


def test_cells_are_no_formulas_where_semicolons_separate():
    assert csv_cell("x;=1;y;-2") == "x;'=1;y;'-2"


def test_a_stream_that_knows_few_signs_is_not_given_up(capfd, monkeypatch):
    stream = io.TextIOWrapper(os.fdopen(os.dup(1), "wb"), encoding="ascii")
    monkeypatch.setattr("sys.stdout", stream)
    say("übung")
    say("more")
    stream.close()
    assert capfd.readouterr().out == "\\xfcbung\nmore\n"


# Links of the user, data folders, locks


def test_links_of_the_user_right_below_a_folder_of_runs_are_listed(tmp_path, trained):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "linked").symlink_to(trained)
    (tmp_path / "runs" / "again").symlink_to(trained)
    assert find_runs(tmp_path / "runs") == [tmp_path / "runs" / "again"]


def test_links_in_a_run_are_not_followed_to_list_it(stranger, trained):
    (stranger / "linked").symlink_to(trained)
    assert find_runs(stranger) == [stranger]
    (stranger.parent / "deep").mkdir()
    assert find_runs(stranger.parent) == [stranger]


def test_data_folders_are_written_down_as_whole_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["train", "digits", "--limit", "60", "--epochs", "1", "--option", "capsules=4", "--data-dir", "dd"]
    assert run(*words, "--out", "run") == 0
    assert Run.open("run").config.data_dir == tmp_path / "dd"
    assert run("train", "--resume", "run", "--data-dir", tmp_path) == 0


def test_a_lock_is_let_go_while_a_forked_process_goes_on(tmp_path):
    with locked(tmp_path):
        child = os.fork()
        if child == 0:
            time.sleep(30)
            os._exit(0)
    try:
        with locked(tmp_path):
            pass
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def test_a_process_of_somebody_else_is_alive(monkeypatch):
    def forbidden(*_):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "kill", forbidden)
    assert _is_alive({"pid": 1, "host": os.uname().nodename})


def test_without_locks_of_the_system_files_are_written_and_folders_locked(tmp_path, monkeypatch):
    monkeypatch.setattr("torchcaps._core.files.fcntl", None)
    monkeypatch.delattr(os, "pread")
    monkeypatch.delattr(os, "pwrite")
    with locked(tmp_path):
        Path(tmp_path / "x").write_text("x")


def test_warnings_are_shown_as_before_when_trainings_in_threads_have_ended(tmp_path):
    before = warnings.showwarning
    begun, ended = threading.Event(), threading.Event()

    def other():
        with logged(tmp_path / "b"):
            begun.set()
            ended.wait(10)

    thread = threading.Thread(target=other)
    with logged(tmp_path / "a"):
        thread.start()
        begun.wait(10)
    ended.set()
    thread.join()
    assert warnings.showwarning is before


def test_a_card_with_other_line_ends_is_written_anew(trained):
    card = trained / "README.md"
    card.write_bytes(card.read_bytes().replace(b"\n", b"\r\n") + b"mine\r\n")
    assert run("evaluate", trained, "--no-pictures") == 0
    assert "test accuracy" in card.read_text()
    assert card.read_text().endswith("mine\n")


def test_pictures_are_read_as_before(trained, tmp_path):
    Image.new("L", (20, 20)).save(tmp_path / "x.png")
    assert run("predict", trained, tmp_path / "x.png") == 0
