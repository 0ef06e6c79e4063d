"""Cross-validation: a run for each fold, each with another part of the data for the test, and their mean."""

from __future__ import annotations

import dataclasses
import json
import statistics
from pathlib import Path

from torchcaps.config import TrainConfig, filled
from torchcaps.data import DATASETS
from torchcaps.errors import complaint
from torchcaps.evaluate import evaluate
from torchcaps.runs import next_folder, write_whole
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
    _check_same(config, folder / "folds.json")
    results: dict[str, float] = {}
    for number in range(1, count + 1):
        place = folder / f"fold-{number}"
        print(f"fold {number} of {count}: {place}", flush=True)
        result = _result(place)
        if result is None:
            begun = (place / "config.json").exists()
            run = resume(place) if begun else train(dataclasses.replace(config, out=place, fold=number))
            found = evaluate(run.load_model(), run.load_parts().test)
            result = found.scores()["f1_samples"] if found.many else found.accuracy
            write_whole(place / "fold.json", json.dumps({"result": result}))
        results[place.name] = result
        print(f"fold {number} of {count}: {result:.2%}", flush=True)
    mean, spread = statistics.mean(results.values()), statistics.stdev(results.values())
    write_whole(folder / "results.json", json.dumps({"mean": mean, "deviation": spread, **results}, indent=2))
    return f"\nmean of {count} folds {mean:.2%}, standard deviation {spread:.2%} ({folder / 'results.json'})"


def _check_same(config: TrainConfig, path: Path) -> None:
    """Folds are of one experiment: write down what was asked for at first, and refuse anything else later."""
    asked = {**dataclasses.asdict(config), "out": None, "data_dir": None, "device": None}
    if config.data not in DATASETS:
        asked["data"] = str(Path(config.data).expanduser().resolve())
    now = json.loads(json.dumps(asked, default=str))
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(now, indent=2))
        return
    try:
        before = json.loads(path.read_text())
        changed = [name for name, value in now.items() if before[name] != value]
    except (ValueError, KeyError, TypeError):
        raise complaint(str(path), "the options of these folds", "something else", "Choose another --out.") from None
    if changed:
        got = f"another --{changed[0].replace('_', '-')}"
        raise complaint(str(path.parent), "the options that the folds began with", got, "Choose another --out.")


def _result(place: Path) -> float | None:
    try:
        return float(json.loads((place / "fold.json").read_text())["result"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        remedy = "Delete it to have the fold tested again."
        raise complaint(str(place / "fold.json"), "the result of a fold", "something else", remedy) from None
