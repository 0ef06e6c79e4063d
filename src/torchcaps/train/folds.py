"""Cross-validation: a run for each fold, each with another part of the data for the test, and their mean."""

from __future__ import annotations

import dataclasses
import json
import statistics

from torchcaps.config import TrainConfig, filled
from torchcaps.errors import InputError
from torchcaps.fields import write_whole
from torchcaps.runs import next_folder
from torchcaps.train.trials import begin_trials, forget_trials, run_trial


def train_folds(config: TrainConfig) -> str:
    """Train and test every fold, and say how it went. Folds that are done already are not trained again.

    The folder holds a run for each fold, fold-1, fold-2, ..., and results.json.
    """
    count = filled(config.folds)
    folder = config.out or next_folder(dataclasses.replace(config, model=config.model or "data"))
    begin_trials(folder, config, {}, "folds", [dataclasses.replace(config, fold=1)])
    results: dict[str, float] = {}
    measure = "accuracy"
    for number in range(1, count + 1):
        place = folder / f"fold-{number}"
        print(f"fold {number} of {count}: {place}", flush=True)
        try:
            outcome = run_trial(dataclasses.replace(config, fold=number), place)
        except InputError:
            forget_trials(folder, "folds")
            raise
        results[place.name], measure = outcome.score, outcome.measure
        print(f"fold {number} of {count}: {measure} {outcome.score:.2%}", flush=True)
    mean, spread = statistics.mean(results.values()), statistics.stdev(results.values())
    write_whole(
        folder / "results.json",
        json.dumps({"measure": measure, "mean": mean, "deviation": spread, **results}, indent=2),
    )
    return f"\nmean of {count} folds: {measure} {mean:.2%}, standard deviation {spread:.2%} ({folder / 'results.json'})"
