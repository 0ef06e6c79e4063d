"""The command line. Heavy modules are imported inside the commands, so that help answers at once."""

from __future__ import annotations

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

examples:
  torchcaps train                                    5,000 digits that come along, a few minutes
  torchcaps train photos/ --size 32 --out runs/mine  your pictures, one subfolder for each class
  torchcaps evaluate runs/mine
  torchcaps predict runs/mine new.png more/ --json
  torchcaps train digits --model capsnet --routing em --iterations 2

torchcaps COMMAND --help tells more.
"""
Config = TypeVar("Config")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 if all went well, 2 after a mistake in what was given, 130 after Ctrl-C."""
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
        print("stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output went away
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _parse(kind: type[Config], words: list[str], command: str, examples: str, default: Config | None = None) -> Config:
    import tyro

    description = f"{(kind.__doc__ or '').strip()}\n\nexamples:\n{examples}"
    parsed: Config = tyro.cli(  # type: ignore[assignment]  # a default of None means that there is none
        kind,
        args=words,
        prog=f"torchcaps {command}",
        description=description,
        default=default,
        config=(tyro.conf.OmitArgPrefixes,),
    )
    return parsed


def _train(words: list[str]) -> None:
    from torchcaps.config import Train, TrainConfig, load_config

    examples = """\
  torchcaps train                                    the digits that come along
  torchcaps train photos/ --size 32 --out runs/mine  your own pictures
  torchcaps train mnist --model capsnet --preset paper --epochs 2
  torchcaps train toys --model matrix-small --routing em --iterations 2
  torchcaps train --config runs/mine/config.json --seed 1 --out runs/other
  torchcaps train --resume runs/mine"""
    default = Train()
    if "--config" in words[:-1]:
        loaded = load_config(Path(words[words.index("--config") + 1]))
        default = Train(**{**_values(loaded, TrainConfig), "out": None})
    options = _parse(Train, words, "train", examples, default)
    from torchcaps.errors import complaint

    if options.resume is not None and replace(options, resume=None) != Train():
        raise complaint("train --resume", "no other options: a run goes on as it began", "some", "Drop them.")
    from torchcaps.train import resume, train

    try:
        run = train(TrainConfig(**_values(options, TrainConfig))) if options.resume is None else resume(options.resume)
    except KeyboardInterrupt:
        print("\nStopped. `torchcaps list runs` shows the run; `torchcaps train --resume RUN` goes on with it.")
        raise
    print(f"\nThe best weights are in {run.weights}. Next: torchcaps evaluate {run.folder}")


def _values(config: object, kind: type) -> dict[str, Any]:
    return {field.name: getattr(config, field.name) for field in fields(kind)}


def _evaluate(words: list[str]) -> None:
    from torchcaps.config import Evaluate

    examples = "  torchcaps evaluate runs/mine\n  torchcaps evaluate runs/translated --data affnist"
    options = _parse(Evaluate, words, "evaluate", examples)
    from torchcaps.evaluate import evaluate
    from torchcaps.runs import Run, parts_for

    run = Run.open(options.run)
    parts = parts_for(run, options.data, options.data_dir)
    wanted: dict[str, Any] = {options.part: getattr(parts, options.part)}
    if options.part == "test" and parts.novel is not None:
        wanted = {"familiar viewpoints": parts.test, "novel viewpoints": parts.novel}
    model = run.load_model()
    results = {name: evaluate(model, data) for name, data in wanted.items()}
    if options.json:
        print(json.dumps({name: _summary(result) for name, result in results.items()}, indent=2))
    else:
        for name, result in results.items():
            _show(f"{options.data or run.config.data}, {name}", result)
    folder = run.folder / "evaluation"
    folder.mkdir(exist_ok=True)
    (folder / "results.json").write_text(json.dumps({n: _summary(r) for n, r in results.items()}, indent=2) + "\n")
    if options.pictures:
        from torchcaps.plots import evaluation_pictures

        for path in evaluation_pictures(model, next(iter(wanted.values())), next(iter(results.values())), folder):
            print(f"picture: {path}", file=sys.stderr)


def _summary(result: Evaluation) -> dict[str, object]:
    return {
        "images": result.count,
        "accuracy": result.accuracy,
        "error": 1 - result.accuracy,
        "error_interval_95": list(result.error_interval),
        "classes": [
            dict(zip(("class", "images", "recall", "precision"), row, strict=True)) for row in result.per_class()
        ],
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
    from torchcaps.errors import complaint
    from torchcaps.predict import predict
    from torchcaps.runs import Run

    if not options.files:
        raise complaint("predict", "picture files or folders behind the run", "none", "Name at least one.")
    answers = predict(Run.open(options.run), options.files)
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


COMMANDS: dict[str, Callable[[list[str]], None]] = {
    "train": _train,
    "evaluate": _evaluate,
    "predict": _predict,
    "list": _list,
}
