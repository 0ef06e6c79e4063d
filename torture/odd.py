"""Odd conditions: clocks that jump, processes that are stopped, data that change, archives without an end."""

from __future__ import annotations

import gzip
import io
import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from torchcaps._core.errors import InputError
from torchcaps.data import load_dataset, load_npz, load_table, read_idx, read_vectors
from torchcaps.data.smallnorb import read_norb
from torchcaps.runs.weights import load_weights
from torture.kill import TRAINING
from torture.limits import Hang, in_memory, in_time
from torture.result import Result

MEMORY, SECONDS = 1 << 30, 60  # that an archive may take
TERABYTES = 4 << 40


def _start(*words: str, before: tuple[str, ...] = (), **variables: str) -> subprocess.Popen[str]:
    command = [*before, sys.executable, "-m", "torchcaps", *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def _done(process: subprocess.Popen[str]) -> str | None:
    _, said = process.communicate(timeout=900)
    return None if process.returncode == 0 else f"exit code {process.returncode}: {said.strip()[-200:]}"


def _same(run: Path, wanted: Path) -> str | None:
    found, known = (load_weights(folder / "model.safetensors") for folder in (run, wanted))
    same = all(torch.equal(found[name], known[name]) for name in known)
    return None if same else "other weights than those of a run that was left alone"


def clocks(count: int, place: Path, draw: random.Random) -> Result:
    """Trainings whose clock jumps by years, forwards and backwards, every second (by the program faketime)."""
    result = Result("odd", "clocks that jump")
    if shutil.which("faketime") is None:
        result.outcomes["skipped: the program faketime is not installed"] += 1
        return result
    for number in range(count):
        run, file = place / f"clock-{number}", place / "clock.txt"
        file.write_text("+0")
        variables = {
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        process = _start(*TRAINING, "--out", str(run), before=("faketime", "-f", "+0"), **variables)
        while process.poll() is None:
            file.write_text(f"{draw.uniform(-20, 20) * 365 * 86400:+.0f}")
            time.sleep(0.2)
        wrong = _done(process) or _same(run, place / "whole")
        result.fault(wrong) if wrong else result.ended("the same weights")
    return result


def stops(count: int, place: Path, draw: random.Random) -> Result:
    """Trainings that are stopped (SIGSTOP) and go on, several times; every other one with two processes."""
    result = Result("odd", "processes that are stopped")
    for number in range(count):
        run = place / f"stop-{number}"
        process = _start(*TRAINING, "--out", str(run), *(("--devices", "2") if number % 2 else ()))
        for _ in range(4):
            time.sleep(draw.uniform(0, 3))
            victims = [process.pid] if process.poll() is None else []
            for victim in victims:
                os.kill(victim, signal.SIGSTOP)
                time.sleep(draw.uniform(0.1, 2))
                os.kill(victim, signal.SIGCONT)
        wrong = _done(process) or (None if number % 2 else _same(run, place / "whole"))
        result.fault(wrong) if wrong else result.ended("finished" if number % 2 else "the same weights")
    return result


def _pictures(folder: Path) -> Path:
    draw = np.random.default_rng(0)
    for label in ("a", "b"):
        (folder / label).mkdir(parents=True)
        for number in range(40):
            Image.fromarray(draw.integers(0, 256, (12, 12), np.uint8)).save(folder / label / f"{number}.png")
    return folder


def _change(victim: Path, other: Path, draw: random.Random) -> None:
    how = draw.choice(("removed", "broken", "replaced"))
    if how == "removed":
        victim.unlink()
    else:
        victim.write_bytes(b"x" if how == "broken" else other.read_bytes())


def changes(count: int, place: Path, draw: random.Random) -> Result:
    """Pictures that are changed, removed or added while a network is trained on them, and while it is interrupted."""
    result = Result("odd", "data that change during training")
    words = ("--option", "capsules=4", "--epochs", "40", "--batch-size", "16")
    original = _pictures(place / "original")
    shutil.copytree(original, place / "pictures")
    wrong = _done(_start("train", str(place / "pictures"), *words, "--out", str(place / "unchanged")))
    if wrong:
        result.fault(wrong)
        return result
    for number in range(count):
        run = place / f"changed-{number}"
        process = _start("train", str(place / "pictures"), *words, "--out", str(run))
        while process.poll() is None and not (run / "metrics.csv").exists():
            time.sleep(0.05)
        victim = draw.choice(sorted((place / "pictures" / "a").iterdir()))
        _change(victim, original / "b" / "0.png", draw)
        interrupted = number % 2 == 0
        if interrupted:
            process.kill()
            process.communicate()
            answer = _start("train", "--resume", str(run))
            _, said = answer.communicate(timeout=900)
            if answer.returncode != 2 or "Traceback" in said:
                result.fault(f"a run on other data went on: exit code {answer.returncode}, {said[-200:]}")
            shutil.copy(original / "a" / victim.name, victim)
            process = _start("train", "--resume", str(run))
        wrong = _done(process) or _same(run, place / "unchanged")
        result.fault(wrong) if wrong else result.ended("refused, then the same" if interrupted else "the same weights")
        shutil.copy(original / "a" / victim.name, victim)
    return result


def _packed(path: Path, head: bytes, megabytes: int = 64_000) -> Path:
    """A gzip file that unpacks to so many megabytes, of which it repeats one, behind a beginning."""
    member = gzip.compress(bytes(1 << 20), 9)
    path.write_bytes(gzip.compress(head) + member * megabytes)
    return path


def _sparse(path: Path, name: str) -> Path:
    """A tar archive with a file of terabytes that is one hole."""
    info = tarfile.TarInfo(name)
    info.pax_headers = {
        "GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.name": name, "GNU.sparse.size": str(TERABYTES),
        "GNU.sparse.numblocks": "1", "GNU.sparse.map": f"{TERABYTES},0",
    }  # fmt: skip
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(info, io.BytesIO())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content.getvalue()))
    return path


