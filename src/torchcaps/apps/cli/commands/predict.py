"""The command that classifies pictures and texts. Heavy modules are imported inside."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any

from torchcaps._core.fields import as_json
from torchcaps._core.neutral import shown
from torchcaps.apps.cli.commands.texts import shortened, texts_of
from torchcaps.apps.cli.parsing import parse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchcaps.analysis.predict import Prediction


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
    from torchcaps.analysis.predict import collect, picture_answers, text_answers
    from torchcaps.runs.run import Run

    if not options.inputs:
        raise input_error("predict", "files or texts behind the run", "none", "Name at least one.")
    device = choose_device("predict", options.device)
    run = Run.open(options.run)
    files = [Path(name) for name in options.inputs]
    found: Iterator[Any]
    if run.metadata.kind != "texts":
        found = picture_answers(run, files, device=device)
    else:
        found = text_answers(run, texts_of("predict", options, run), device=device)
    first = next(found)  # complaints come before anything is shown
    found = chain([first], found)
    if options.json:
        print("[")
        for number, answer in enumerate(found):
            print(",\n" if number else "", indent(as_json(_as_dict(answer, run.metadata.kind)), "  "), sep="", end="")
        print("\n]")
        return
    if run.metadata.kind == "texts":
        for answer in found:
            sure = ", ".join(f"{value:.2f}" for value in answer.confidence)
            print(f"{shown(', '.join(answer.labels)) or '-':<16}  {sure:<10}  {shortened(answer.source)}")
        return
    width = max(4, *(len(shown(name)) for name in collect(files)))
    print(f"{'file':<{width}}  {'class':<16}  confidence  reconstruction")
    for answer in found:
        fit = {True: "fits", False: "does not fit", None: "-"}[answer.fits]
        sure = ", ".join(f"{value:.2f}" for value in answer.confidence)
        print(f"{shown(answer.source):<{width}}  {shown(', '.join(answer.labels)):<16}  {sure:<10}  {fit}")


def _as_dict(answer: Prediction, kind: str) -> dict[str, object]:
    """An answer as JSON has it: a text, or a file and whether its reconstruction fits."""
    told = {"labels": answer.labels, "confidence": answer.confidence}
    return {"text": answer.source, **told} if kind == "texts" else {"file": answer.source, **told, "fits": answer.fits}
