"""What each command does. Heavy modules are imported inside, so that help answers at once."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchcaps.answers import explain_command, predict_command, similar_command
from torchcaps.parsing import parse

if TYPE_CHECKING:
    from torchcaps.evaluate import Evaluation


def _train(words: list[str]) -> None:
    from torchcaps.config import Train, TrainConfig, load_config

    examples = """\
  torchcaps train                                    the digits that come along
  torchcaps train photos/ --size 32 --out runs/mine  your own pictures
  torchcaps train mnist --model capsnet --preset paper --epochs 2
  torchcaps train toys --model matrix-small --routing em --iterations 2
  torchcaps train reviews.csv --text review --label stars --vectors glove.6B.50d.txt
  torchcaps train mr --model text-b --folds 10 --out runs/mr
  torchcaps train --config runs/mine/config.json --seed 1 --out runs/other
  torchcaps train --resume runs/mine"""
    options = parse(Train, words, "train", examples, Train())
    if options.config is not None:
        loaded = _values(load_config(options.config), TrainConfig)
        loaded |= {"out": None} | ({"label": ()} if options.label else {})
        options = parse(Train, words, "train", examples, Train(**loaded))
    from torchcaps.errors import complaint

    if options.resume is not None and replace(options, resume=None) != Train():
        raise complaint("train --resume", "no other options: a run goes on as it began", "some", "Drop them.")
    from torchcaps.train import resume, train, train_folds

    config = TrainConfig(**_values(options, TrainConfig))
    if config.folds is not None and config.fold is None and options.resume is None:
        print(train_folds(config))
        return
    run = train(config) if options.resume is None else resume(options.resume)
    print(f"\nThe best weights are in {run.weights}. Next: torchcaps evaluate {run.folder}")


def _values(config: object, kind: type) -> dict[str, Any]:
    return {field.name: getattr(config, field.name) for field in fields(kind)}


def _evaluate(words: list[str]) -> None:
    from torchcaps.config import Evaluate

    examples = """\
  torchcaps evaluate runs/mine
  torchcaps evaluate runs/translated --data affnist
  torchcaps evaluate runs/stars --floor"""
    options = parse(Evaluate, words, "evaluate", examples)
    from torchcaps.device import choose_device
    from torchcaps.errors import complaint
    from torchcaps.evaluate import evaluate
    from torchcaps.runs import Run, parts_for

    device = choose_device("evaluate", options.device)
    run = Run.open(options.run)
    parts = parts_for(run, options.data, options.data_dir)
    wanted: dict[str, Any] = {options.part: getattr(parts, options.part)}
    if options.part == "test" and parts.novel is not None:
        wanted = {"familiar viewpoints": parts.test, "novel viewpoints": parts.novel}
    empty = [name for name, data in wanted.items() if not len(data)]
    if empty:
        raise complaint("evaluate", f"examples in the {empty[0]} part", "none", "Choose another --part or --data.")
    if options.floor and (run.facts.vocabulary is None or options.data is not None):
        got = "one on images" if run.facts.vocabulary is None else "--data beside it"
        raise complaint("--floor", "a run on texts, and its own data", got, "Drop --floor.")
    model = run.load_model().to(device)
    results = {name: evaluate(model, data) for name, data in wanted.items()}
    source = options.data or run.config.data
    if options.floor:
        from torchcaps.floor import bag_of_words

        results["logistic regression"] = bag_of_words(parts.train, next(iter(wanted.values())))
    summary = {"data": source, **{name: _summary(result) for name, result in results.items()}}
    if options.json:
        print(json.dumps(summary, indent=2, allow_nan=False))
    else:
        for name, result in results.items():
            _show(f"{source}, {name}", result)
    folder = run.folder / "evaluation"
    if options.data is not None or options.part != "test":
        folder = folder / f"{Path(source).stem}-{options.part}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps(summary, indent=2, allow_nan=False) + "\n")
    if options.pictures:
        from torchcaps.plots import evaluation_pictures

        for path in evaluation_pictures(model, next(iter(wanted.values())), next(iter(results.values())), folder):
            print(f"picture: {path}", file=sys.stderr)


def _summary(result: Evaluation) -> dict[str, object]:
    rows = [[None if value != value else value for value in row] for row in result.per_class()]  # nan is no JSON
    return {
        "examples": result.count,
        "accuracy": result.accuracy,
        "error": 1 - result.accuracy,
        "error_interval_95": list(result.error_interval),
        **(result.scores() if result.many else {}),
        "classes": [dict(zip(("class", "examples", "recall", "precision"), row, strict=True)) for row in rows],
    }


def _show(title: str, result: Evaluation) -> None:
    low, high = result.error_interval
    exact = " (all classes of an example right)" if result.labels.shape[-1] > 1 else ""
    print(f"{title}: {result.count:,} examples")
    error = f"error {1 - result.accuracy:.2%} (95 % interval {low:.2%} to {high:.2%})"
    print(f"accuracy {result.accuracy:.2%}{exact}, {error}")
    if result.many:
        found = result.scores()
        for name, word in (
            ("samples", "mean over examples"),
            ("micro", "all decisions"),
            ("macro", "mean over classes"),
        ):
            parts = ", ".join(f"{what} {found[f'{what}_{name}']:.2%}" for what in ("precision", "recall", "f1"))
            print(f"{word}: {parts}")
    width = max(5, *(len(name) for name in result.classes))
    print(f"\n{'class':<{width}}  {'count':>7}  {'recall':>7}  {'precision':>9}")
    for name, count, recall, precision in result.per_class():
        print(f"{name:<{width}}  {count:>7,}  {recall:>7.2%}  {precision:>9.2%}")
    print()


def _list(words: list[str]) -> None:
    from torchcaps.config import List

    options = parse(List, words, "list", "  torchcaps list datasets\n  torchcaps list runs")
    from torchcaps.listing import rows_of

    rows = rows_of(options.what, options.folder)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))] if rows else []
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def _bench(words: list[str]) -> None:
    from torchcaps.config import Bench

    examples = "  torchcaps bench\n  torchcaps bench dense em-window --repeats 9 --json out/bench.json"
    options = parse(Bench, words, "bench", examples)
    from torchcaps.errors import check_choice, check_count

    check_count("bench", "repeats", options.repeats)
    import torch

    from torchcaps.bench import CASES, bench, growth

    for name in options.cases:
        check_choice("bench", "case", name, list(CASES))
    if options.threads is not None:
        check_count("bench", "threads", options.threads)
        torch.set_num_threads(options.threads)
    if options.growth is not None:
        print(f"picture: {growth(options.repeats, options.growth)}")
        return
    bench(options.cases, options.repeats, options.memory, options.json)


COMMANDS: dict[str, Callable[[list[str]], None]] = {
    "train": _train,
    "evaluate": _evaluate,
    "predict": predict_command,
    "explain": explain_command,
    "similar": similar_command,
    "list": _list,
    "bench": _bench,
}
