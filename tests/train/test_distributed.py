"""Processes that train together, and batches that are added up: the same network as one process with one batch."""

import csv
import os
import re
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from tests.support.commands import run, save_pictures
from torchcaps._core.errors import InputError
from torchcaps.data import AUGMENTATIONS, ImageSet
from torchcaps.runs.config import TrainConfig
from torchcaps.train import resume, train
from torchcaps.train.distributed import Member, check_processes
from torchcaps.train.module import EpochOrder, ShardedBatchSampler

# No batch norm, no augmentation, and a last batch of one example: one of two processes has nothing in it.
NETWORK = ["--model", "capsnet", "--option", "channels=8", "--option", "capsules=2", "--reconstruction", 0]
WORDS = ["digits", *NETWORK, "--size", 20, "--augment", "none", "--limit", 193, "--batch-size", 64, "--epochs", 2]
CONFIG = TrainConfig(
    data="digits",
    model="capsnet",
    option=("channels=8", "capsules=2"),
    reconstruction=0.0,
    size=20,
    augment="none",
    limit=193,
    batch_size=64,
    epochs=2,
)
PYTHON = [sys.executable, "-m"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m"]


def table_of(folder):
    with open(folder / "metrics.csv", newline="") as file:
        return list(csv.DictReader(file))


def assert_same_run(folder, other, atol=1e-6):
    """Weights and metrics agree, but for the rounding of sums in another order."""
    ours, theirs = load_file(folder / "model.safetensors"), load_file(other / "model.safetensors")
    assert ours.keys() == theirs.keys()
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], atol=atol, rtol=1e-4)
    for row, like in zip(table_of(folder), table_of(other), strict=True):
        for name in ("epoch", "train_accuracy", "validation_accuracy", "learning_rate"):
            assert row[name] == like[name], name
        for name in ("train_loss", "validation_loss"):
            assert float(row[name]) == pytest.approx(float(like[name]), rel=1e-5), name


def start(*words):
    words = [str(word) for word in words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    pipe = subprocess.PIPE
    return subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, env=environment)


