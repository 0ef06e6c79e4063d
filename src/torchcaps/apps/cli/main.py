"""The command line. Commands import heavy modules inside functions, so that help is fast."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence

from torchcaps._core.arguments import on_command_line
from torchcaps._core.memory import bounded_memory, is_out_of_memory
from torchcaps._core.neutral import neutral_output
from torchcaps.apps.cli.commands import COMMANDS

HELP = """\
torchcaps: capsule networks for images and texts

usage: torchcaps COMMAND ...

train and use a network:
  train DATA       train a network and save it in a run folder
  evaluate RUN     test accuracy, precision and recall of each class, confusion matrix, mistakes
  predict RUN ...  classify pictures or texts
  report RUN       write an HTML report of a run
  export RUN       export a network to ONNX or torch.export

analyze a network:
  explain RUN ...  show which parts of a picture, or words of a text, decided
  health RUN       measure routing in a trained network, and the accuracy without parts of it
  attack RUN       accuracy under adversarial attacks
  jumble RUN       confidence on images whose parts are shuffled
  strange RUN      detection of out-of-distribution images and texts
  similar RUN ...  find similar texts
  compare DATA     train variants with several seeds and test whether they differ
  viewpoint DATA   train on some viewpoints, test on others, against a second network

more:
  draw WHAT        figures of routing, votes, weights and viewpoints
  studio [RUN]     interactive page in the browser: clustering, digits, routing trees
  list WHAT        list models, routings, datasets or runs
  bench            time layers and models against textbook implementations
  doctor           report compiler, GPU and threads, and which backends compute votes

examples:
  torchcaps train                                    5,000 built-in digits, a few minutes
  torchcaps train photos/ --size 32 --out runs/mine  your pictures, one subfolder for each class
  torchcaps train reviews.csv --text review --label stars --out runs/stars
  torchcaps evaluate runs/mine
  torchcaps predict runs/mine new.png more/ --json
  torchcaps explain runs/stars "not as good as the first one"
  torchcaps compare mnist-5k --vary routing=dynamic,em,uniform

torchcaps COMMAND --help lists the options. Every command accepts --import FILE.py, a file that registers your own
routings, models, data sets or commands. The file is executed. Commands on a run that was trained with --import need the
option again: files named by a run are never imported automatically. --import also allows an encoder that may run code,
a .pt2 file or MODULE:FUNCTION.
"""

# Options that reduce the memory of a command.
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
    """Run a command. Exit codes: 0 success, 2 invalid input, 130 Ctrl-C, 141 output closed by its reader."""
    with neutral_output(), bounded_memory(), on_command_line():
        return _main(arguments)


def _imported(words: list[str]) -> list[str]:
    """Import the files of --import FILE, and return the remaining words."""
    from torchcaps._core.errors import input_error
    from torchcaps._core.extensions import import_named

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
        import_named(file)
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
    """Help on commands that are registered by other packages or imported files."""
    names = [name for name in COMMANDS if f"\n  {name} " not in HELP]
    lines = [f"  {name:<16} {((COMMANDS[name].__doc__ or '').strip().splitlines() or [''])[0]}\n" for name in names]
    return "\nextensions:\n" + "".join(lines) if lines else ""


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
    except BrokenPipeError:  # the reader of our output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (MemoryError, RuntimeError, OSError) as error:
        if is_out_of_memory(error):
            got = f"expected enough memory, got none left. {LOWER.get(words[0], LOWER[''])}."
            print(f"torchcaps {words[0]}: {got}", file=sys.stderr)
            return 2
        if not isinstance(error, OSError):
            raise
        what = f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else "")
        print(f"torchcaps {words[0]}: {what}. Check the path, its permissions and the free space.", file=sys.stderr)
        return 2
    return 0
