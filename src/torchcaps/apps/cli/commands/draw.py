"""The command that draws pictures to explain with, a function for each of them."""

from __future__ import annotations

from collections.abc import Callable

from torchcaps._core.extensions import Registry
from torchcaps.apps.cli.commands.draw_clusters import draw_clusters, draw_membership
from torchcaps.apps.cli.commands.draw_diagrams import draw_text_model, draw_viewpoints, draw_weights
from torchcaps.apps.cli.commands.draw_runs import draw_agreement, draw_convergence, draw_split

# Each picture: how it is drawn, and what it shows.
_OWN: dict[str, tuple[Callable[[list[str]], None], str]] = {
    "clusters": (draw_clusters, "a routing at work on points in the plane, iteration by iteration; --gif moves"),
    "membership": (draw_membership, "how much of each point belongs to whom: fuzzy clusters"),
    "convergence": (draw_convergence, "of a run: how far votes are from the mean of each class, in every iteration"),
    "agreement": (draw_agreement, "of a run: votes for two classes as arrows, one child marked"),
    "split": (draw_split, "of a run: a child split among its parents, and a parent that receives"),
    "weights": (draw_weights, "full against shared weights, with the numbers of real layers"),
    "text-model": (draw_text_model, "a text model layer by layer, with the shapes of a real text"),
    "viewpoints": (draw_viewpoints, "one thing from all sides, and which views are new"),
}
DRAWINGS: Registry[tuple[Callable[[list[str]], None], str]] = Registry("torchcaps.drawings", _OWN)


def draw_command(words: list[str]) -> None:
    if not words or words[0] in ("-h", "--help"):
        print(_help(), end="")
        return
    drawing = DRAWINGS.get(words[0])
    if drawing is None:
        from torchcaps._core.errors import input_error

        raise input_error("torchcaps draw", ", ".join(DRAWINGS), repr(words[0]), "Try torchcaps draw --help.")
    drawing[0](words[1:])


def _help() -> str:
    lines = "\n".join(f"  {name:<12} {what}" for name, (_, what) in DRAWINGS.items())
    examples = """\
  torchcaps draw clusters --routing gaussian,covariance=full --beside kmeans --points ellipses --iterations 10 --gif
  torchcaps draw convergence --run runs/toys --example 3
  torchcaps draw viewpoints toys --kind car"""
    return f"""\
usage: torchcaps draw WHAT ...

Draw a picture that explains, from the numbers of real routings and networks.

{lines}

examples:
{examples}

torchcaps draw WHAT --help tells more.
"""
