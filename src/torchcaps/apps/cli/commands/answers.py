"""The commands that answer: predict, explain, similar. Heavy modules are imported inside."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any

from torchcaps._core.fields import as_json
from torchcaps._core.neutral import shown, terminal
from torchcaps.apps.cli.parsing import parse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchcaps.apps.cli.options import TextInputs
    from torchcaps.runs.run import Run


def predict_command(words: list[str]) -> None:
    from torchcaps.apps.cli.options import Predict

    examples = """\
  torchcaps predict runs/mine new.png more/
  torchcaps predict runs/mine new.png --json
  torchcaps predict runs/stars "a film to fall in love with" more.csv
  cat new.txt | torchcaps predict runs/stars -"""
    options = parse(Predict, words, "predict", examples)
    from torchcaps._core.device import choose_device
    from torchcaps._core.errors import input_error
    from torchcaps.analysis.predict import answers, collect, text_answers
    from torchcaps.runs.run import Run

    if not options.inputs:
        raise input_error("predict", "files or texts behind the run", "none", "Name at least one.")
    device = choose_device("predict", options.device)
    run = Run.open(options.run)
    files = [Path(name) for name in options.inputs]
    found: Iterator[Any]
    if run.metadata.vocabulary is None:
        found = answers(run, files, device=device)
    else:
        found = text_answers(run, _texts("predict", options, run), device=device)
    first = next(found)  # complaints come before anything is shown
    found = chain([first], found)
    if options.json:
        print("[")
        for number, answer in enumerate(found):
            print(",\n" if number else "", indent(as_json(vars(answer)), "  "), sep="", end="")
        print("\n]")
        return
    if run.metadata.vocabulary is not None:
        for answer in found:
            sure = ", ".join(f"{value:.2f}" for value in answer.confidence)
            print(f"{shown(', '.join(answer.labels)) or '-':<16}  {sure:<10}  {_shortened(answer.text)}")
        return
    width = max(4, *(len(shown(name)) for name in collect(files)))
    print(f"{'file':<{width}}  {'class':<16}  confidence  reconstruction")
    for answer in found:
        fit = {True: "fits", False: "does not fit", None: "-"}[answer.fits]
        sure = ", ".join(f"{value:.2f}" for value in answer.confidence)
        print(f"{shown(answer.file):<{width}}  {shown(', '.join(answer.labels)):<16}  {sure:<10}  {fit}")


def _texts(command: str, options: TextInputs, run: Run) -> Iterator[str]:
    """The texts that a command was given."""
    from torchcaps.analysis.predict import collect_texts
    from torchcaps.runs.rundata import columns_of

    columns = columns_of(replace(run.config, text=options.text or run.config.text, encoding=options.encoding))
    return collect_texts(options.inputs, columns, sys.stdin, command)


def _run_on_texts(command: str, options: TextInputs) -> tuple[Run, list[str]]:
    """The run that a command was given, which must be on texts, and the texts."""
    from torchcaps._core.errors import input_error
    from torchcaps.runs.run import Run

    run = Run.open(options.run)
    if run.metadata.vocabulary is None:
        raise input_error(command, "a run on texts", "one on images", "Train on texts.")
    return run, list(_texts(command, options, run))


def _shortened(text: str, most: int = 90) -> str:
    """A text on one line that fits a terminal."""
    words = shown(" ".join(text.split()))
    return words if len(words) <= most else f"{words[: most - 3]}..."


def explain_command(words: list[str]) -> None:
    from torchcaps.apps.cli.options import Explain

    examples = """\
  torchcaps explain runs/mine new.png
  torchcaps explain runs/mine --example 0 --label 3
  torchcaps explain runs/mine --grid --factors
  torchcaps explain runs/stars "not as good as the first one"
  torchcaps explain runs/stars new.csv --html out/why.html --top 8"""
    options = parse(Explain, words, "explain", examples)
    from torchcaps._core.errors import check_count, input_error
    from torchcaps.runs.run import Run

    check_count("explain", "top", options.top)
    run = Run.open(options.run)
    if run.metadata.vocabulary is None:
        from torchcaps.apps.cli.commands.explain import explain_images

        return explain_images(run, options)
    if options.example is not None or options.label is not None or options.grid or options.factors:
        flags = "--example, --label, --grid, --factors"
        raise input_error(flags, "a run on images", "one on texts", "Drop them.")
    from torchcaps._core.files import atomic_write
    from torchcaps.analysis.explain import colored, explain_texts, html_page

    texts = list(_texts("explain", options, run))
    found = explain_texts(run, texts, top=options.top)
    if options.html is not None:
        options.html.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(options.html, html_page(found))
        print(f"page: {options.html}", file=sys.stderr)
    if options.json:
        print(as_json([[asdict(one) for one in several] for several in found]))
        return None
    paint = sys.stdout.isatty()
    for text, several in zip(texts, found, strict=True):
        for one in several:
            text_shown = colored(one) if paint else shown(one.text, lines=True)
            stream = terminal(sys.stdout) if paint else sys.stdout
            print(f"{shown(one.label)} ({one.confidence:.2f}): {text_shown}", file=stream)
            for ngram in one.ngrams:
                print(f"  {ngram.strength:>6.1%}  {shown(ngram.text)}")
        if not several:
            print(f"no class above a half: {_shortened(text)}")
    return None


def similar_command(words: list[str]) -> None:
    from torchcaps.apps.cli.options import Similar

    examples = """\
  torchcaps similar runs/news new.csv
  torchcaps similar runs/news "oil prices rise" archive.csv --top 1"""
    options = parse(Similar, words, "similar", examples)
    from torchcaps._core.errors import check_count, input_error
    from torchcaps.analysis.similar import likeness, text_poses

    check_count("similar", "top", options.top)
    run, texts = _run_on_texts("similar", options)
    if len(texts) < 2:
        raise input_error("similar", "at least two texts", len(texts), "Give more.")
    poses = text_poses(run, texts)
    alike = likeness(poses, poses).fill_diagonal_(-2)
    best = alike.topk(min(options.top, len(texts) - 1))
    if options.json:
        rows = [
            {
                "text": texts[row],
                "like": [{"text": texts[n], "likeness": round(v, 4)} for n, v in zip(*each, strict=True)],
            }
            for row, each in enumerate(zip(best.indices.tolist(), best.values.tolist(), strict=True))
        ]
        print(as_json(rows))
        return
    for text, places, values in zip(texts, best.indices.tolist(), best.values.tolist(), strict=True):
        print(_shortened(text))
        for place, value in zip(places, values, strict=True):
            print(f"  {value:>5.2f}  {_shortened(texts[place])}")
