"""A user's files, two writers, output that goes away, too little memory: nothing is lost, and it is said."""

import json
import os
import pty
import re
import resource
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from tests.support.commands import refused, run
from torchcaps._core import memory
from torchcaps._core.errors import InputError
from torchcaps._core.locks import LOCK, locked
from torchcaps.runs.run import Run

TRAIN = ["train", "digits", "--limit", "100", "--option", "capsules=4", "--reconstruction", "0", "--epochs", "2"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "digits"
    assert run(*TRAIN, "--out", out) == 0
    return out


def torchcaps(*words, **options):
    command = [sys.executable, "-m", "torchcaps", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


# Files of the user


@pytest.mark.parametrize("out", [".", "", "there"])
def test_a_run_begins_in_no_folder_with_files_of_others(tmp_path, capsys, monkeypatch, out):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    for folder in (tmp_path, tmp_path / "there"):
        for name in ("README.md", "metadata.json", "metrics.csv"):
            (folder / name).write_text("mine")
    assert "expected a new or empty folder, got one that holds README.md" in refused(capsys, *TRAIN, "--out", out)
    assert (tmp_path / out / "README.md").read_text() == "mine"


@pytest.mark.parametrize("command", ["folds", "compare", "viewpoint"])
def test_runs_that_belong_together_begin_in_no_folder_with_files_of_others(tmp_path, capsys, command):
    (tmp_path / "results.json").write_text("mine")
    words = {
        "folds": [*TRAIN, "--folds", "2"],
        "compare": ["compare", *TRAIN[1:], "--vary", "routing=dynamic,uniform"],
        "viewpoint": ["viewpoint", "toys", "--epochs", "1"],
    }[command]
    assert "expected a new or empty folder" in refused(capsys, *words, "--out", tmp_path)
    assert os.listdir(tmp_path) == ["results.json"]


def test_a_run_begins_in_an_empty_folder_and_where_one_was_killed_while_it_began(tmp_path):
    with locked(tmp_path):
        pass
    (tmp_path / "split.json").write_text("half")
    assert run(*TRAIN, "--epochs", "1", "--out", tmp_path) == 0


def test_evaluate_keeps_what_a_person_wrote_into_the_card(trained):
    card = trained / "README.md"
    text = card.read_text()
    assert text.startswith("---\n# torchcaps")
    text = text.replace("---\n\n", 'license: mit\n---\n\n<img src="mine.png">\n\n', 1) + "\n## My notes\n"
    card.write_text(text)
    assert run("evaluate", trained, "--no-pictures") == 0
    found = card.read_text()
    assert "test accuracy" in found
    assert "license: mit\n---\n" in found
    assert '<img src="mine.png">' in found
    assert found.endswith("\n## My notes\n")


def test_a_card_without_marks_is_a_persons_own(trained):
    card = trained / "README.md"
    before = card.read_text()
    card.write_text("all mine\n")
    assert run("evaluate", trained, "--no-pictures") == 0
    assert card.read_text() == "all mine\n"
    card.write_text(before)


# Two writers


def test_the_second_to_go_on_with_a_run_is_told_who_is_there(trained, capsys):
    with locked(trained):
        said = refused(capsys, "train", "--resume", trained)
    assert re.search(rf"expected a folder that no other process is writing to, got process {os.getpid()} on ", said)


def test_a_lock_ends_with_its_process_and_is_noticed(tmp_path):
    code = "import os, sys; from pathlib import Path; from torchcaps._core.locks import locked\n"
    subprocess.run([sys.executable, "-c", f"{code}with locked(Path(sys.argv[1])): os._exit(9)", tmp_path], check=False)
    with locked(tmp_path) as before:
        assert re.fullmatch(r"process \d+ on .* \(since .*\)", before)
    with locked(tmp_path) as before:
        assert before is None


@pytest.mark.parametrize("content", ["", "nonsense", "[1]", '{"pid": "x"}', "[" * 3000])
def test_a_lock_with_strange_content_is_taken(tmp_path, content):
    (tmp_path / LOCK).write_text(content)
    with locked(tmp_path) as before:
        assert before is None


def test_where_files_cannot_be_locked_a_living_process_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr("torchcaps._core.locks.try_lock", lambda file: None)
    with subprocess.Popen(["sleep", "60"]) as other:
        holder = {"pid": other.pid, "host": os.uname().nodename, "since": "today"}
        (tmp_path / LOCK).write_text(json.dumps(holder))
        with pytest.raises(InputError, match=f"got process {other.pid} on"), locked(tmp_path):
            pass
        other.kill()
    with locked(tmp_path):
        pass


# Output that goes away


def read_log(folder):
    return (folder / "train.log").read_text()


def test_every_run_has_a_log(trained):
    log = read_log(trained)
    assert re.search(r"begins: torchcaps \S+, torch \S+, python .*, threads \d+, native o", log)
    assert re.search(r"\d\d:\d\d:\d\d  epoch   2/2   loss", log)
    assert "The best weights are in" in log


def test_a_full_device_does_not_end_a_training(tmp_path):
    with Path("/dev/full").open("w") as full:
        words = [sys.executable, "-m", "torchcaps", *TRAIN, "--out", str(tmp_path / "run")]
        done = subprocess.run(words, stdout=full, stderr=full)
    assert done.returncode == 0
    assert "epoch   2/2" in read_log(tmp_path / "run")
    assert "The best weights are in" in read_log(tmp_path / "run")


@pytest.mark.slow
def test_a_closed_terminal_does_not_end_a_training(tmp_path):
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "torchcaps", *TRAIN, "--epochs", "6", "--out", str(tmp_path / "run")]
    ignore = partial(signal.signal, signal.SIGHUP, signal.SIG_IGN)
    with subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, preexec_fn=ignore) as process:
        os.close(theirs)
        while b"epoch" not in os.read(ours, 1000):
            pass
        os.close(ours)
        assert process.wait(300) == 0
    assert "epoch   6/6" in read_log(tmp_path / "run")


