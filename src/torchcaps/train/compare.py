"""The same training with one or more options varied, over several seeds."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args, get_type_hints

from torchcaps._core.errors import check_count, input_error
from torchcaps._core.fields import as_json
from torchcaps._core.files import atomic_write, inside
from torchcaps.analysis.comparison import Comparison, Variant
from torchcaps.data import make_parts
from torchcaps.runs.config import TrainConfig, required
from torchcaps.runs.recipes import check_given, data_facts, resolve
from torchcaps.runs.rundata import limit, read_data
from torchcaps.runs.runfolders import next_folder
from torchcaps.train.log import say
from torchcaps.train.trials import PLACE, Outcome, begin_trials, refuse_folds, run_trial

FIXED = ("data", "out", "seed", "data_dir", "folds", "fold", "option", "label", *PLACE)


def parse_vary(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Parse NAME=VALUE,VALUE,... as names with their values; commas within brackets do not separate."""
    varied: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, equals, rest = text.partition("=")
        name = name.strip().replace("-", "_")
        values = tuple(value.strip() for value in re.split(r",(?![^\[]*\])", rest))
        if not (equals and name and all(values)) or len(set(values)) < 2:
            raise input_error("--vary", "NAME=VALUE,VALUE,...", repr(text), "Write it like --vary routing=dynamic,em.")
        if name in varied or name in FIXED:
            got = f"{name} twice" if name in varied else name
            raise input_error("--vary", "an option of training or of the model", got, "Vary another one.")
        varied[name] = values
    if not varied:
        raise input_error("compare", "something to vary", "nothing", "Write it like --vary routing=dynamic,em.")
    return varied


def varied_config(config: TrainConfig, values: dict[str, str]) -> TrainConfig:
    """The config with these values: of its fields, or otherwise as options of the model."""
    hints = get_type_hints(TrainConfig)
    fields = {name: _read(name, hints[name], text) for name, text in values.items() if name in hints}
    more = tuple(f"{name}={text}" for name, text in values.items() if name not in hints)
    kept = tuple(text for text in config.option if text.partition("=")[0] not in values)
    return dataclasses.replace(config, option=kept + more, **fields)


def _read(name: str, hint: Any, text: str) -> Any:
    """Convert a value to the type of a field of the config."""
    kinds = (hint, *get_args(hint))
    try:
        for kind in (int, float):
            if kind in kinds:
                return kind(text)
        if bool in kinds:
            return {"true": True, "false": False}[text.lower()]
    except (ValueError, KeyError):
        raise input_error("--vary", f"values for {name}", repr(text), "Give numbers, or true and false.") from None
    return text


def compare(config: TrainConfig, vary: Sequence[str], seeds: int) -> tuple[Comparison, Path]:
    """Train every variant with every seed, and report the results. Finished runs are not trained again."""
    check_count("compare", "seeds", seeds)
    refuse_folds("compare", config)
    varied = parse_vary(vary)
    configs = {
        values: varied_config(config, dict(zip(varied, values, strict=True)))
        for values in itertools.product(*varied.values())
    }
    for each in configs.values():
        check_given(each)
    configs = _equal_budget(configs)
    folder = config.out or next_folder(dataclasses.replace(config, model="compare", routing=None))
    outcomes: dict[tuple[str, ...], list[Outcome]] = {values: [] for values in configs}
    total = len(configs) * seeds
    with begin_trials(folder, config, {"vary": varied, "seeds": seeds}, "compare", configs.values()):
        for number, (seed, values) in enumerate(itertools.product(range(seeds), configs), 1):
            name = "_".join(f"{word}-{value}" for word, value in zip(varied, values, strict=True))
            place = inside(folder, re.sub(r"[^\w.=+-]", "_", name), f"seed-{config.seed + seed}")
            say(f"\n{number} of {total}: {place}", error=True)
            trial = dataclasses.replace(configs[values], seed=config.seed + seed)
            outcomes[values].append(run_trial(trial, place, apart=True))
            say(f"{number} of {total}: {outcomes[values][-1].score:.2%}", error=True)
        variants = tuple(_variant(values, some) for values, some in outcomes.items())
        found = Comparison(tuple(varied), variants, next(iter(outcomes.values()))[0].measure)
        summary = {
            "names": found.names,
            "measure": found.measure,
            "variants": [_summary(found, variant) for variant in found.variants],
        }
        atomic_write(inside(folder, "results.json"), as_json(summary))
    return found, folder


def _summary(found: Comparison, variant: Variant) -> dict[str, Any]:
    """A variant as plain values, with its difference from the reference in percentage points."""
    difference = found.difference(variant)
    known = None if difference is None or math.isinf(difference.high) else [difference.low, difference.high]
    mean = None if difference is None else difference.mean
    verdict = found.verdict(variant)
    return {**dataclasses.asdict(variant), "difference": mean, "difference_interval_95": known, "verdict": verdict}


def _equal_budget(configs: dict[tuple[str, ...], TrainConfig]) -> dict[tuple[str, ...], TrainConfig]:
    """If models are compared, all get the epochs of the first one, unless epochs are given."""
    first = next(iter(configs.values()))
    if first.epochs is not None or len({config.model for config in configs.values()}) == 1:
        return configs
    data = read_data(first)
    fair = {}
    for values, config in configs.items():
        parts = limit(make_parts(data, validation=config.validation, test=config.test, seed=config.seed), config)
        asked = dataclasses.replace(config, model=first.model)
        epochs = required(resolve(asked, **data_facts(parts.train)).epochs)
        fair[values] = dataclasses.replace(config, epochs=epochs)
    return fair


def _variant(values: tuple[str, ...], outcomes: list[Outcome]) -> Variant:
    memory = [outcome.memory for outcome in outcomes if outcome.memory is not None]
    return Variant(
        values,
        tuple(outcome.score for outcome in outcomes),
        statistics.mean(outcome.parameters for outcome in outcomes),
        statistics.mean(outcome.seconds for outcome in outcomes),
        statistics.mean(memory) if memory else None,
        outcomes[0].count,
        tuple(outcome.novel for outcome in outcomes if outcome.novel is not None),
    )
