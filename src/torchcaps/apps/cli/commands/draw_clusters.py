"""torchcaps draw clusters and membership: figures of routing on points. Heavy modules are imported inside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import arg

from torchcaps._core.fields import as_json
from torchcaps.apps.cli.commands.pictures import Picture, parse_drawing, picture_place, save_picture, tell_picture
from torchcaps.apps.cli.parsing import parse
from torchcaps.runs.config import Count, Name

if TYPE_CHECKING:
    from torchcaps.analysis.clusters import ClusterTrace
    from torchcaps.analysis.points import PointSet


@dataclass(frozen=True)
class DrawClusters:
    """Draw a routing of points in the plane: couplings and centers of every iteration, and the objective."""

    routing: Annotated[str, arg(metavar="NAME")] = "em"
    """dynamic, kmeans, entropy, gaussian, em, heinsen, variational, kde or inverted; its options after commas, as in
    gaussian,covariance=full."""
    beside: Name = None
    """A second routing on the same points, from the same start."""
    points: Literal["blobs", "ellipses", "directions", "overlap"] = "blobs"
    """Round groups, elongated ones, rays from the origin, or overlapping groups."""
    iterations: int = 5
    """Routing iterations."""
    parents: Count = None
    """Number of clusters; default: the number of groups."""
    seed: int = 0
    """Seed of the points and of the initial couplings."""
    gif: bool = False
    """Write an animation with a frame for each iteration."""
    out: Picture = None
    """The file to write; default: clusters.png or clusters.gif in the working folder."""
    json: bool = False
    """Print every iteration as JSON instead of a table."""


@dataclass(frozen=True)
class DrawMembership:
    """Draw the couplings of each point after routing: fuzzy clusters."""

    routing: Annotated[str, arg(metavar="NAME")] = "gaussian,covariance=spherical"
    """dynamic, kmeans, entropy, gaussian, em, heinsen, variational, kde or inverted; its options after commas."""
    points: Literal["blobs", "ellipses", "directions", "overlap"] = "overlap"
    """Round groups, elongated ones, rays from the origin, or overlapping groups."""
    iterations: int = 8
    """Routing iterations."""
    parents: Count = None
    """Number of clusters; default: the number of groups."""
    seed: int = 0
    """Seed of the points and of the initial couplings."""
    out: Picture = None
    """The file to write; default: membership.png in the working folder."""


def draw_clusters(words: list[str]) -> None:
    examples = """\
  torchcaps draw clusters --routing em --points blobs
  torchcaps draw clusters --routing gaussian,covariance=full --beside kmeans --points ellipses --iterations 10 --gif"""
    options = parse(DrawClusters, words, "draw clusters", examples)
    from torchcaps.analysis.points import make_points
    from torchcaps.plots.clusters import clusters_figure, save_clusters_gif, title_of

    place = picture_place(options.out, "clusters.gif" if options.gif else "clusters.png")
    drawn = make_points(options.points, options.seed)
    names = [name for name in (options.routing, options.beside) if name is not None]
    traces = [_trace(name, drawn, options) for name in names]
    if options.json:
        print(as_json([trace.as_dict() for trace in traces]))
    else:
        for trace in traces:
            _show_trace(title_of(trace), trace, drawn)
    if options.gif:
        tell_picture(save_clusters_gif(traces, place))
    else:
        save_picture(clusters_figure(traces), place)


def draw_membership(words: list[str]) -> None:
    options, place = parse_drawing(DrawMembership, words, "membership", "  torchcaps draw membership --routing entropy")
    from torchcaps.analysis.points import make_points
    from torchcaps.plots.clusters import membership_figure

    trace = _trace(options.routing, make_points(options.points, options.seed), options)
    save_picture(membership_figure(trace), place)


def _trace(named: str, drawn: PointSet, options: DrawClusters | DrawMembership) -> ClusterTrace:
    """A routing with its options after commas, on these points."""
    from torchcaps._core.errors import InputError, input_error
    from torchcaps.analysis.clusters import trace_clusters
    from torchcaps.runs.config import parse_option

    name, *more = named.split(",")
    parents = drawn.parents if options.parents is None else options.parents
    given = dict(parse_option(text) for text in more)
    if given.keys() & {"iterations", "seed", "start", "activations"}:
        raise input_error(named, "only options of the routing after commas", ", ".join(given), "Use the flags.")
    try:
        return trace_clusters(drawn.points, name, parents, options.iterations, seed=options.seed, **given)
    except InputError:
        raise
    except (RuntimeError, TypeError, ValueError) as error:
        raise input_error(named, f"values that {name} takes", str(error), "Change them.") from None


def _show_trace(title: str, trace: ClusterTrace, drawn: PointSet) -> None:
    from torchcaps.analysis.clusters import purity

    print(f"{title}\niteration  objective  purity  activations")
    for number, step in enumerate(trace.steps, 1):
        objective = "-" if step.objective is None else f"{step.objective:.2f}"
        active = " ".join(f"{value:.3f}" for value in step.activations.tolist())
        print(f"{number:>9}  {objective:>9}  {purity(step.couplings, drawn.groups):>6.1%}  {active}")
    print()