def _array(path: Path) -> Path:
    """An npz file whose array says that it has terabytes, and is packed as if it had."""
    header = io.BytesIO()
    shape = (TERABYTES >> 20, 1024, 1024)
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("images.npy", header.getvalue() + bytes(1 << 26))
        archive.writestr("labels.npy", b"x")
    return path


def archives(place: Path) -> Result:
    """Packed files that unpack to far more than any memory or disk holds, in every reader of packed files."""
    result = Result("odd", "archives that unpack to terabytes")
    idx = bytes([0, 0, 8, 3]) + (1 << 20).to_bytes(4, "big") + (1024).to_bytes(4, "big") * 2
    norb = bytes([0x55, 0x4C, 0x3D, 0x1E]) + (3).to_bytes(4, "little") + (1 << 20).to_bytes(4, "little") * 3
    cifar = _sparse(place / "cifar" / "cifar-10" / "cifar-10-binary.tar.gz", "cifar-10-batches-bin/batches.meta.txt")
    reuters = _sparse(place / "texts" / "reuters" / "reuters21578.tar.gz", "reut2-000.sgm")
    cases: dict[str, Callable[[], object]] = {
        "idx.gz": lambda: read_idx(_packed(place / "a.idx.gz", idx, 4000)),
        "norb.gz": lambda: read_norb(_packed(place / "a.mat.gz", norb, 4000)),
        "csv.gz, one line": lambda: load_table(_packed(place / "a.csv.gz", b"text,label\na,b\n")),
        "jsonl.gz, one line": lambda: load_table(_packed(place / "a.jsonl.gz", b'{"text": "a", "label": "b"}\n')),
        "vectors.gz, one line": lambda: read_vectors(str(_packed(place / "a.txt.gz", b"word 1 2 3\n"))),
        "npz": lambda: load_npz(_array(place / "a.npz")),
        "tar.gz of cifar-10": lambda: load_dataset("cifar-10", cifar.parents[1]),
        "tar.gz of reuters": lambda: load_dataset("reuters", reuters.parents[1]),
    }
    for name, read in cases.items():
        try:
            with in_memory(MEMORY), in_time(SECONDS):
                read()
            result.fault(f"{name}: was read")
        except InputError as error:
            result.ended("refused") if len(str(error).splitlines()) == 1 else result.fault(f"{name}: {error}")
        except Hang:
            result.fault(f"{name}: took more than {SECONDS} s")
        except BaseException as error:
            result.fault(f"{name}: {type(error).__name__}: {error}")
    return result


def run(trainings: int, seed: int = 0) -> list[Result]:
    """So many trainings under each condition, and every kind of archive."""
    draw = random.Random(seed)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        wrong = _done(_start(*TRAINING, "--out", str(place / "whole")))
        if wrong:
            raise RuntimeError(wrong)
        for campaign in (clocks, stops, changes):
            started = time.perf_counter()
            found.append(campaign(trainings, place, draw))
            found[-1].seconds = time.perf_counter() - started
        started = time.perf_counter()
        found.append(archives(place))
        found[-1].seconds = time.perf_counter() - started
    return found
