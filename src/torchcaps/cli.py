"""The command line. Heavy modules are imported inside the commands, so that help answers at once."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from torchcaps.evaluate import Evaluation

HELP = """\
torchcaps: capsule networks for images

usage: torchcaps COMMAND ...

  train DATA       train a network and keep it in a run folder
  evaluate RUN     accuracy on the test part, table of classes, confusion, pictures of mistakes
  predict RUN ...  classify picture files
  list WHAT        what there is: models, routings, datasets or runs
  bench            time layers and models against their textbook versions

examples:
  torchcaps train                                    5,000 digits that come along, a few minutes
  torchcaps train photos/ --size 32 --out runs/mine  your pictures, one subfolder for each class
  torchcaps evaluate runs/mine
  torchcaps predict runs/mine new.png more/ --json
  torchcaps train mnist-5k --model capsnet --routing em --iterations 2

torchcaps COMMAND --help tells more.
"""
Config = TypeVar("Config")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 if all went well, 2 after a mistake in what was given, 130 after Ctrl-C, 141 if nobody reads."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help", "help"):
        print(HELP, end="")
        return 0
    if words[0] in ("-V", "--version"):
        from torchcaps import __version__

        print(f"torchcaps {__version__}")
        return 0
    command = COMMANDS.get(words[0])
    if command is None:
        print(f"torchcaps: expected {', '.join(COMMANDS)}, got {words[0]!r}. Try torchcaps --help.", file=sys.stderr)
        return 2
    warnings.showwarning = lambda message, *more: print(f"warning: {message}", file=sys.stderr)
    from torchcaps.errors import InputError

    try:
        command(words[1:])
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("torchcaps"):
            raise
        got = f"torchcaps {words[0]}: expected the package {error.name}, got no such module."
        print(f"{got} Run: pip install 'torchcaps[train]'.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our output went away
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        what = f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else "")
        print(f"torchcaps {words[0]}: {what}. Check the path and its rights.", file=sys.stderr)
        return 2
    return 0


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
  torchcaps train --config runs/mine/config.json --seed 1 --out runs/other
  torchcaps train --resume runs/mine"""
    options = _parse(Train, words, "train", examples, Train())
    if options.config is not None:
        loaded = _values(load_config(options.config), TrainConfig)
        options = _parse(Train, words, "train", examples, Train(**{**loaded, "out": None}))
    from torchcaps.errors import complaint

    if options.resume is not None and replace(options, resume=None) != Train():
        raise complaint("train --resume", "no other options: a run goes on as it began", "some", "Drop them.")
    from torchcaps.train import resume, train

    run = train(TrainConfig(**_values(options, TrainConfig))) if options.resume is None else resume(options.resume)
    print(f"\nThe best weights are in {run.weights}. Next: torchcaps evaluate {run.folder}")


def _values(config: object, kind: type) -> dict[str, Any]:
    return {field.name: getattr(config, field.name) for field in fields(kind)}


def _evaluate(words: list[str]) -> None:
    from torchcaps.config import Evaluate

    examples = "  torchcaps evaluate runs/mine\n  torchcaps evaluate runs/translated --data affnist"
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
        raise complaint("evaluate", f"images in the {empty[0]} part", "none", "Choose another --part or --data.")
    model = run.load_model().to(device)
    results = {name: evaluate(model, data) for name, data in wanted.items()}
    source = options.data or run.config.data
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
        "images": result.count,
        "accuracy": result.accuracy,
        "error": 1 - result.accuracy,
        "error_interval_95": list(result.error_interval),
        "classes": [dict(zip(("class", "images", "recall", "precision"), row, strict=True)) for row in rows],
    }


def _show(title: str, result: Evaluation) -> None:
    low, high = result.error_interval
    exact = " (all classes of an image right)" if result.labels.shape[-1] > 1 else ""
    print(f"{title}: {result.count:,} images")
    error = f"error {1 - result.accuracy:.2%} (95 % interval {low:.2%} to {high:.2%})"
    print(f"accuracy {result.accuracy:.2%}{exact}, {error}")
    width = max(5, *(len(name) for name in result.classes))
    print(f"\n{'class':<{width}}  {'images':>7}  {'recall':>7}  {'precision':>9}")
    for name, count, recall, precision in result.per_class():
        print(f"{name:<{width}}  {count:>7,}  {recall:>7.2%}  {precision:>9.2%}")
    print()


def _predict(words: list[str]) -> None:
    from torchcaps.config import Predict

    options = _parse(
        Predict,
        words,
        "predict",
        "  torchcaps predict runs/mine new.png more/\n  torchcaps predict runs/mine new.png --json",
    )
    from torchcaps.device import choose_device
    from torchcaps.errors import complaint
    from torchcaps.predict import predict
    from torchcaps.runs import Run

    if not options.files:
        raise complaint("predict", "picture files or folders behind the run", "none", "Name at least one.")
    device = choose_device("predict", options.device)
    answers = predict(Run.open(options.run), options.files, device=device)
    if options.json:
        print(json.dumps([vars(answer) for answer in answers], indent=2))
        return
    width = max(4, *(len(answer.file) for answer in answers))
    print(f"{'file':<{width}}  {'class':<16}  confidence  reconstruction")
    for answer in answers:
        fit = {True: "fits", False: "does not fit", None: "-"}[answer.fits]
        sure = ", ".join(f"{value:.2f}" for value in answer.confidence)
        print(f"{answer.file:<{width}}  {', '.join(answer.labels):<16}  {sure:<10}  {fit}")


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
    "list": _list,
    "bench": _bench,
}