def finish(process):
    said, complained = process.communicate(timeout=300)
    return process.returncode, said, complained


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Two epochs in this process."""
    return train(replace(CONFIG, out=tmp_path_factory.mktemp("runs") / "alone"))


# Shares of batches


def digits(size):
    return ImageSet(torch.zeros(size, 1, 2, 2, dtype=torch.uint8), torch.zeros(size, dtype=torch.long), ("0", "1"))


@given(size=st.integers(1, 60), batch=st.integers(1, 20), accumulate=st.integers(1, 4), world=st.integers(1, 5))
def test_shares_of_all_processes_are_the_batches_of_one(size, batch, accumulate, world):
    orders = [EpochOrder(digits(size), batch, 3, accumulate, Member(rank, world)) for rank in range(world)]
    whole = [rows.tolist() for rows, _ in EpochOrder(digits(size), batch, 3)]
    for shares, expected in zip(zip(*orders, strict=True), whole, strict=True):
        assert sorted(row for rows, weight in shares if weight for row in rows.tolist()) == sorted(expected)
        assert all(len(rows) for rows, _ in shares)  # every process takes part
    assert sorted(row for rows in whole for row in rows) == list(range(size))


@given(size=st.integers(1, 60), batch=st.integers(1, 20), accumulate=st.integers(1, 4), world=st.integers(1, 5))
def test_weighted_means_are_the_mean_of_the_step(size, batch, accumulate, world):
    """As training takes them: the mean over processes, the sum over batches divided by their usual number."""
    losses = torch.arange(size, dtype=torch.float64).square()
    orders = [list(ShardedBatchSampler(digits(size), batch, accumulate, Member(rank, world))) for rank in range(world)]
    for begin in range(0, len(orders[0]), accumulate):
        shares = [share for order in orders for share in order[begin : begin + accumulate]]
        found = sum(weight * losses[rows].mean() for rows, weight in shares) / (world * accumulate)
        seen = torch.cat([rows for rows, weight in shares if weight])
        torch.testing.assert_close(found, losses[seen].mean())


def test_accumulated_batches_are_one_large_batch(tmp_path):
    """Three of 20 are one of 60, and the last 13 examples one of 13; the schedule counts steps."""
    small = train(replace(CONFIG, batch_size=20, accumulate=3, out=tmp_path / "small"))
    large = train(replace(CONFIG, batch_size=60, out=tmp_path / "large"))
    assert_same_run(small.folder, large.folder)


def test_batches_that_are_added_up_are_varied_apart(tmp_path, monkeypatch):
    """What is drawn at random is drawn anew for each."""
    seen = []

    def draw(images):
        seen.append(float(torch.rand(())))
        return images

    monkeypatch.setitem(AUGMENTATIONS, "none", draw)
    train(replace(CONFIG, batch_size=20, accumulate=3, epochs=1, out=tmp_path / "run"))
    assert len(set(seen)) == len(seen) == 10


# Real processes


def test_two_processes_train_the_network_of_one(tmp_path, alone, capfd):
    together = train(replace(CONFIG, devices=2, out=tmp_path / "two"))
    said, complained = capfd.readouterr()
    assert said.count("epoch   2/2") == 1
    assert complained == ""
    assert {path.name for path in together.folder.iterdir()} == {path.name for path in alone.folder.iterdir()}
    assert_same_run(together.folder, alone.folder)


@pytest.mark.slow
def test_the_command_starts_processes_by_itself(tmp_path, alone):
    out = tmp_path / "two"
    code, said, complained = finish(start(*PYTHON, "torchcaps", "train", *WORDS, "--devices", 2, "--out", out))
    assert (code, complained) == (0, "")
    assert said.count("epoch   2/2") == said.count("The best weights are in") == 1
    assert_same_run(out, alone.folder)


@pytest.mark.slow
def test_torchrun_trains_the_same_network_and_chooses_one_folder(tmp_path, alone, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, said, complained = finish(start(*TORCHRUN, "torchcaps", "train", *WORDS))
    assert code == 0, complained
    assert said.count("epoch   2/2") == 1
    assert [path.name for path in Path("runs").iterdir()] == ["digits-capsnet"]
    assert_same_run(Path("runs/digits-capsnet"), alone.folder)


@pytest.mark.slow
def test_two_nodes_train_the_same_network(tmp_path, alone):
    out = tmp_path / "nodes"
    words = [*PYTHON, "torchcaps", "train", *WORDS, "--nodes", 2, "--out", out]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MASTER_ADDR", "127.0.0.1")
        patch.setenv("MASTER_PORT", str(free_port()))
        patch.setenv("NODE_RANK", "0")
        first = start(*words)
        patch.setenv("NODE_RANK", "1")
        second = start(*words)
    assert finish(first)[0] == finish(second)[0] == 0
    assert_same_run(out, alone.folder)


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


LONG = [*WORDS, "--epochs", 6]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Six epochs in this process, without an interruption."""
    return train(replace(CONFIG, epochs=6, out=tmp_path_factory.mktemp("runs") / "whole"))


