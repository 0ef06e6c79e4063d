"""Groups of runs: folds, variants, viewpoints. Each run has a folder; finished ones are not trained again."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from torchcaps._core.errors import InputError, input_error
from torchcaps._core.extensions import import_again
from torchcaps._core.fields import as_json, read_fields
from torchcaps._core.files import atomic_write, inside, read_text
from torchcaps._core.locks import LOCK, locked
from torchcaps._core.memory import highest_memory
from torchcaps.analysis.evaluate import Evaluation, evaluate
from torchcaps.data import DATASETS
from torchcaps.runs.config import TrainConfig
from torchcaps.runs.run import Run
from torchcaps.runs.runfolders import check_empty
from torchcaps.train.distributed import asked as asked_for_processes
from torchcaps.train.distributed import end_with_parent, joined
from torchcaps.train.engine import resume, train
from torchcaps.train.log import say
from torchcaps.train.plan import check_trainable

PLACE = ("device", "devices", "nodes", "strategy")  # options of where a run is trained, which may change


@dataclass(frozen=True)
class Outcome:
    """The result of a finished run on the test part.

    score: accuracy, or the mean F1 if examples have any number of labels; `measure` says which. novel: the same for
    viewpoints that are not in the training part. validation: the accuracy of the weights that were kept. memory: the
    peak memory of training in bytes, if it ran in its own process.
    """

    score: float
    count: int
    parameters: int
    epochs: int
    seconds: float
    novel: float | None = None
    novel_count: int = 0
    validation: float | None = None
    memory: int | None = None
    measure: str = "accuracy"


def refuse_folds(command: str, config: TrainConfig) -> None:
    """Raise an `InputError` if the config has folds, for commands that train several runs themselves."""
    if config.folds is not None or config.fold is not None:
        raise input_error(command, "no --folds: seeds and variants are its runs", "some", "Drop --folds and --fold.")


@contextmanager
def begin_trials(
    folder: Path, config: TrainConfig, asked: dict[str, Any], what: str, trials: Iterable[TrainConfig]
) -> Iterator[None]:
    """Record the request, or raise an `InputError` if the folder has another one; an error leaves no files.

    The folder is locked meanwhile. trials: the configs to train; all are checked before the first begins.
    """
    if joined() or (config.nodes or 1) > 1:
        raise input_error(what, "one machine, and --devices N for N processes", "several", "Train each run by itself.")
    if (folder / "config.json").exists():
        raise input_error(str(folder), f"a folder of {what}", "one that holds a single run", "Choose another --out.")
    data = config.data if config.data in DATASETS else str(Path(config.data).expanduser().resolve())
    free = dict.fromkeys(("out", "data_dir", *PLACE))
    options = dataclasses.asdict(config) | {"data": data} | free | asked
    now = json.loads(json.dumps(options, default=str))
    path = inside(folder, f"{what}.json")
    if path.exists():
        _check_same(path, now, what)
    else:
        check_empty(folder)
        check_trainable(trials)
    with locked(folder):
        if not path.exists():
            atomic_write(path, as_json(now))
        say(f"To go on after an interruption, call the same command with --out {folder}", error=True)
        try:
            yield
        except InputError:
            _forget(folder, what)
            raise


def _check_same(path: Path, now: dict[str, Any], what: str) -> None:
    try:
        before = json.loads(read_text(path))
        changed = [name for name, value in now.items() if before[name] != value]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise input_error(
            str(path), f"the options of these {what}", "something else", "Choose another --out."
        ) from None
    if changed:
        got = f"another --{changed[0].replace('_', '-')}"
        raise input_error(str(path.parent), f"the options that the {what} began with", got, "Choose another --out.")


def _forget(folder: Path, what: str) -> None:
    """Remove the files of this group, and its folder, if nothing was trained."""
    ours = {f"{what}.json", LOCK}
    if set(os.listdir(folder)) <= ours:
        for name in ours:
            (folder / name).unlink(missing_ok=True)
        with suppress(OSError):  # a link to a folder
            folder.rmdir()


def run_trial(config: TrainConfig, place: Path, *, apart: bool = False) -> Outcome:
    """The outcome of a run in this folder, which is trained (or resumed) and tested first if necessary.

    apart: train in a separate process, to measure its memory.
    """
    path = inside(place, "outcome.json")
    if path.exists():
        return read_fields(Outcome, path, "the outcome of a run")
    config = dataclasses.replace(config, out=place)
    memory = _train_apart(config) if apart else None
    run = Run.open(place) if apart else _trained(config)
    outcome = dataclasses.replace(_tested(run), memory=memory)
    atomic_write(path, as_json(dataclasses.asdict(outcome)))
    return outcome


def _trained(config: TrainConfig) -> Run:
    assert config.out is not None
    return resume(config.out) if (config.out / "config.json").exists() else train(config)


def _tested(run: Run) -> Outcome:
    model, parts = run.load_model(), run.load_parts()
    found = evaluate(model, parts.test)
    rows = run.rows()
    return Outcome(
        _score(found),
        found.count,
        sum(parameter.numel() for parameter in model.parameters()),
        len(rows),
        sum(float(row["seconds"]) for row in rows),
        None if parts.novel is None else _score(evaluate(model, parts.novel)),
        0 if parts.novel is None else len(parts.novel),
        evaluate(model, parts.validation).accuracy if len(parts.validation) else None,
        measure="mean F1" if found.many else "accuracy",
    )


def _score(found: Evaluation) -> float:
    return found.scores()["f1_samples"] if found.many else found.accuracy


def _train_apart(config: TrainConfig) -> int | None:
    """Train in another process, and return its peak memory in bytes."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, config, torch.get_num_threads()))
    process.start()
    theirs.close()
    try:
        memory, refusal = ours.recv()
    except EOFError:
        memory, refusal = None, None
    process.join()
    if refusal is not None:
        raise InputError(refusal)
    if process.exitcode:
        got = f"exit code {process.exitcode}"
        raise input_error(str(config.out), "a run that ends", got, "Call the same command with --out to go on.")
    return memory


def _work(pipe: Any, config: TrainConfig, threads: int) -> None:
    torch.set_num_threads(threads)
    end_with_parent()
    warnings.showwarning = lambda message, *more: print(f"warning: {message}", file=sys.stderr)
    os.dup2(2, 1)  # progress is not part of a command's output
    try:
        import_again()
        _trained(config)
    except InputError as error:
        pipe.send((None, str(error)))
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    else:
        pipe.send((None if asked_for_processes(config) else highest_memory(), None))