def test_what_ends_a_training_is_in_its_log(tmp_path, capsys, monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("by mistake")

    monkeypatch.setattr("torchcaps.train.engine.prepare", broken)
    with pytest.raises(ZeroDivisionError):
        run(*TRAIN, "--out", tmp_path / "run")
    assert "ZeroDivisionError: by mistake" in read_log(tmp_path / "run")


# Conditions


def test_a_run_that_goes_on_under_other_conditions_says_so(tmp_path, capsys):
    out = tmp_path / "run"
    assert run(*TRAIN, "--out", out) == 0
    facts = Run.open(out).metadata
    assert facts.conditions["threads"].isdigit()
    Run.open(out).with_metadata(conditions=facts.conditions | {"threads": "31", "torch": "1.0"})
    capsys.readouterr()
    assert run("train", "--resume", out) == 0
    said = capsys.readouterr().err
    assert f"threads {facts.conditions['threads']} (was 31)" in said
    assert "(was 1.0)" in said
    assert "The run goes on under other conditions" in read_log(out)


def test_a_run_that_goes_on_under_the_same_conditions_says_nothing(tmp_path, capsys):
    assert run(*TRAIN, "--out", tmp_path / "run") == 0
    capsys.readouterr()
    assert run("train", "--resume", tmp_path / "run") == 0
    assert "conditions" not in capsys.readouterr().err


# Memory


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."),
        RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB"),
        RuntimeError("std::bad_alloc"),
        OSError(12, "Cannot allocate memory"),
    ],
    ids=str,
)
def test_what_says_that_memory_is_short_is_known(error):
    assert memory.is_out_of_memory(error)
    assert not memory.is_out_of_memory(RuntimeError("expected scalar type Float"))


HUNGRY = ["train", "mnist-5k", "--limit", "1000", "--batch-size", "1000", "--model", "capsnet", "--epochs", "1"]


def test_an_address_limit_gets_a_sentence_with_what_to_lower(tmp_path):
    bound = partial(resource.setrlimit, resource.RLIMIT_AS, (13 << 27, 13 << 27))
    done = torchcaps(*HUNGRY, "--out", tmp_path / "run", preexec_fn=bound)
    assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 1), done.stderr
    assert "expected enough memory, got none left. Lower --batch-size" in done.stderr


def write_own_number(path):
    path.write_text(str(os.getpid()))


def memory_group():
    """A control group of this machine that can be given a limit, where that is allowed (version 1)."""
    place = Path("/sys/fs/cgroup/memory") / f"torchcaps-{os.getpid()}"
    try:
        place.mkdir()
        (place / "memory.limit_in_bytes").write_text(str(3 << 28))
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    return place


@pytest.mark.slow
def test_the_limit_of_a_control_group_gets_a_sentence(tmp_path):
    group = memory_group()
    try:
        enter = partial(write_own_number, group / "cgroup.procs")
        done = torchcaps(*HUNGRY, "--out", tmp_path / "run", preexec_fn=enter)
    finally:
        for _ in range(50):
            try:
                group.rmdir()
                break
            except OSError:
                time.sleep(0.1)
    assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 1), done.stderr
    assert "Lower --batch-size" in done.stderr


def test_the_bound_on_memory_is_taken_back(monkeypatch):
    monkeypatch.setattr(memory, "_control_group", lambda: 1 << 34)
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with memory.bounded_memory():
        assert 1 << 34 <= resource.getrlimit(resource.RLIMIT_DATA)[0] < 1 << 36
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


@pytest.mark.slow
def test_an_unknown_user_without_a_home_is_served(tmp_path):
    if os.geteuid():
        pytest.skip("only root can become somebody else")
    known = ("HOME", "USER", "LOGNAME", "LNAME", "USERNAME", "XDG_CACHE_HOME", "TORCHCAPS_DATA")
    unknown = {
        "env": {name: value for name, value in os.environ.items() if name not in known} | {"TORCHCAPS_NATIVE": "0"},
        "preexec_fn": lambda: os.setresuid(54321, 0, 0),  # who somebody is, is asked of the real user
    }
    done = torchcaps(*TRAIN, "--epochs", "1", "--out", tmp_path / "run", **unknown)
    assert done.returncode == 0, done.stderr
