"""The command that draws pictures to explain with. Heavy modules are imported inside."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchcaps.parsing import parse

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from torchcaps.analysis.clusters import ClusterTrace
    from torchcaps.analysis.points import PointSet


def draw_command(words: list[str]) -> None:
    if not words or words[0] in ("-h", "--help"):
        print(_help(), end="")
        return
    drawing = DRAWINGS.get(words[0])
    if drawing is None:
        from torchcaps.errors import complaint

        raise complaint("torchcaps draw", ", ".join(DRAWINGS), repr(words[0]), "Try torchcaps draw --help.")
    drawing[0](words[1:])


def _clusters(words: list[str]) -> None:
    from torchcaps.options import DrawClusters

    examples = """\
  torchcaps draw clusters --routing em --points blobs
  torchcaps draw clusters --routing gaussian,covariance=full --beside kmeans --points ellipses --iterations 10 --gif"""
    options = parse(DrawClusters, words, "draw clusters", examples)
    from torchcaps.analysis.points import make_points
    from torchcaps.plots.clusters import clusters_figure, save_clusters_gif, title_of

    place = _place(options.out, "clusters.gif" if options.gif else "clusters.png")
    drawn = make_points(options.points, options.seed)
    names = [name for name in (options.routing, options.beside) if name is not None]
    traces = [_trace(name, drawn, options) for name in names]
    if options.json:
        print(json.dumps([trace.as_dict() for trace in traces], indent=2))
    else:
        for trace in traces:
            _show_trace(title_of(trace), trace, drawn)
    if options.gif:
        _tell(save_clusters_gif(traces, place))
    else:
        _save(clusters_figure(traces), place)


def _membership(words: list[str]) -> None:
    from torchcaps.options import DrawMembership

    options = parse(DrawMembership, words, "draw membership", "  torchcaps draw membership --routing entropy")
    from torchcaps.analysis.points import make_points
    from torchcaps.plots.clusters import membership_figure

    place = _place(options.out, "membership.png")
    trace = _trace(options.routing, make_points(options.points, options.seed), options)
    _save(membership_figure(trace), place)


def _trace(named: str, drawn: PointSet, options: Any) -> ClusterTrace:
    """A routing with its options behind commas, on these points."""
    from torchcaps.analysis.clusters import trace_clusters
    from torchcaps.config import parse_option
    from torchcaps.errors import InputError, complaint

    name, *more = named.split(",")
    parents = drawn.parents if options.parents is None else options.parents
    given = dict(parse_option(text) for text in more)
    if given.keys() & {"iterations", "seed", "start", "activations"}:
        raise complaint(named, "options of the routing alone behind commas", ", ".join(given), "Use the flags.")
    try:
        return trace_clusters(drawn.points, name, parents, options.iterations, seed=options.seed, **given)
    except InputError:
        raise
    except (RuntimeError, TypeError, ValueError) as error:
        raise complaint(named, f"values that {name} takes", str(error), "Change them.") from None


def _show_trace(title: str, trace: ClusterTrace, drawn: PointSet) -> None:
    from torchcaps.analysis.clusters import purity

    print(f"{title}\niteration  objective  purity  activations")
    for number, step in enumerate(trace.steps, 1):
        objective = "-" if step.objective is None else f"{step.objective:.2f}"
        active = " ".join(f"{value:.3f}" for value in step.activations.tolist())
        print(f"{number:>9}  {objective:>9}  {purity(step.couplings, drawn.groups):>6.1%}  {active}")
    print()


def _place(out: Path | None, name: str) -> Path:
    """The file to write: the one that was asked for, if it is of the right kind, or this name in the working folder."""
    from torchcaps.errors import complaint

    kinds = (".gif",) if name.endswith(".gif") else (".png", ".svg", ".pdf")
    if out is not None and out.suffix.lower() not in kinds:
        raise complaint("--out", f"a file name that ends in {', '.join(kinds)}", repr(str(out)), "Rename it.")
    return out or Path(name)


def _save(figure: Figure, path: Path) -> None:
    from torchcaps.plots.style import save_figures

    (saved,) = save_figures({path.name: figure}, path.parent)
    _tell(saved)


def _tell(path: Path) -> None:
    print(f"picture: {path}", file=sys.stderr)


# Each picture: how it is drawn, and what it shows.
DRAWINGS: dict[str, tuple[Callable[[list[str]], None], str]] = {
    "clusters": (_clusters, "a routing at work on points in the plane, iteration by iteration; --gif moves"),
    "membership": (_membership, "how much of each point belongs to whom: fuzzy clusters"),
}


def _help() -> str:
    lines = "\n".join(f"  {name:<12} {what}" for name, (_, what) in DRAWINGS.items())
    examples = """\
  torchcaps draw clusters --routing gaussian,covariance=full --beside kmeans --points ellipses --iterations 10 --gif
  torchcaps draw membership --routing entropy"""
    return f"""\
usage: torchcaps draw WHAT ...

Draw a picture that explains, from the numbers of real routings and networks.

{lines}

examples:
{examples}

torchcaps draw WHAT --help tells more.
"""
