"""torchcaps draw model, convergence, agreement and split: one image in a run. Heavy modules are imported inside."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import arg

from torchcaps._core.fields import as_json
from torchcaps._core.neutral import shown
from torchcaps.apps.cli.commands.pictures import Picture, parse_drawing, save_picture
from torchcaps.runs.config import Count, Folder

if TYPE_CHECKING:
    from torch import Tensor

    from torchcaps.analysis.lastlayer import Voted
    from torchcaps.runs.run import Run


@dataclass(frozen=True)
class DrawRun:
    run: Annotated[Path | None, arg(metavar="RUN", help_behavior_hint="")] = None
    """The run folder of a capsule network for images."""
    example: int = 0
    """Index of the image, from 0."""
    part: Literal["test", "validation", "train"] = "test"
    """Part of the data."""
    data_dir: Folder = None
    """Folder of data sets by name."""
    out: Picture = None
    """The file to write; default: the name of the figure with .png in the working folder."""
    json: bool = False
    """Print JSON instead of a table."""


@dataclass(frozen=True)
class DrawConvergence(DrawRun):
    """Draw the distances of votes from the mean of each class, in every iteration (Hinton 2018, figure 2)."""


@dataclass(frozen=True)
class DrawAgreement(DrawRun):
    """Draw the votes for two classes as arrows: a child's coupling grows if its vote agrees with the parent."""

    child: Count = None
    """The child to mark; default: one that belongs to the first class and opposes the second."""


@dataclass(frozen=True)
class DrawSplit(DrawRun):
    """Draw how one child is divided among its parents, and what one parent receives from all children."""

    child: Count = None
    """The child; default: the one that contributes most to the parent."""
    parent: Count = None
    """The parent, as a class index from 0; default: the most active one."""


@dataclass(frozen=True)
class DrawModel(DrawRun):
    """Draw a network stage by stage, with what each makes of an image: maps, activations, poses, reconstruction."""


def draw_model(words: list[str]) -> None:
    examples = "  torchcaps draw model --run runs/capsnet --example 3"
    options, place = parse_drawing(DrawModel, words, "model", examples)
    run, image, _, classes = _example(options, "model")
    from torchcaps.analysis.stages import stages
    from torchcaps.plots.stages import stages_figure

    found = stages(run.load_model(), image, "draw model")
    if options.json:
        _print_json({"stages": [{"name": stage.name, "shape": stage.shape, "how": stage.how} for stage in found]})
    else:
        for stage in found:
            print(f"{stage.name:<22}  {' x '.join(map(str, stage.shape)):<18}  {' '.join(stage.how.split())}".rstrip())
    save_picture(stages_figure(found, classes, run.model_name), place)


def draw_convergence(words: list[str]) -> None:
    examples = "  torchcaps draw convergence --run runs/toys --example 3"
    options, place = parse_drawing(DrawConvergence, words, "convergence", examples)
    voted, image, labels, classes = _watched(options, "convergence")
    from torchcaps.analysis.convergence import convergence
    from torchcaps.plots.convergence import convergence_figure

    found = convergence(voted)
    distances, active = found.mean_distances.tolist(), found.activations.tolist()
    if options.json:
        _print_json({"classes": classes, "labels": labels, "mean_distances": distances, "activations": active})
    else:
        names = [shown(name) for name in classes]
        width = max(8, *map(len, names))
        print("mean distance of votes (activation)")
        print(" " * 9 + "".join(f"  {name:>{width}} (   a)" for name in names))
        for number, (near, busy) in enumerate(zip(distances, active, strict=True), 1):
            print(f"{number:>9}" + "".join(f"  {d:>{width}.3f} ({a:.2f})" for d, a in zip(near, busy, strict=True)))
    save_picture(convergence_figure(found, image, classes, labels), place)


def draw_agreement(words: list[str]) -> None:
    examples = "  torchcaps draw agreement --run runs/mine --example 3"
    options, place = parse_drawing(DrawAgreement, words, "agreement", examples)
    voted, _, _, classes = _watched(options, "agreement")
    from torchcaps.analysis.sharing import agreement
    from torchcaps.plots.sharing import agreement_figure

    found = agreement(voted, child=options.child)
    rows = [
        {"class": classes[parent], "cosine": cosine, "coupling_before": before, "coupling_after": after}
        for parent, cosine, before, after in zip(
            found.parents, found.cosines.tolist(), found.before.tolist(), found.after.tolist(), strict=True
        )
    ]
    if options.json:
        _print_json({"child": found.child, "parents": rows})
    else:
        for row in rows:
            cosine, change = f"{row['cosine']:+.2f}", f"{row['coupling_before']:.3f} -> {row['coupling_after']:.3f}"
            print(f"child {found.child} and {shown(str(row['class']))}: cosine {cosine}, coupling {change}")
    save_picture(agreement_figure(found, classes), place)


def draw_split(words: list[str]) -> None:
    examples = "  torchcaps draw split --run runs/mine --example 3"
    options, place = parse_drawing(DrawSplit, words, "split", examples)
    voted, image, _, classes = _watched(options, "split")
    from torchcaps.analysis.sharing import sharing
    from torchcaps.plots.sharing import sharing_figure

    found = sharing(voted, options.child, options.parent)
    couplings = dict(zip(classes, found.couplings.tolist(), strict=True))
    if options.json:
        told = {"child": found.child, "couplings": couplings, "parent": classes[found.parent]}
        _print_json({**told, "received": found.received.tolist(), "parts": found.parts.tolist()})
    else:
        shares = ", ".join(f"{shown(name)} {value:.3f}" for name, value in couplings.items())
        print(f"child {found.child} gives {shares}: {float(found.couplings.sum()):.3f} in all")
        best = found.parts.topk(min(5, len(found.parts)))
        parts = ", ".join(f"{child} ({float(found.parts[child]):.1%})" for child in best.indices.tolist())
        print(f"{shown(classes[found.parent])} receives most from children {parts}")
    save_picture(sharing_figure(found, image, classes), place)


def _watched(options: DrawRun, what: str) -> tuple[Voted, Tensor, list[int], tuple[str, ...]]:
    """The last layer of a run for one image: votes and routing, the image, its labels, all classes."""
    run, image, labels, classes = _example(options, what)
    from torchcaps.analysis.lastlayer import last_layer

    return last_layer(run.load_model(), image, f"draw {what}"), image, labels, classes


def _example(options: DrawRun, what: str) -> tuple[Run, Tensor, list[int], tuple[str, ...]]:
    """A run on images, one image, its labels, and all classes."""
    from torchcaps._core.errors import input_error

    if options.run is None:
        remedy = "Train one (torchcaps train --out runs/mine) and name it with --run."
        raise input_error(f"draw {what}", "a run of a network of capsules for images", "none", remedy)
    import torch

    from torchcaps.runs.parts import parts_for
    from torchcaps.runs.run import Run

    run = Run.open(options.run)
    if run.metadata.kind != "images":
        got = f"one on {run.metadata.kind}"
        raise input_error(f"draw {what}", "a run on images", got, "Choose another run.")
    data = getattr(parts_for(run, None, options.data_dir), options.part)
    if not 0 <= options.example < len(data):
        expected = f"an example from 0 to {len(data) - 1}"
        raise input_error(f"draw {what}", expected, options.example, "Choose another --example.")
    batch = data.batch(torch.tensor([options.example]))
    return run, batch.inputs[0], batch.labels[0].flatten().tolist(), data.classes


def _print_json(values: dict[str, object]) -> None:
    print(as_json(values))
