"""Cross-validation: a run for each fold, each with another test part, and their mean."""

from __future__ import annotations

import dataclasses
import statistics

from torchcaps._core.fields import as_json
from torchcaps._core.files import atomic_write, inside
from torchcaps.runs.config import TrainConfig, required
from torchcaps.runs.runfolders import next_folder
from torchcaps.train.log import say
from torchcaps.train.trials import begin_trials, run_trial


def train_folds(config: TrainConfig) -> str:
    """Train and test every fold, and report the results. Finished folds are not trained again.

    The folder holds a run for each fold, fold-1, fold-2, ..., and results.json.
    """
    count = required(config.folds)
    folder = config.out or next_folder(dataclasses.replace(config, model=config.model or "data"))
    results: dict[str, float] = {}
    measure = "accuracy"
    with begin_trials(folder, config, {}, "folds", [dataclasses.replace(config, fold=1)]):
        for number in range(1, count + 1):
            place = inside(folder, f"fold-{number}")
            say(f"fold {number} of {count}: {place}")
            outcome = run_trial(dataclasses.replace(config, fold=number), place)
            results[place.name], measure = outcome.score, outcome.measure
            say(f"fold {number} of {count}: {measure} {outcome.score:.2%}")
        mean, spread = statistics.mean(results.values()), statistics.stdev(results.values())
        atomic_write(
            inside(folder, "results.json"),
            as_json({"measure": measure, "mean": mean, "deviation": spread, **results}),
        )
    return f"\nmean of {count} folds: {measure} {mean:.2%}, standard deviation {spread:.2%} ({folder / 'results.json'})"
