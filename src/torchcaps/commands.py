"""What each command does. Heavy modules are imported inside, so that help answers at once."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from torchcaps.evaluate import Evaluation

Config = TypeVar("Config")


def _parse(kind: type[Config], words: list[str], command: str, examples: str, default: Config | None = None) -> Config:
    import tyro

    description = f"{(kind.__doc__ or '').strip()}\n\nexamples:\n{examples}"
    from torchcaps.errors import InputError

    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            parsed: Config = tyro.cli(  # type: ignore[assignment]  # a default of None means that there is none
                kind,
                args=words,
                prog=f"torchcaps {command}",
                description=description,
                default=default,
                config=(tyro.conf.OmitArgPrefixes,),
            )
    except SystemExit as stop:
        if not stop.code:  # help was shown
            raise
        reason = _unframed(said.getvalue())
        raise InputError(f"torchcaps {command}: {reason}. Try torchcaps {command} --help.") from None
    return parsed


def _unframed(text: str) -> str:
    """What tyro says in a frame of many lines, as one line, without its title and details."""
    lines = (line.strip("│╰╯─ ") for line in text.splitlines() if not line.startswith("╭"))
    words = " ".join(line for line in lines if line and "--help" not in line)
    for end in (". Got errors", "Argument helptext", "For full helptext"):
        words = words.partition(end)[0]
    return words.rstrip(" .")


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
    options = _parse(Train, words, "train", examples, Train())
    if options.config is not None:
        loaded = _values(load_config(options.config), TrainConfig)
        options = _parse(Train, words, "train", examples, Train(**{**loaded, "out": None}))
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
    options = _parse(Evaluate, words, "evaluate", examples)
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
    if options.floor and run.facts.vocabulary is None:
        raise complaint("--floor", "a run on texts", "one on images", "Drop --floor.")
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


def _predict(words: list[str]) -> None:
    from torchcaps.config import Predict

    examples = """\
  torchcaps predict runs/mine new.png more/
  torchcaps predict runs/mine new.png --json
  torchcaps predict runs/stars "a film to fall in love with" more.csv
  cat new.txt | torchcaps predict runs/stars -"""
    options = _parse(Predict, words, "predict", examples)
    from torchcaps.device import choose_device
    from torchcaps.errors import complaint
    from torchcaps.predict import collect_texts, predict, predict_texts
    from torchcaps.rundata import columns_of
    from torchcaps.runs import Run

    if not options.inputs:
        raise complaint("predict", "files or texts behind the run", "none", "Name at least one.")
    device = choose_device("predict", options.device)
    run = Run.open(options.run)
    answers: list[Any]
    if run.facts.vocabulary is None:
        answers = list(predict(run, [Path(name) for name in options.inputs], device=device))
    else:
        columns = columns_of(replace(run.config, text=options.text or run.config.text))
        answers = list(predict_texts(run, collect_texts(options.inputs, columns, sys.stdin), device=device))
    if options.json:
        print(json.dumps([vars(answer) for answer in answers], indent=2))
        return
    if run.facts.vocabulary is not None:
        for answer in answers:
            sure = ", ".join(f"{value:.2f}" for value in answer.confidence)
            print(f"{', '.join(answer.labels) or '-':<16}  {sure:<10}  {_shortened(answer.text)}")
        return
    width = max(4, *(len(answer.file) for answer in answers))
    print(f"{'file':<{width}}  {'class':<16}  confidence  reconstruction")
    for answer in answers:
        fit = {True: "fits", False: "does not fit", None: "-"}[answer.fits]
        sure = ", ".join(f"{value:.2f}" for value in answer.confidence)
        print(f"{answer.file:<{width}}  {', '.join(answer.labels):<16}  {sure:<10}  {fit}")


def _shortened(text: str, most: int = 90) -> str:
    """A text on one line that fits a terminal."""
    words = " ".join(text.split())
    return words if len(words) <= most else f"{words[: most - 3]}..."


def _explain(words: list[str]) -> None:
    from torchcaps.config import Explain

    examples = """\
  torchcaps explain runs/stars "not as good as the first one"
  torchcaps explain runs/stars new.csv --html out/why.html --top 8"""
    options = _parse(Explain, words, "explain", examples)
    from torchcaps.errors import check_count, complaint
    from torchcaps.explain import coloured, explain_texts, html_page
    from torchcaps.predict import collect_texts
    from torchcaps.rundata import columns_of
    from torchcaps.runs import Run

    check_count("explain", "top", options.top)
    run = Run.open(options.run)
    if run.facts.vocabulary is None:
        raise complaint("explain", "a run on texts", "one on images", "Train on texts.")
    columns = columns_of(replace(run.config, text=options.text or run.config.text))
    texts = collect_texts(options.inputs, columns, sys.stdin)
    found = explain_texts(run, texts, top=options.top)
    if options.html is not None:
        options.html.parent.mkdir(parents=True, exist_ok=True)
        options.html.write_text(html_page(found), encoding="utf-8")
        print(f"page: {options.html}", file=sys.stderr)
    if options.json:
        print(json.dumps([[asdict(one) for one in several] for several in found], indent=2))
        return
    paint = sys.stdout.isatty()
    for text, several in zip(texts, found, strict=True):
        for one in several:
            print(f"{one.label} ({one.confidence:.2f}): {coloured(one) if paint else one.text}")
            for ngram in one.ngrams:
                print(f"  {ngram.strength:>6.1%}  {ngram.text}")
        if not several:
            print(f"no class above a half: {_shortened(text)}")


def _list(words: list[str]) -> None:
    from torchcaps.config import List

    options = _parse(List, words, "list", "  torchcaps list datasets\n  torchcaps list runs")
    from torchcaps.listing import rows_of

    rows = rows_of(options.what, options.folder)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))] if rows else []
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def _bench(words: list[str]) -> None:
    from torchcaps.config import Bench

    examples = "  torchcaps bench\n  torchcaps bench dense em-window --repeats 9 --json out/bench.json"
    options = _parse(Bench, words, "bench", examples)
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
    "predict": _predict,
    "explain": _explain,
    "list": _list,
    "bench": _bench,
}
