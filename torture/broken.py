"""Runs whose files are broken or foreign, in every command that reads a run: a sentence, and no code is ever run."""

from __future__ import annotations

import io
import pickle
import random
import shutil
import tempfile
import time
import zipfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import torch

from torchcaps._core.errors import InputError
from torchcaps.apps.cli.main import main
from torchcaps.runs.load import load
from torture.limits import Hang, in_memory, in_time, overheard
from torture.mutate import mutated
from torture.result import Result

ROOM = 6 << 30
RESUMED = 10  # seconds of computing; whoever still trains then has read all files
IMAGES = ("config.json", "metadata.json", "model.safetensors", "last.ckpt", "metrics.csv")
TEXTS = ("config.json", "metadata.json", "split.json", "vocabulary.json", "model.safetensors", "last.ckpt")
LABELS = ("good", "bad")


def image_run(folder: Path) -> Path:
    """A small run on digits, half trained."""
    _done("train", "digits", "--limit", "100", "--epochs", "2", "--option", "capsules=4", "--out", str(folder))
    return folder


def text_run(folder: Path) -> Path:
    """A small run on texts."""
    folder.mkdir(parents=True)
    draw = random.Random(0)
    rows = [(" ".join(draw.choices((label, "it", "is", "a", "film"), k=6)), label) for label in LABELS * 30]
    table = folder / "table.csv"
    table.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows))
    small = ("--epochs", "2", "--option", "dim=8", "--model", "text-a")
    _done("train", str(table), *small, "--out", str(folder / "run"))
    return folder / "run"


def _done(*words: str) -> None:
    code, said = _command(*words)
    if code:
        raise RuntimeError(said)


def _command(*words: str) -> tuple[int, str]:
    said = io.StringIO()
    with redirect_stdout(io.StringIO()), redirect_stderr(said):
        code = main(list(words))
    return code, said.getvalue().strip()


def commands(run: Path, texts: bool) -> list[tuple[str, ...]]:
    """Every command that reads a run, in its quickest form."""
    place = str(run)
    common = [("evaluate", place, "--no-pictures"), ("train", "--resume", place), ("list", "runs", "--folder", place)]
    common.append(("export", place, "--torch", "--out", f"{place}/x.pt2"))
    if texts:
        asked = [("predict", "a good film"), ("explain", "a good film"), ("similar", "a", "b")]
    else:
        asked = [("predict", f"{place}/some.png"), ("health", "--count", "20", "--no-ablate")]
    return [*common, *((name, place, *more) for name, *more in asked)]


class Trap:
    """What would make a file if it were unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


def traps(mark: Path) -> list[bytes]:
    """Checkpoints that would run code where pickles are trusted: torch's format, its old one, and plain pickles."""
    found = []
    for content in ({"state_dict": Trap(mark)}, Trap(mark)):
        for new in (True, False):
            buffer = io.BytesIO()
            torch.save(content, buffer, _use_new_zipfile_serialization=new)
            found.append(buffer.getvalue())
        found.append(pickle.dumps(content))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Trap(mark)))
        archive.writestr("archive/version", "3\n")
    return [*found, buffer.getvalue()]


def attempt(words: tuple[str, ...] | None, run: Path, *, talks: bool = False) -> tuple[str, str | None]:
    """How a command (or `torchcaps.load`, for None) ends, and what is wrong with that.

    talks: it may have told of pictures, or warned, before it met what it refuses.
    """
    resumed = words is not None and "--resume" in words
    with overheard() as heard:
        try:
            with in_memory(ROOM), in_time(RESUMED if resumed else 60):
                if words is None:
                    load(run)
                    return "done", None
                code, said = _command(*words)
        except InputError as error:
            return "refused", None if len(str(error).splitlines()) == 1 else "a message of many lines"
        except Hang:
            return "trains on", None if resumed else "took more than a minute"
        except BaseException as error:
            return "", f"{type(error).__name__}: {str(error)[:150]}"
    if heard and not talks:
        return "", heard[0]
    if code == 2 and ((len(said.splitlines()) != 1 and not talks) or "Traceback" in said):
        return "", f"no single sentence: {said[-200:]}"
    return {0: "done", 2: "refused"}.get(code, f"exit code {code}"), None if code in (0, 2) else said[-200:]


def try_file(source: Path, file: str, count: int, every: int, *, texts: bool = False, seed: int = 0) -> Result:
    """A run with one file broken in so many ways: `load` sees all of them, and every few a command, in turn."""
    result = Result("broken", f"{file} of a run on {'texts' if texts else 'images'}")
    draw = random.Random(f"{seed} {file} {texts}")
    whole = (source / file).read_bytes()
    others = [path.read_bytes() for path in source.iterdir() if path.is_file() and path.stat().st_size < 1 << 20]
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        run, mark = Path(place) / "run", Path(place) / "mark"
        chosen = commands(run, texts)
        foreign = [*traps(mark), b"", *others]
        for number in range(count):
            shutil.rmtree(run, ignore_errors=True)
            shutil.copytree(source, run)
            (run / file).write_bytes(foreign[number] if number < len(foreign) else mutated(whole, others, draw))
            turn = number if number < len(foreign) else number // every
            words = chosen[turn % len(chosen)] if number % every == 0 or number < len(foreign) else None
            if file == "last.ckpt":
                words = ("train", "--resume", str(run))
            elif words is None and file in ("split.json", "vocabulary.json", "metrics.csv"):
                words = ("evaluate", str(run), "--no-pictures")  # `load` does not read it
            outcome, wrong = attempt(words, run)
            wrong = "code of the file was run" if mark.exists() else wrong
            name = "load" if words is None else words[0]
            result.fault(f"{name}, number {number}: {wrong}") if wrong else result.ended(outcome)
    result.seconds = time.perf_counter() - started
    return result


def run(mutations: int, seed: int = 0) -> list[Result]:
    """So many broken copies of every file."""
    with tempfile.TemporaryDirectory() as place:
        from PIL import Image

        images, texts = image_run(Path(place) / "images"), text_run(Path(place) / "texts")
        Image.new("L", (8, 8)).save(images / "some.png")
        found = [try_file(images, file, mutations, 10, seed=seed) for file in IMAGES]
        return found + [try_file(texts, file, mutations, 10, texts=True, seed=seed) for file in TEXTS]
