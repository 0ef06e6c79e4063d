"""Cross-validation: a run for each fold, each with another part of the data for the test, and their mean."""

from __future__ import annotations

import dataclasses
import json
import statistics
from pathlib import Path

from torchcaps.config import TrainConfig, filled
from torchcaps.errors import complaint
from torchcaps.evaluate import evaluate
from torchcaps.runs import Run, next_folder, write_whole
from torchcaps.train.engine import resume, train


def train_folds(config: TrainConfig) -> str:
    """Train and test every fold, and say how it went. Folds that are done already are not trained again.

    The folder holds a run for each fold, fold-1, fold-2, ..., and results.json.
    """
    count = filled(config.folds)
    named = dataclasses.replace(config, model=config.model or "data")
    folder = config.out or next_folder(named)
    if (folder / "config.json").exists():
        remedy = "Choose another --out."
        raise complaint(str(folder), "a folder of folds", "one that holds a single run", remedy)
    results: dict[str, float] = {}
    for number in range(1, count + 1):
        place = folder / f"fold-{number}"
        print(f"fold {number} of {count}: {place}", flush=True)
        result = _result(place)
        if result is None:
            run = _run(config, place, number)
            found = evaluate(run.load_model(), run.load_parts().test)
            result = found.scores()["f1_samples"] if found.many else found.accuracy
            write_whole(place / "fold.json", json.dumps({"result": result}))
        results[place.name] = result
        print(f"fold {number} of {count}: {result:.2%}", flush=True)
    mean, spread = statistics.mean(results.values()), statistics.stdev(results.values())
    write_whole(folder / "results.json", json.dumps({"mean": mean, "deviation": spread, **results}, indent=2))
    return f"\nmean of {count} folds {mean:.2%}, standard deviation {spread:.2%} ({folder / 'results.json'})"


def _run(config: TrainConfig, place: Path, number: int) -> Run:
    """The finished run of a fold: begun, or gone on with."""
    wanted = dataclasses.replace(config, out=place, fold=number)
    if not (place / "config.json").exists():
        return train(wanted)
    before = Run.open(place).config
    for name, value in vars(wanted).items():
        known = getattr(before, name)
        same = set(value) <= set(known) if name == "option" else value == known
        if value not in (None, (), False) and name not in ("data", "vectors") and not same:  # these became full paths
            got = f"another --{name.replace('_', '-')}"
            raise complaint(str(place), "the options that the folds began with", got, "Choose another --out.")
    return resume(place)


def _result(place: Path) -> float | None:
    try:
        return float(json.loads((place / "fold.json").read_text())["result"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        remedy = "Delete it to have the fold tested again."
        raise complaint(str(place / "fold.json"), "the result of a fold", "something else", remedy) from None
