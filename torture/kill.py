"""A real training, killed again and again: it goes on, loses no checkpoint, and ends with the same weights."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from torchcaps.errors import InputError
from torchcaps.weights import load_weights
from torture.result import Result
from torture.victim import MOMENTS

EPOCHS, STEPS = 4, 6  # and three files in each epoch, of which fsync is called on the folder too
TRAINING = (
    "train", "digits", "--limit", "300", "--batch-size", "50", "--epochs", str(EPOCHS), "--option", "capsules=4",
    "--reconstruction", "0.0005",
)  # fmt: skip
FILES = ("config.json", "data.json", "last.ckpt", "metrics.csv", "model.safetensors", "split.json", "README.md")
HIGHEST = {"step": EPOCHS * STEPS, "validation": EPOCHS, "half written": 22, "written": 16, "renamed": 16}


class Killing:
    """A run that is trained, killed and resumed, with a folder of its own for temporary files."""

    def __init__(self, place: Path, draw: random.Random) -> None:
        self.run, self.temporary, self.draw = place / "run", place / "tmp", draw
        self.temporary.mkdir(parents=True)
        self.environment = {**os.environ, "TMPDIR": str(self.temporary), "CUDA_VISIBLE_DEVICES": ""}

    def words(self) -> list[str]:
        """What goes on with the run, or begins it where there is none yet."""
        if (self.run / "config.json").exists():
            return ["train", "--resume", str(self.run)]
        return [*TRAINING, "--out", str(self.run)]

    def start(self, *program: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", *program, *self.words()]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=self.environment)

    def strike(self, moment: str) -> tuple[str, str | None]:
        """Kill the training at this moment, or after a random time: how it ended, and what is wrong with that."""
        if moment == "any time":
            process = self.start("torchcaps")
            time.sleep(self.draw.uniform(0, 12))
            process.send_signal(signal.SIGKILL)
        else:
            number = self.draw.randint(1, HIGHEST[moment] // 2)
            process = self.start("torture.victim", moment, str(number))
        _, said = process.communicate(timeout=900)
        killed = process.returncode == -signal.SIGKILL
        return moment if killed else "finished before", _wrong(process.returncode, said)

    def finish(self) -> str | None:
        process = self.start("torchcaps")
        _, said = process.communicate(timeout=900)
        return _wrong(process.returncode, said)

    def lost(self, had: set[str]) -> str | None:
        """What is wrong with the files after a kill: a checkpoint or weights gone or broken, temporary files."""
        names = {path.name for path in self.run.iterdir()} if self.run.exists() else set()
        if not had <= names:
            return f"{', '.join(had - names)} gone"
        try:
            if "last.ckpt" in names:
                torch.load(self.run / "last.ckpt", weights_only=True)
            if "model.safetensors" in names:
                load_weights(self.run / "model.safetensors")
        except (InputError, RuntimeError, OSError, EOFError) as error:
            return f"a broken file: {error}"
        loose = [name for name in names if name.endswith(".tmp") and name.removesuffix(".tmp") not in FILES]
        return f"temporary files that no write will replace: {', '.join(loose)}" if loose else None

    def kept(self) -> set[str]:
        return {name for name in ("last.ckpt", "config.json") if (self.run / name).exists()}


def _wrong(code: int, said: str) -> str | None:
    """Killed, done, or a sentence and exit code 2; anything else is wrong."""
    told = code == 2 and len(said.strip().splitlines()) == 1
    if code in (0, -signal.SIGKILL) or told:
        return None
    return f"exit code {code}: {said.strip()[-200:]}"


def run(kills: int, seed: int = 0) -> list[Result]:
    """So many kills, over several runs; each run is at last finished and compared with one that was left alone."""
    draw = random.Random(seed)
    moments = [(*MOMENTS, "any time")[number % (len(MOMENTS) + 1)] for number in range(kills)]
    draw.shuffle(moments)
    result, ends = Result("kill", "kills"), Result("kill", "runs that were killed, finished at last")
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        whole = Killing(Path(place) / "whole", draw)
        wrong = whole.finish()
        if wrong:
            ends.fault(wrong)
            return [ends]
        wanted = load_weights(whole.run / "model.safetensors")
        number = 0
        while moments:
            number += 1
            victim = Killing(Path(place) / str(number), draw)
            for _ in range(draw.choice((2, 4, 6))):
                if not moments:
                    break
                moment, had = moments.pop(), victim.kept()
                ended, wrong = victim.strike(moment)
                wrong = wrong or victim.lost(had)
                result.fault(f"{moment}: {wrong}") if wrong else result.ended(ended)
                if ended == "finished before":
                    moments.insert(0, moment)  # for another run
            wrong = victim.finish() or _other(victim, wanted)
            ends.fault(wrong) if wrong else ends.ended("the same weights")
    result.seconds = ends.seconds = time.perf_counter() - started
    return [result, ends]


def _other(victim: Killing, wanted: dict[str, torch.Tensor]) -> str | None:
    """What differs from a run that was left alone."""
    found = load_weights(victim.run / "model.safetensors")
    if found.keys() != wanted.keys() or not all(torch.equal(found[name], wanted[name]) for name in wanted):
        return "other weights than those of a run that was left alone"
    loose = [path for path in (*victim.temporary.rglob("*"), *victim.run.glob("*.tmp")) if path.is_file()]
    return f"files left behind: {', '.join(path.name for path in loose)}" if loose else None