def workers(process):
    """The processes that train, by rank: those below the one that was started."""
    pids, found = [process.pid], {}
    while pids:
        pid = pids.pop()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        pids += [int(child) for child in children]
        where = os.readlink(f"/proc/{pid}/fd/1")
        if pid != process.pid and "resource_tracker" not in Path(f"/proc/{pid}/cmdline").read_text():
            found[1 if where == "/dev/null" else 0] = pid
    return found


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("launcher", ["own", "torchrun"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_process_ends_the_run_and_it_goes_on(tmp_path, whole, launcher, rank):
    out = tmp_path / "run"
    own = launcher == "own"
    process = start(
        *(PYTHON if own else TORCHRUN), "torchcaps", "train", *LONG, *(["--devices", 2] * own), "--out", out
    )
    while "epoch   1/6" not in process.stdout.readline():
        assert process.poll() is None
    others = workers(process)
    os.kill(others[rank], signal.SIGKILL)
    killed = time.monotonic()
    code, _, complained = finish(process)
    assert code == (2 if own else 1)
    assert time.monotonic() - killed < 60
    sentence = rf"{out}: expected 2 processes that work to the end, got one that .*\. "
    assert complained.count("Go on with: torchcaps train --resume") == 1
    assert re.search(sentence, complained)
    if own:
        assert complained.count("\n") == 1
    assert not any(Path(f"/proc/{pid}/exe").exists() for pid in others.values())
    if rank:
        resume(out, devices=1)
    else:
        assert finish(start(*PYTHON, "torchcaps", "train", "--resume", out))[0] == 0
    assert_same_run(out, whole.folder, atol=1e-5)


@pytest.mark.slow
def test_a_script_that_every_process_would_run_is_told_where_to_train(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from torchcaps.runs.config import TrainConfig\nfrom torchcaps.train import train\n"
        "train(TrainConfig(data='digits', limit=50, epochs=1, devices=2, device='cpu'))\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    assert 'devices: expected a script that trains under if __name__ == "__main__":' in done.stderr


@pytest.mark.slow
def test_all_processes_stop_with_one_sentence_where_the_loss_is_not_finite(tmp_path):
    words = [*WORDS, "--lr", "1e30", "--schedule", "constant", "--devices", 2, "--out", tmp_path / "wild"]
    code, _, complained = finish(start(*PYTHON, "torchcaps", "train", *words))
    assert code == 2
    assert complained.startswith("train: expected a finite")
    assert complained.count("\n") == 1


@pytest.mark.slow
def test_folds_train_with_several_processes(tmp_path):
    pictures = save_pictures(tmp_path / "squares", 12)
    words = ["--folds", 2, "--epochs", 1, "--batch-size", 8, "--option", "capsules=8"]
    words += ["--devices", 2, "--out", tmp_path / "folds"]
    code, said, complained = finish(start(*PYTHON, "torchcaps", "train", pictures, *words))
    assert code == 0, complained
    assert "mean of 2 folds" in said


# Mistakes


def test_more_devices_than_there_are_is_told(tmp_path, capsys):
    assert run("train", "digits", "--device", "cpu", "--devices", 10_000, "--out", tmp_path / "run") == 2
    cores = os.cpu_count()
    expected = f"--devices: expected at most {cores}, the cores of this machine, got 10000. Ask for fewer.\n"
    assert capsys.readouterr().err == expected
    assert run("train", "digits", "--devices", 0) == 2
    assert "expected devices to be a whole number from 1 on, got 0" in capsys.readouterr().err


def test_nodes_need_to_find_each_other(tmp_path, capsys, monkeypatch):
    for name in ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert run("train", "digits", "--nodes", 2, "--out", tmp_path / "run") == 2
    sentence = "--nodes: expected MASTER_ADDR, MASTER_PORT, NODE_RANK in the environment, got no MASTER_ADDR. Set them"
    assert capsys.readouterr().err.startswith(sentence)
    for name in ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK"):
        monkeypatch.setenv(name, "0")
    assert run("train", "digits", "--nodes", 2) == 2
    expected = "--nodes: expected a folder that all nodes know, got no --out. Give --out FOLDER.\n"
    assert capsys.readouterr().err == expected


def test_options_may_not_contradict_torchrun(monkeypatch):
    started = {"TORCHELASTIC_RUN_ID": "none", "RANK": "0", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}
    for name, value in started.items():
        monkeypatch.setenv(name, value)
    check_processes(TrainConfig())
    check_processes(TrainConfig(devices=2, nodes=2))
    with pytest.raises(InputError, match=r"^devices: expected 2, as torchrun started them, got 3\. Drop devices\."):
        check_processes(TrainConfig(devices=3))


@pytest.mark.parametrize("words", [["train", "--folds", 2], ["compare", "--vary", "lr=1,2"], ["viewpoint", "toys"]])
def test_several_runs_are_for_one_machine(tmp_path, capsys, words):
    command, *more = words
    data = [] if "toys" in more else ["digits"]
    assert run(command, *data, *more, "--nodes", 2, "--out", tmp_path / "runs") == 2
    assert "expected one machine, and --devices N for N processes, got several" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_resume_takes_only_the_number_of_processes(tmp_path, capsys):
    assert run("train", "--resume", tmp_path, "--epochs", 3) == 2
    expected = "train --resume: expected no other options than --devices, --nodes and --data-dir: a run resumes "
    assert capsys.readouterr().err.startswith(expected)


def _children(number):
    try:
        return [int(word) for word in Path(f"/proc/{number}/task/{number}/children").read_text().split()]
    except OSError:
        return []


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="asks Linux for the processes that a process started")
def test_processes_end_with_the_one_that_started_them(tmp_path):
    def ignore():  # as a shell does for what it starts in the background
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    words = [*PYTHON, "torchcaps", "train", *map(str, WORDS), "--devices", "2", "--out", str(tmp_path / "run")]
    with subprocess.Popen(words, preexec_fn=ignore, stdout=subprocess.DEVNULL) as parent:
        while len(_children(parent.pid)) < 3 and parent.poll() is None:  # two, and one that tracks what they use
            time.sleep(0.05)
        started = _children(parent.pid)
        parent.kill()
    assert len(started) == 3
    for _ in range(300):
        if not any(Path(f"/proc/{number}").exists() for number in started):
            break
        time.sleep(0.1)
    assert not any(Path(f"/proc/{number}").exists() for number in started)
    assert run("train", "--resume", tmp_path / "run") == 0
