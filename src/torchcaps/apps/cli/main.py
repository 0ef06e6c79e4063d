"""The command line. Heavy modules are imported inside the commands, so that help answers at once."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence

from torchcaps._core.memory import bounded_memory, is_out_of_memory
from torchcaps._core.neutral import neutral_output
from torchcaps.apps.cli.commands import COMMANDS

HELP = """\
torchcaps: capsule networks for images and texts

usage: torchcaps COMMAND ...

the main job:
  train DATA       train a network and keep it in a run folder
  evaluate RUN     accuracy on the test part, table of classes, confusion, pictures of mistakes
  predict RUN ...  classify pictures or texts
  report RUN       one page on a run, for the browser
  export RUN       one file for other tools: ONNX, or a program of torch.export

to look inside and to question a network:
  explain RUN ...  which parts of a picture, or words of a text, decided
  health RUN       what routing does in a trained network, and what is lost without it
  attack RUN       accuracy when pixels are changed to mislead a network
  jumble RUN       how sure a network is of images whose parts are shuffled
  strange RUN      whether a network notices images that it does not know
  similar RUN ...  which texts are alike
  compare DATA     train variants on equal terms: which differences are more than noise?
  viewpoint DATA   train on some viewpoints, test on new ones, beside another network

more:
  draw WHAT        pictures that explain: routing at work, votes, weights, viewpoints
  studio [RUN]     play in the browser: points to cluster, digits to draw, routing trees
  list WHAT        what there is: models, routings, datasets or runs
  bench            time layers and models against their textbook versions
  doctor           what this machine can do, and which backends make votes here

examples:
  torchcaps train                                    5,000 digits that come along, a few minutes
  torchcaps train photos/ --size 32 --out runs/mine  your pictures, one subfolder for each class
  torchcaps train reviews.csv --text review --label stars --out runs/stars
  torchcaps evaluate runs/mine
  torchcaps predict runs/mine new.png more/ --json
  torchcaps explain runs/stars "not as good as the first one"
  torchcaps compare mnist-5k --vary routing=dynamic,em,uniform

torchcaps COMMAND --help tells more. Every command takes --import FILE.py, a file of yours that enters routings, models,
data sets or commands; it is run, so that no command imports what a run names unless you say so again.
"""

# What takes memory in a command, and can be lowered.
LOWER = {
    "": "Close other programs, or lower TORCHCAPS_DATA_BYTES (data kept in memory) and TORCHCAPS_TILE_BYTES (votes)",
    "bench": "Time fewer cases, or use --no-memory",
    "health": "Lower --count, or use --no-ablate",
    **dict.fromkeys(
        ("train", "compare", "viewpoint"),
        "Lower --batch-size (and raise --accumulate as much), --size, or TORCHCAPS_DATA_BYTES (data kept in memory)",
    ),
    **dict.fromkeys(("attack", "jumble", "strange", "report"), "Lower --count"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 if all went well, 2 after a mistake in what was given, 130 after Ctrl-C, 141 if nobody reads."""
    with neutral_output(), bounded_memory():
        return _main(arguments)


def _imported(words: list[str]) -> list[str]:
    """The words of a command without --import FILE, and these files imported."""
    from torchcaps._core.errors import input_error
    from torchcaps._core.extensions import import_file

    rest, files = [], []
    given = iter(words)
    for word in given:
        name, equals, value = word.partition("=")
        if name != "--import":
            rest.append(word)
            continue
        file = value if equals else next(given, None)
        if not file:
            raise input_error("--import", "a file of Python (.py)", "none", "Give one.")
        files.append(file)
    for file in files:
        import_file(file)
    return rest


def _main(arguments: Sequence[str] | None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    warnings.showwarning = lambda message, *more: print(f"warning: {message}", file=sys.stderr)
    from torchcaps._core.errors import InputError

    try:
        return _run(_imported(words))
    except InputError as error:
        print(error, file=sys.stderr)
        return 2


def _others() -> str:
    """Help on commands that other packages, or files that were imported, have brought."""
    names = [name for name in COMMANDS if f"\n  {name} " not in HELP]
    lines = [f"  {name:<16} {((COMMANDS[name].__doc__ or '').strip().splitlines() or [''])[0]}\n" for name in names]
    return "\nof your own:\n" + "".join(lines) if lines else ""


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(HELP + _others(), end="")
        return 0
    if words[0] in ("-V", "--version"):
        from torchcaps import __version__

        print(f"torchcaps {__version__}")
        return 0
    command = COMMANDS.get(words[0])
    if command is None:
        print(f"torchcaps: expected {', '.join(COMMANDS)}, got {words[0]!r}. Try torchcaps --help.", file=sys.stderr)
        return 2
    try:
        command(words[1:])
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("torchcaps"):
            raise
        got = f"torchcaps {words[0]}: expected the package {error.name}, got no such module."
        extra = "studio" if words[0] == "studio" else "train"
        print(f"{got} Run: pip install 'torchcaps[{extra}]'.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our output went away
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (MemoryError, RuntimeError, OSError) as error:
        if is_out_of_memory(error):
            got = f"expected memory for this work, got none left. {LOWER.get(words[0], LOWER[''])}."
            print(f"torchcaps {words[0]}: {got}", file=sys.stderr)
            return 2
        if not isinstance(error, OSError):
            raise
        what = f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else "")
        print(f"torchcaps {words[0]}: {what}. Check the path, its rights and the room there.", file=sys.stderr)
        return 2
    return 0
