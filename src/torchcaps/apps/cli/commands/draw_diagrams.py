"""torchcaps draw weights, text-model and viewpoints: diagrams. Heavy modules are imported inside."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from torchcaps.apps.cli.commands.pictures import Picture, parse_drawing, save_picture
from torchcaps.runs.config import Count, Folder, Name


@dataclass(frozen=True)
class DrawWeights:
    """Draw full and shared weights, with the numbers of matrices of a layer of these sizes."""

    children: int = 1152
    """Children."""
    parents: int = 10
    """Parents."""
    child_dim: int = 8
    """Size of a child's pose."""
    parent_dim: int = 16
    """Size of a parent's pose."""
    out: Picture = None
    """The file to write; default: weights.png in the working folder."""


@dataclass(frozen=True)
class DrawTextModel:
    """Draw a text model layer by layer, with its shapes for a text."""

    text: Annotated[Positional[str], arg(metavar="TEXT")] = "the plot is thin but the acting is a joy"
    """The text."""
    model: Literal["text", "text-a", "text-b"] = "text-b"
    """Capsule-A (3-grams) or Capsule-B (3-, 4- and 5-grams), untrained, with two classes."""
    run: Annotated[Path | None, arg(metavar="RUN", help_behavior_hint="")] = None
    """The model of this run instead."""
    out: Picture = None
    """The file to write; default: text-model.png in the working folder."""


@dataclass(frozen=True)
class DrawViewpoints:
    """Draw one object from all viewpoints: elevations in rows, azimuths in columns; a split trains on framed views."""

    data: Annotated[Positional[str], arg(metavar="DATA")] = "toys"
    """Data with viewpoints: toys, toys-full, smallnorb, ..."""
    kind: Name = None
    """The class; default: the first one."""
    instance: Count = None
    """The instance of its class; default: the first one of the test part."""
    by: Literal["azimuth", "elevation"] = "azimuth"
    """The viewpoint that the split is by."""
    data_dir: Folder = None
    """Folder of data sets by name."""
    out: Picture = None
    """The file to write; default: viewpoints.png in the working folder."""


def draw_weights(words: list[str]) -> None:
    examples = "  torchcaps draw weights\n  torchcaps draw weights --children 16 --child-dim 8"
    options, place = parse_drawing(DrawWeights, words, "weights", examples)
    from torchcaps._core.errors import check_count
    from torchcaps.analysis.weights import weight_counts
    from torchcaps.plots.diagrams import weights_figure

    sizes = (options.children, options.parents, options.child_dim, options.parent_dim)
    for word, size in zip(("children", "parents", "child-dim", "parent-dim"), sizes, strict=True):
        check_count("draw weights", word, size)
    counts = weight_counts(*sizes)
    for count in counts:
        print(f"{count.votes:<6}  {count.matrices:>10,} matrices  {count.parameters:>12,} numbers")
    save_picture(weights_figure(counts, sizes), place)


def draw_text_model(words: list[str]) -> None:
    examples = """\
  torchcaps draw text-model --model text-a
  torchcaps draw text-model "not as good as the first one" --run runs/stars"""
    options, place = parse_drawing(DrawTextModel, words, "text-model", examples)
    from torchcaps._core.errors import input_error
    from torchcaps.analysis.textshapes import text_shapes
    from torchcaps.data import Vocabulary
    from torchcaps.models import create_model
    from torchcaps.plots.diagrams import text_figure
    from torchcaps.runs.run import Run

    if options.run is None:
        vocabulary = Vocabulary.build([options.text])
        name: str = options.model
        model = create_model(name, vocabulary=len(vocabulary), classes=2)
    else:
        run = Run.open(options.run)
        if run.metadata.kind != "texts":
            got = f"one on {run.metadata.kind}"
            raise input_error("draw text-model", "a run on texts", got, "Train on texts.")
        name, model, vocabulary = run.model_name, run.load_model(), run.words()
    cut = tuple(word for word, _, _ in vocabulary.cut(options.text))
    if not cut:
        raise input_error("draw text-model", "a text with words", repr(options.text), "Give one.")
    shapes = text_shapes(model, vocabulary.read([options.text]), cut)
    for layer in (shapes.vectors, *(layer for branch in shapes.branches for layer in branch), shapes.answer):
        print(f"{layer.name:<22}  {' x '.join(map(str, layer.shape))}")
    save_picture(text_figure(shapes, name), place)


def draw_viewpoints(words: list[str]) -> None:
    examples = "  torchcaps draw viewpoints toys --kind car\n  torchcaps draw viewpoints smallnorb --by elevation"
    options, place = parse_drawing(DrawViewpoints, words, "viewpoints", examples)
    from torchcaps.analysis.views import view_grid
    from torchcaps.data import Splits, open_data
    from torchcaps.plots.diagrams import views_figure

    data = open_data(options.data, folder=options.data_dir)
    part: Any = data.test if isinstance(data, Splits) else data
    grid = view_grid(part, options.kind, options.instance, options.by)
    new = int((grid.seen & ~grid.familiar).sum())
    print(f"{grid.name}: {int(grid.familiar.sum())} familiar and {new} new views")
    save_picture(views_figure(grid), place)
