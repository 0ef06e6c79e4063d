"""Trainings of every kind, killed again and again: they go on, lose no checkpoint, and end with the same weights."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from torchcaps._core.errors import InputError
from torchcaps._core.files import is_temporary
from torchcaps.runs.weights import load_weights
from torture.result import Result
from torture.victim import MOMENTS

EPOCHS, STEPS = 4, 6  # and three files in each epoch
SMALL = ("--limit", "300", "--batch-size", "50", "--option", "capsules=4", "--reconstruction", "0.0005")
TRAINING = ("train", "digits", *SMALL, "--epochs", str(EPOCHS))
HIGHEST = {"step": EPOCHS * STEPS, "validation": EPOCHS, "half written": 18, "written": 16, "renamed": 16}


@dataclass(frozen=True)
class Kind:
    """A way of training. moments: when it is killed. again: it goes on by its own command, not by --resume."""

    words: tuple[str, ...]
    moments: tuple[str, ...]
    again: bool = True


ANY = "any time"
KINDS = {
    "train": Kind(TRAINING, (*MOMENTS, ANY), again=False),
    "--devices 2": Kind((*TRAINING, "--devices", "2"), (ANY, "a worker, any time"), again=False),
    "--folds": Kind(("train", "DATA", *SMALL[2:], "--epochs", "1", "--folds", "2"), (*MOMENTS, ANY)),
    "compare": Kind(
        ("compare", "digits", *SMALL, "--epochs", "2", "--seeds", "1", "--vary", "routing=dynamic,uniform"), (ANY,)
    ),
    "viewpoint": Kind(
        ("viewpoint", "toys", "--limit", "60", "--epochs", "1", "--size", "16", "--option", "capsules=4"),
        (*MOMENTS, ANY),
    ),
}
TURNS = ("train", "train", "train", "--devices 2", "--folds", "compare", "viewpoint")


class Killing:
    """A training that is killed and goes on, with a folder of its own for temporary files."""

    def __init__(self, kind: str, place: Path, draw: random.Random) -> None:
        self.kind, self.run, self.temporary, self.draw = KINDS[kind], place / "run", place / "tmp", draw
        self.temporary.mkdir(parents=True)
        self.environment = {
            **os.environ, "TMPDIR": str(self.temporary), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"
        }  # fmt: skip
        self.seconds = 12.0  # that it takes, about
        self.data = place.parent / "data.npz"
        if not self.data.exists():
            numbers = np.random.default_rng(0)
            np.savez(self.data, images=numbers.integers(0, 256, (200, 12, 12), np.uint8), labels=np.arange(200) % 3)

    def words(self) -> list[str]:
        """What goes on with the training, or begins it where there is none yet."""
        if not self.kind.again and (self.run / "config.json").exists():
            return ["train", "--resume", str(self.run)]
        words = [str(self.data) if word == "DATA" else word for word in self.kind.words]
        return [*words, "--out", str(self.run)]

    def start(self, *program: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", *program, *self.words()]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=self.environment)

    def strike(self, moment: str) -> tuple[str, str | None]:
        """Kill the training at this moment: how it ended, and what is wrong with that."""
        if moment not in MOMENTS:
            process = self.start("torchcaps")
            time.sleep(self.draw.uniform(0, self.seconds))
            others = children(process.pid) if moment != ANY else []
            os.kill(self.draw.choice(others) if others else process.pid, signal.SIGKILL)
        else:
            number = self.draw.randint(1, HIGHEST[moment] // 2)
            process = self.start("torture.victim", moment, str(number))
        _, said = process.communicate(timeout=900)
        self.wait()
        lost = process.returncode == 2 and "Go on with: torchcaps train --resume" in said  # a worker was
        killed = process.returncode == -signal.SIGKILL or lost
        return moment if killed else "finished before", _wrong(process.returncode, said)

    def wait(self) -> None:
        """Until processes that the killed one had started have noticed."""
        for _ in range(200):
            if not any(str(self.run) in words for words in _running()):
                return
            time.sleep(0.1)

    def finish(self) -> str | None:
        started = time.perf_counter()
        process = self.start("torchcaps")
        _, said = process.communicate(timeout=1800)
        self.seconds = time.perf_counter() - started
        return _wrong(process.returncode, said) or (None if process.returncode == 0 else said.strip()[-200:])

    def weights(self) -> dict[str, dict[str, torch.Tensor]]:
        """All that was trained, by the folder."""
        found = sorted(self.run.rglob("model.safetensors"))
        return {str(path.parent.relative_to(self.run)): load_weights(path) for path in found}

    def lost(self, had: set[Path]) -> str | None:
        """What is wrong with the files after a kill: one that was there is gone, a checkpoint or weights are broken."""
        gone = [path for path in had if not path.exists()]
        if gone:
            return f"{gone[0].name} gone"
        try:
            for path in self.run.rglob("last.ckpt"):
                torch.load(path, weights_only=True)
            self.weights()
        except (InputError, RuntimeError, OSError, EOFError) as error:
            return f"a broken file: {error}"
        return None

    def kept(self) -> set[Path]:
        names = ("last.ckpt", "config.json", "outcome.json", "folds.json", "compare.json", "viewpoint.json")
        return {path for name in names for path in self.run.rglob(name)}


def children(parent: int) -> list[int]:
    """The processes that a process has started, but for those that only keep track of it."""
    try:
        numbers = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    except OSError:
        return []
    return [int(number) for number in numbers if "spawn_main" in _line(int(number))]


def _line(number: int) -> str:
    try:
        return Path(f"/proc/{number}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""


def _running() -> list[str]:
    return [_line(int(name)) for name in os.listdir("/proc") if name.isdigit()]


def _wrong(code: int, said: str) -> str | None:
    """Killed, done, or a sentence and exit code 2; anything else is wrong."""
    told = code == 2 and len(said.strip().splitlines()[-1:]) == 1 and "Traceback" not in said
    if code in (0, -signal.SIGKILL) or told:
        return None
    return f"exit code {code}: {said.strip()[-200:]}"


def run(kills: int, seed: int = 0) -> list[Result]:
    """So many kills, over trainings of every kind; each is finished at last and compared with one left alone."""
    draw = random.Random(seed)
    results = {kind: Result("kill", f"kills of {kind}") for kind in KINDS}
    ends = Result("kill", "trainings that were killed, finished at last")
    with tempfile.TemporaryDirectory() as place:
        whole: dict[str, Killing] = {}
        number = done = 0
        while done < kills:
            kind = TURNS[number % len(TURNS)]
            number += 1
            started = time.perf_counter()
            if kind not in whole:
                whole[kind] = Killing(kind, Path(place) / f"whole-{len(whole)}", draw)
                wrong = whole[kind].finish()
                if wrong:
                    ends.fault(f"{kind}: {wrong}")
                    return [*results.values(), ends]
            victim = Killing(kind, Path(place) / str(number), draw)
            victim.seconds = whole[kind].seconds
            for _ in range(min(kills - done, draw.choice((2, 4, 6)))):
                moment, had = draw.choice(victim.kind.moments), victim.kept()
                ended, wrong = victim.strike(moment)
                wrong = wrong or victim.lost(had)
                results[kind].fault(f"{moment}: {wrong}") if wrong else results[kind].ended(ended)
                done += ended != "finished before"
            wrong = victim.finish() or _other(victim, whole[kind])
            ends.fault(f"{kind}: {wrong}") if wrong else ends.ended("the same weights")
            results[kind].seconds += time.perf_counter() - started
            faults = sum(len(result.faults) for result in (*results.values(), ends))
            print(f"{done} kills of {kills}, {faults} faults", file=sys.stderr, flush=True)
    ends.seconds = sum(result.seconds for result in results.values())
    return [*results.values(), ends]


def _other(victim: Killing, whole: Killing) -> str | None:
    """What differs from a training that was left alone."""
    found, wanted = victim.weights(), whole.weights()
    same = found.keys() == wanted.keys() and all(
        found[place].keys() == wanted[place].keys()
        and all(torch.equal(found[place][name], wanted[place][name]) for name in wanted[place])
        for place in wanted
    )
    if not same:
        return "other weights than those of a training that was left alone"
    loose = [path for path in victim.run.rglob("*") if is_temporary(path.name)]
    loose += [path for path in victim.temporary.rglob("*") if path.is_file() and "pymp" not in str(path)]
    return f"files left behind: {', '.join(path.name for path in loose)}" if loose else None
