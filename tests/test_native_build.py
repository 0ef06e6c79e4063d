"""Native functions are built once, on any machine that can, and torch computes where none can."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

import torchcaps as tc
from torchcaps.votes.native import build, compiler, describe
from torchcaps.votes.native.build import Geometry, library

BUILD = """
import torch
from torchcaps.votes.native.build import Geometry, library
from torchcaps.routing.kmeans import KMeans
print(library(Geometry(1, 2, 2), torch.float32).lanes())
"""


def fresh(monkeypatch, tmp_path, **variables):
    """A machine that has built nothing yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    build._built.cache_clear()


@pytest.mark.usefixtures("_forgotten", "native")
def test_functions_are_built_once_and_kept(monkeypatch, tmp_path):
    fresh(monkeypatch, tmp_path)
    assert not isinstance(library(Geometry(1, 2, 3), torch.float32), str)
    (kept,) = (tmp_path / "torchcaps" / "native").iterdir()
    changed = kept.stat().st_mtime_ns
    build._built.cache_clear()
    assert not isinstance(library(Geometry(1, 2, 3), torch.float32), str)
    assert [path.stat().st_mtime_ns for path in kept.parent.iterdir()] == [changed]


@pytest.mark.usefixtures("_forgotten")
def test_without_a_compiler_torch_computes(monkeypatch, tmp_path):
    monkeypatch.delenv("TORCHCAPS_NATIVE", raising=False)
    fresh(monkeypatch, tmp_path, CC="no-such-compiler")
    assert isinstance(library(Geometry(1, 5, 6), torch.float32), str)
    assert describe() == "off (there is no no-such-compiler)"
    layer = tc.DenseCapsules(7, 4, 5, 6)
    assert layer(tc.Capsules(torch.randn(9, 7, 5), torch.rand(9, 7))).poses.shape == (9, 4, 6)
    monkeypatch.setenv("TORCHCAPS_NATIVE", "1")
    with pytest.raises(ValueError, match=r"expected a C compiler with OpenMP .* got there is no no-such"):
        library(Geometry(1, 5, 6), torch.float32)


@pytest.mark.usefixtures("_forgotten")
@pytest.mark.parametrize("compiler", ["false", "cc 'x"])
def test_a_compiler_that_fails_is_quoted(monkeypatch, tmp_path, compiler):
    monkeypatch.delenv("TORCHCAPS_NATIVE", raising=False)
    fresh(monkeypatch, tmp_path, CC=compiler)
    (tmp_path / "torchcaps" / "native").mkdir(parents=True)
    assert describe().startswith("off (the C compiler failed: ")
    assert not list((tmp_path / "torchcaps" / "native").iterdir())


@pytest.mark.usefixtures("_forgotten", "native")
def test_a_folder_that_cannot_be_written_is_done_without(monkeypatch, tmp_path):
    (tmp_path / "torchcaps").write_text("not a folder")
    fresh(monkeypatch, tmp_path)
    assert not isinstance(library(Geometry(1, 3, 2), torch.float64), str)


@pytest.mark.usefixtures("native")
def test_a_broken_file_among_those_kept_is_built_anew(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for _ in range(2):
        subprocess.run([sys.executable, "-c", BUILD], check=True, timeout=120)
        (kept,) = (tmp_path / "torchcaps" / "native").iterdir()
        assert kept.stat().st_size > 10_000
        kept.write_text("half of a file")


@pytest.mark.usefixtures("_forgotten", "native")
def test_somebody_without_a_home_is_served(monkeypatch, tmp_path):
    def nowhere():
        raise RuntimeError("Could not determine home directory.")

    fresh(monkeypatch, tmp_path)
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr("pathlib.Path.home", nowhere)
    assert not isinstance(library(Geometry(1, 3, 4), torch.float64), str)


def test_the_variable_takes_0_and_1(monkeypatch):
    monkeypatch.setenv("TORCHCAPS_NATIVE", "yes")
    with pytest.raises(ValueError, match="TORCHCAPS_NATIVE: expected 0 or 1, got 'yes'"):
        library(Geometry(1, 5, 6), torch.float32)
    monkeypatch.setenv("TORCHCAPS_NATIVE", "0")
    assert isinstance(library(Geometry(1, 5, 6), torch.float32), str)
    assert describe() == "off (TORCHCAPS_NATIVE=0)"


@pytest.mark.usefixtures("native")
def test_processes_that_build_at_the_same_time_do_not_disturb_each_other(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    running = [subprocess.Popen([sys.executable, "-c", BUILD], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    answers = [process.communicate(timeout=120)[0].strip() for process in running]
    assert all(process.returncode == 0 for process in running)
    assert len(set(answers)) == 1
    assert len(list((tmp_path / "torchcaps" / "native").iterdir())) == 1


@pytest.fixture
def hanging(monkeypatch, tmp_path, _forgotten):
    """A compiler that starts another process and waits for it for ever; each start is written down."""
    script = tmp_path / "hanging"
    lines = (f'echo start >> "{tmp_path}/starts"', "sleep 1000 &", f'echo $! > "{tmp_path}/child"', "wait")
    script.write_text("\n".join(("#!/bin/sh", *lines, "")))
    script.chmod(0o755)
    monkeypatch.delenv("TORCHCAPS_NATIVE", raising=False)
    fresh(monkeypatch, tmp_path, CC=str(script))
    monkeypatch.setattr(compiler, "SECONDS", 1.0)
    monkeypatch.setattr(compiler, "_given_up", set())
    return tmp_path


def test_a_compiler_that_hangs_is_given_up_once(hanging):
    assert all(isinstance(library(Geometry(1, size, 2), torch.float32), str) for size in (2, 3, 4))
    assert (hanging / "starts").read_text().count("start") == 1
    assert describe() == "off (the C compiler took more than 1 seconds)"


def test_threads_that_need_a_compiler_that_hangs_start_it_once(hanging):
    threads = [threading.Thread(target=library, args=(Geometry(1, size, 2), torch.float32)) for size in (2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (hanging / "starts").read_text().count("start") == 1


def test_the_children_of_a_compiler_that_hangs_end_with_it(hanging):
    assert isinstance(library(Geometry(1, 2, 2), torch.float32), str)
    child = int((hanging / "child").read_text())
    for _ in range(100):  # a killed process is there until its parent has heard of it
        if not _running(child):
            return
        time.sleep(0.1)
    os.kill(child, signal.SIGKILL)
    pytest.fail("a child of the compiler goes on")


def _running(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.usefixtures("_forgotten")
def test_a_compiler_that_makes_nothing_is_told(monkeypatch, tmp_path):
    monkeypatch.delenv("TORCHCAPS_NATIVE", raising=False)
    fresh(monkeypatch, tmp_path, CC="true")
    assert describe() == "off (the C compiler failed: it made no library)"
