"""torchcaps draw: figures that explain routing, with one function for each."""

from __future__ import annotations

from collections.abc import Callable

from torchcaps._core.extensions import Registry
from torchcaps.apps.cli.commands.draw_clusters import draw_clusters, draw_membership
from torchcaps.apps.cli.commands.draw_diagrams import draw_text_model, draw_viewpoints, draw_weights
from torchcaps.apps.cli.commands.draw_runs import draw_agreement, draw_convergence, draw_model, draw_split

# Each figure: its function, and its line of help.
_OWN: dict[str, tuple[Callable[[list[str]], None], str]] = {
    "clusters": (draw_clusters, "a routing on points in the plane, by iteration; --gif for an animation"),
    "membership": (draw_membership, "the couplings of each point after routing: fuzzy clusters"),
    "model": (draw_model, "of a run: a network stage by stage, with what each makes of an image"),
    "convergence": (draw_convergence, "of a run: distances of votes from the mean of each class, by iteration"),
    "agreement": (draw_agreement, "of a run: votes for two classes as arrows, one child marked"),
    "split": (draw_split, "of a run: one child divided among its parents, and one parent with its children"),
    "weights": (draw_weights, "full and shared weights, with their numbers of parameters"),
    "text-model": (draw_text_model, "a text model layer by layer, with its shapes for a text"),
    "viewpoints": (draw_viewpoints, "one object from all viewpoints, and which of them are novel"),
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

Draw a figure that explains routing, computed by routings and networks.

{lines}

examples:
{examples}

torchcaps draw WHAT --help lists the options.
"""
