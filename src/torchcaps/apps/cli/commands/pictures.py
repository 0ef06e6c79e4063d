"""The file of a picture, and the message about it. Heavy modules are imported inside."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol, TypeVar

from tyro.conf import arg

from torchcaps.apps.cli.parsing import parse

if TYPE_CHECKING:
    from matplotlib.figure import Figure


Picture = Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")]


class Drawing(Protocol):
    """The options of a figure that is written to a file."""

    @property
    def out(self) -> Path | None: ...


Options = TypeVar("Options", bound=Drawing)


def picture_place(out: Path | None, name: str) -> Path:
    """The file to write: the given one, if its type is right, or this name in the working folder."""
    from torchcaps._core.errors import input_error

    kinds = (".gif",) if name.endswith(".gif") else (".png", ".svg", ".pdf")
    if out is not None and out.suffix.lower() not in kinds:
        raise input_error("--out", f"a file name that ends in {', '.join(kinds)}", repr(str(out)), "Rename it.")
    return out or Path(name)


def parse_drawing(kind: type[Options], words: list[str], what: str, examples: str) -> tuple[Options, Path]:
    """The options of `torchcaps draw` for this figure, and the file to write, which is named after it by default."""
    options = parse(kind, words, f"draw {what}", examples)
    return options, picture_place(options.out, f"{what}.png")


def save_picture(figure: Figure, path: Path) -> None:
    from torchcaps.plots.style import save_figures

    (saved,) = save_figures({path.name: figure}, path.parent)
    tell_picture(saved)


def tell_picture(path: Path) -> None:
    print(f"picture: {path}", file=sys.stderr)
