"""Pictures of routing at work on points in the plane. Heavy modules are imported inside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchcaps._core.fields import as_json
from torchcaps.apps.cli.commands.pictures import picture_place, save_picture, tell_picture
from torchcaps.apps.cli.parsing import parse

if TYPE_CHECKING:
    from torchcaps.analysis.clusters import ClusterTrace
    from torchcaps.analysis.points import PointSet
    from torchcaps.apps.cli.options import DrawClusters, DrawMembership


def draw_clusters(words: list[str]) -> None:
    from torchcaps.apps.cli.options import DrawClusters

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
    from torchcaps.apps.cli.options import DrawMembership

    options = parse(DrawMembership, words, "draw membership", "  torchcaps draw membership --routing entropy")
    from torchcaps.analysis.points import make_points
    from torchcaps.plots.clusters import membership_figure

    place = picture_place(options.out, "membership.png")
    trace = _trace(options.routing, make_points(options.points, options.seed), options)
    save_picture(membership_figure(trace), place)


def _trace(named: str, drawn: PointSet, options: DrawClusters | DrawMembership) -> ClusterTrace:
    """A routing with its options behind commas, on these points."""
    from torchcaps._core.errors import InputError, input_error
    from torchcaps.analysis.clusters import trace_clusters
    from torchcaps.runs.config import parse_option

    name, *more = named.split(",")
    parents = drawn.parents if options.parents is None else options.parents
    given = dict(parse_option(text) for text in more)
    if given.keys() & {"iterations", "seed", "start", "activations"}:
        raise input_error(named, "options of the routing alone behind commas", ", ".join(given), "Use the flags.")
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
