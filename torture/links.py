"""Run folders of strangers, full of links: no command reads or writes anything outside of them."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from pathlib import Path

from PIL import Image

from torture.broken import attempt, image_run, text_run
from torture.result import Result
from torture.watch import Monitor

# What commands read or write in a run, and what they once used beside it.
PLACES = (
    "config.json", "metadata.json", "split.json", "vocabulary.json", "metrics.csv", "model.safetensors", "last.ckpt",
    "README.md", "train.log", ".torchcaps.lock", "report.html", "model.pt2", "model.onnx", "tensorboard",
    "model.previous.safetensors", "evaluation", "evaluation/results.json", "evaluation/mistakes.csv",
    "evaluation/confusion.png", "evaluation/examples.png", "attack", "attack/results.json", "attack/curve.png",
    "attack/examples.png", "jumble", "jumble/results.json", "jumble/examples.png", "jumble/confidence.png", "strange",
    "strange/results.json", "strange/roc.png", "health", "health/results.json", "health/couplings.png", "explain",
    "explain/results.json", "explain/test-0-tree.png", "README.md.tmp", "metadata.json.tmp", "last.ckpt.tmp",
    "model.part.pt2", "evaluation/results.json.tmp", "why.html",
)  # fmt: skip
SOME = 5  # commands for each prepared run; it has no divisor in common with the number of them
# Where a link may lead: a file, a folder, a name that is not there yet, around a corner, by another link.
TARGETS = (
    "{outside}/key", "{outside}", "{outside}/folder", "{outside}/new", "../outside/key", "../outside", "../outside/new",
    "hop", "/proc/self/cwd/../../../../../../..{outside}/key", "{outside}/folder/../key",
)  # fmt: skip


def commands(run: Path, texts: bool) -> list[tuple[str, ...]]:
    """Every command that takes a run, in its quickest form."""
    place, few = str(run), ("--count", "8")
    found = [
        ("train", "--resume", place), ("evaluate", place), ("evaluate", place, "--part", "train"),
        ("list", "runs", "--folder", place), ("export", place, "--torch"), ("report", place, *few),
        ("health", place, *few, "--no-ablate"),
    ]  # fmt: skip
    if texts:
        drawing = ("draw", "text-model", "a film", "--run", place, "--out", f"{place}/drawn.png")
        page = ("explain", place, "a good film", "--html", f"{place}/why.html")
        return [*found, ("predict", place, "a good film"), ("similar", place, "a", "b"), page[:3], page, drawing]
    asked = [(name, place, *few) for name in ("attack", "jumble", "strange")]
    drawn = [("draw", what, "--run", place, "--out", f"{place}/drawn.png") for what in ("convergence", "split")]
    return [*found, *asked, *drawn, ("predict", place, f"{place}/some.png"), ("explain", place, "--example", "0")]


def prepare(source: Path, root: Path, draw: random.Random) -> tuple[Path, Path, list[str]]:
    """A copy of a run with links in it, what nobody may touch beside it, and the links in words."""
    run, outside = root / "run", root / "outside"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(source, run)
    (outside / "folder").mkdir(parents=True)
    (outside / "key").write_text("secret")
    (outside / "folder" / "results.json").write_text('{"examples": 1, "test": "secret"}')
    told = []
    for name in draw.sample(PLACES, draw.choice((1, 1, 2, 3))):
        path = run / name
        if any(parent.is_symlink() for parent in path.parents if parent != run):
            continue
        target = draw.choice(TARGETS).format(outside=outside)
        if target == "hop":
            (run / "hop").unlink(missing_ok=True)
            (run / "hop").symlink_to(outside / draw.choice(("key", "folder", "new")))
            target = str(run / "hop")
        elif target.startswith("../"):
            target = "../" * name.count("/") + target
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and draw.random() < 0.5 and not path.is_dir():  # a file that would serve, elsewhere
            shutil.copy(path, outside / "served")
            target = str(outside / "served")
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        path.symlink_to(target)
        told.append(f"{name} -> {target.replace(str(root), '')}")
    return run, outside, told


def try_run(source: Path, place: Path, number: int, texts: bool, result: Result, seed: int = 0) -> None:
    """Some of the commands, in turn, on one prepared run."""
    chosen = commands(place / "run", texts)
    for words in (chosen[(SOME * number + turn) % len(chosen)] for turn in range(SOME)):
        draw = random.Random(f"{seed} {number}")  # each command meets the run as it was prepared
        run, outside, told = prepare(source, place, draw)
        monitor = Monitor(outside)
        try:
            outcome, wrong = attempt(words, run, talks=True)
            touched = monitor.seen()
        finally:
            monitor.close()
        strangers = {path.name for path in place.iterdir()} - {"run", "outside"}
        if touched or strangers:
            wrong = touched[0] if touched else f"{min(strangers)} was made"
        result.fault(f"{words[0]}, run {number} ({'; '.join(told)}): {wrong}") if wrong else result.ended(outcome)


def run(runs: int, seed: int = 0) -> list[Result]:
    """So many prepared runs, a third of them on texts, each tried with some commands, all of them in turn."""
    found = {kind: Result("links", f"commands on prepared runs on {kind}") for kind in ("images", "texts")}
    few = ("--count", "8")
    with tempfile.TemporaryDirectory() as place:
        root = Path(place).resolve()
        sources = {"images": image_run(root / "images"), "texts": text_run(root / "texts")}
        Image.new("L", (8, 8)).save(sources["images"] / "some.png")
        for words in (("evaluate",), ("attack", *few), ("jumble", *few), ("strange", *few)):
            outcome, wrong = attempt((words[0], str(sources["images"]), *words[1:]), sources["images"], talks=True)
            if wrong or outcome != "done":
                found["images"].fault(f"{words[0]} on the run before it was prepared: {wrong or outcome}")
        for number in range(runs):
            kind = "texts" if number % 3 == 2 else "images"
            started = time.perf_counter()
            try_run(sources[kind], root / "scratch", number, kind == "texts", found[kind], seed)
            found[kind].seconds += time.perf_counter() - started
    return list(found.values())
