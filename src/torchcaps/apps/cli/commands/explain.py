"""torchcaps explain: for texts here, for pictures in `explain_images`. Heavy modules are imported inside."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from torchcaps._core.fields import as_json
from torchcaps._core.neutral import shown, terminal
from torchcaps.apps.cli.commands.texts import TextInputs, shortened, texts_of
from torchcaps.apps.cli.parsing import parse
from torchcaps.runs.config import Folder, Name


@dataclass(frozen=True)
class Explain(TextInputs):
    """Explain predictions: parts of a picture that decided, or words of a text for and against its class."""

    inputs: Annotated[Positional[tuple[str, ...]], arg(metavar="INPUT...", help_behavior_hint="")] = ()
    """Picture files and folders. For texts: the texts themselves, files of texts (tables, or a text in each line), or -
    for the lines of standard input."""
    top: int = 5
    """Number of parts, or of words for, words against and n-grams, for each class."""
    example: Annotated[int | None, arg(metavar="N", help_behavior_hint="")] = None
    """Images: an example of the test part instead of files, counted from 0."""
    label: Name = None
    """Images: the class to explain; default: the most active one."""
    grid: bool = False
    """Images: draw right predictions and mistakes of the test part; if images show two objects, segment them."""
    factors: bool = False
    """Images: correlate pose dimensions with shift, rotation, scale and thickness of changed test images."""
    data_dir: Folder = None
    """Folder of data sets by name."""
    html: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """Texts: write an HTML page with all texts, words shaded by their evidence."""


def explain_command(words: list[str]) -> None:
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
    if run.metadata.kind != "texts":
        from torchcaps.apps.cli.commands.explain_images import explain_images

        return explain_images(run, options)
    if options.example is not None or options.label is not None or options.grid or options.factors:
        flags = "--example, --label, --grid, --factors"
        raise input_error(flags, "a run on images", "one on texts", "Drop them.")
    from torchcaps._core.files import atomic_write
    from torchcaps.analysis.explain import colored, explain_texts, facts, html_page

    texts = [text for text, _ in texts_of("explain", options, run)]
    found = explain_texts(run, texts, top=options.top)
    if options.html is not None:
        options.html.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(options.html, html_page(found, options.top))
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
            for line in facts(one, options.top):
                print(f"  {shown(line)}")
            if one.ngrams:
                print(f"  n-grams with the strongest connection to {shown(one.label)}:")
            for ngram in one.ngrams:
                print(f"  {ngram.strength:>8.1%}  {shown(ngram.text)}")
        if not several:
            print(f"no class above a half: {shortened(text)}")
    return None
