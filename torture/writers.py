"""Two writers of one run, and many of one file, some of them killed: every file stays whole, and one of theirs."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import torch

from torchcaps._core.files import atomic_write, is_temporary
from torchcaps.runs.weights import load_weights
from torture.broken import _command
from torture.kill import TRAINING
from torture.result import Result

WRITES = 10  # racing writes for each double resume, and for each kill
WRITERS = 4


def _server() -> ForkServerContext:
    """Processes from one that has imported everything, so that each starts at once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torture.writers", "torchcaps.train.engine"])
    return context


def _resume(folder: str, answers: Any) -> None:
    torch.set_num_threads(1)
    answers.put(_command("train", "--resume", folder))


def double_resumes(count: int, draw: random.Random) -> Result:
    """Two processes that go on with the same run: one does, the other is told (or comes when all is done)."""
    result, started = Result("writers", "double resumes"), time.perf_counter()
    context = _server()
    with tempfile.TemporaryDirectory() as place:
        whole, half = Path(place) / "whole", Path(place) / "half"
        for out, program in ((whole, ["torchcaps"]), (half, ["torture.victim", "validation", "3"])):
            words = [sys.executable, "-m", *program, *TRAINING, "--out", str(out)]
            subprocess.run(words, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        wanted = load_weights(whole / "model.safetensors")
        for number in range(count):
            run = Path(place) / f"run-{number}"
            shutil.copytree(half, run)
            answers = context.Queue()
            both = [context.Process(target=_resume, args=(str(run), answers)) for _ in range(2)]
            both[0].start()
            time.sleep(draw.choice((0, 0, 0.2, 0.5, 1.0)))
            both[1].start()
            ends = sorted(answers.get(timeout=300) for _ in both)
            for process in both:
                process.join()
            outcome, wrong = _judged(ends, run, wanted)
            result.fault(f"number {number}: {wrong}") if wrong else result.ended(outcome)
            shutil.rmtree(run)
    result.seconds = time.perf_counter() - started
    return result


def _judged(ends: list[tuple[int, str]], run: Path, wanted: dict[str, torch.Tensor]) -> tuple[str, str | None]:
    (first, _), (second, said) = ends
    if first != 0:
        return "", f"nobody finished: {ends}"
    if second == 2 and "expected a folder that no other process is writing to, got process" in said:
        outcome = "one went on, the other was told"
    elif second == 0:
        outcome = "the other came when it was done"
    else:
        return "", f"exit code {second}: {said[-200:]}"
    found = load_weights(run / "model.safetensors")
    if not all(torch.equal(found[name], wanted[name]) for name in wanted):
        return "", "other weights than those of a run that was left alone"
    loose = [path.name for path in run.iterdir() if is_temporary(path.name)]
    return outcome, f"{loose[0]} was left behind" if loose else None


def _content(writer: int, number: int) -> bytes:
    """What a writer writes: it names its writer, and has a checksum."""
    body = f"{writer} {number} ".encode() * random.Random(f"{writer} {number}").randint(1, 20_000)
    return body + zlib.crc32(body).to_bytes(4, "big")


def _write(path: str, writer: int, number: int, written: Any) -> None:
    """Write fifty times and count that in a place of one's own: a lock would be lost with whoever holds it."""
    for turn in range(50):
        atomic_write(Path(path), _content(writer, 50 * number + turn))
        written[number] += 1


def racing_writes(count: int, draw: random.Random) -> Result:
    """So many writes of one file by several processes, of which one is killed every now and then."""
    result, started = Result("writers", "racing writes of one file, with kills"), time.perf_counter()
    context = _server()
    written, kills, number = context.RawArray("q", 20 * count), 0, 0
    team: dict[int, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "file"
        atomic_write(path, _content(0, 0))
        while sum(written) < count or any(process.is_alive() for process in team.values()):
            for writer in range(WRITERS):
                if writer in team and not team[writer].is_alive():
                    code = team.pop(writer).exitcode
                    if code not in (0, -signal.SIGKILL):
                        result.fault(f"a writer ended with {code}")
                if writer not in team and sum(written) < count:
                    number += 1
                    team[writer] = context.Process(target=_write, args=(str(path), writer, number, written))
                    team[writer].start()
            wrong = _whole(path.read_bytes())
            if wrong:
                result.fault(wrong)
            time.sleep(draw.uniform(0, 0.005))
            victim = draw.choice(list(team.values())) if team and sum(written) > WRITES * kills else None
            if victim is not None and victim.is_alive():
                victim.kill()
                kills += 1
        atomic_write(path, _content(0, 0))
        loose = [entry for entry in os.listdir(place) if entry != "file"]
        if loose:
            result.fault(f"{loose[0]} was left behind")
    result.cases += sum(written)
    result.outcomes["writes"], result.outcomes["kills"] = sum(written), kills
    result.seconds = time.perf_counter() - started
    return result


def _whole(content: bytes) -> str | None:
    body, found = content[:-4], int.from_bytes(content[-4:], "big")
    if zlib.crc32(body) != found or len(set(body.decode().split(" ")[:-1:2])) != 1:
        return f"a file of {len(content)} bytes that no writer wrote"
    return None


def run(resumes: int, seed: int = 0) -> list[Result]:
    """So many double resumes, and ten racing writes for each."""
    draw = random.Random(seed)
    return [double_resumes(resumes, draw), racing_writes(WRITES * resumes, draw)]
