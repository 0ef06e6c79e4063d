"""Explanations of pictures: reconstructions, the meaning of pose dimensions, and routing trees."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchcaps._core.fields import as_json
from torchcaps._core.files import atomic_write
from torchcaps._core.neutral import shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

    from torchcaps.analysis.trees import Tree
    from torchcaps.apps.cli.commands.explain import Explain
    from torchcaps.models import ImageModel
    from torchcaps.runs.run import Run


def explain_images(run: Run, options: Explain) -> None:
    """Tables of classes and parts for pictures or an example, figures in RUN/explain; optionally grid and factors."""
    from torchcaps._core.errors import check_choice, input_error
    from torchcaps.analysis.reconstruct import check_decoder
    from torchcaps.models import CapsuleModel
    from torchcaps.plots.style import save_figures

    if options.html is not None:
        raise input_error("--html", "a run on texts", "one on images", "Drop it: pictures go into RUN/explain.")
    if options.inputs and options.example is not None:
        raise input_error("explain", "picture files or --example", "both", "Drop one of them.")
    if not (options.inputs or options.example is not None or options.grid or options.factors):
        raise input_error("explain", "picture files after the run", "none", "Name some, or give --example 0.")
    if options.label is not None:
        check_choice("explain", "--label", options.label, run.metadata.classes)
    model = run.load_model()
    if options.grid:
        check_decoder("--grid", model)
    if options.factors and not isinstance(model, CapsuleModel):
        raise input_error("--factors", "a capsule network", run.model_name, "Drop it.")
    folder = run.path("explain")
    summary: dict[str, Any] = {"pictures": []}

    def keep(figures: dict[str, Figure]) -> None:
        for path in save_figures(figures, folder):
            print(f"picture: {path}", file=sys.stderr)

    for name, image, truth in _images(run, options):
        facts, figures = _explained(model, run, image, options)
        summary["pictures"].append({"name": name, "truth": truth, **facts})
        if not options.json:
            _show(name if truth is None else f"{name}, truth {truth}", facts)
        keep({f"{name}-{word}.png": figure for word, figure in figures.items()})
    for wanted, look in ((options.grid, _grid), (options.factors, _factors)):
        if wanted:
            facts, figures = look(model, run, options)
            summary |= facts
            if not options.json:
                _show_numbers(facts)
            keep(figures)
    if options.json:
        print(as_json(summary))
    atomic_write(folder / "results.json", as_json(summary) + "\n")
    if summary["pictures"]:
        _say_what_is_missing(model)


def _images(run: Run, options: Explain) -> Iterator[tuple[str, Tensor, str | None]]:
    """Names, images and true classes if they are known: of the files, or of the example of the test part."""
    import torch

    from torchcaps._core.errors import input_error
    from torchcaps.analysis.predict import read_pictures
    from torchcaps.runs.parts import parts_for

    if options.example is not None:
        test = parts_for(run, None, options.data_dir).test
        if not 0 <= options.example < len(test):
            expected = f"a number from 0 to {len(test) - 1}"
            raise input_error("--example", expected, options.example, "Choose one of the test part.")
        batch = test.batch(torch.tensor([options.example]))
        truth = " and ".join(run.metadata.classes[label] for label in batch.labels.flatten().tolist())
        yield f"test-{options.example}", batch.inputs[0], truth
        return
    taken: dict[str, int] = {}
    if options.inputs:
        for names, images in read_pictures(run, [Path(name) for name in options.inputs], owner="explain"):
            for file, image in zip(names, images, strict=True):
                stem = Path(file).stem
                taken[stem] = taken.get(stem, 0) + 1
                yield stem if taken[stem] == 1 else f"{stem}-{taken[stem]}", image, None


def _explained(
    model: ImageModel, run: Run, image: Tensor, options: Explain
) -> tuple[dict[str, Any], dict[str, Figure]]:
    """The results for one image, and its figures."""
    import torch

    from torchcaps.analysis.evaluate import check_answers
    from torchcaps.analysis.perturb import perturb
    from torchcaps.analysis.reconstruct import draw_classes
    from torchcaps.analysis.trees import coupling_moves, routing_tree, trace_image, tree_maps
    from torchcaps.models import CapsuleModel
    from torchcaps.plots.capsules import drawing_figure, sheet_figure
    from torchcaps.plots.trees import moves_figure, tree_figure

    classes, things = run.metadata.classes, run.metadata.labels_per_image
    with torch.no_grad():
        activations = model(image[None]).activations[0]
    check_answers("explain", activations)
    order = activations.argsort(descending=True).tolist()
    labels = order[:things] if options.label is None else [classes.index(options.label)]
    shown = [*order[:4], *(label for label in labels if label not in order[:4])]
    facts: dict[str, Any] = {
        "classes": [{"class": classes[label], "activation": round(float(activations[label]), 4)} for label in shown]
    }
    figures: dict[str, Figure] = {}
    if model.decoder is not None:
        drawing = draw_classes(model, image, shown)
        if things == 1:
            errors = zip(drawing.labels, drawing.reconstruction_errors, strict=True)
            facts["errors"] = {classes[label]: error for label, error in errors}
        figures["reconstruction"] = drawing_figure(drawing, classes, things)
        figures["perturbation"] = sheet_figure(perturb(model, image, labels[0]), classes)
    if isinstance(model, CapsuleModel):
        traced = trace_image(model, image)
        tree = routing_tree(traced, labels)
        facts["parts"] = _parts(tree, classes, options.top)
        figures["tree"] = tree_figure(tree, classes, tree_maps(model, image, tree))
        figures["couplings"] = moves_figure(coupling_moves(traced, labels[0]), classes)
    return facts, figures


def _parts(tree: Tree, classes: tuple[str, ...], top: int) -> list[dict[str, Any]]:
    """The strongest children of each class, as plain values."""
    rows = []
    for root in tree.roots:
        own = [edge for edge in tree.into(tree.layers - 1) if edge.label == root]
        for edge in own[:top]:
            node = tree.nodes[edge.child]
            where = {"place": node.place, "pixels": node.box, "activation": node.activation}
            how = {"couplings": edge.couplings, "contribution": edge.contribution, "share": edge.flow}
            rows.append({"class": classes[root], "type": node.type, **where, **how})
    return rows


def _grid(model: ImageModel, run: Run, options: Explain) -> tuple[dict[str, Any], dict[str, Figure]]:
    """Reconstructions of right predictions and mistakes of the test part; of single objects if images show several."""
    from torchcaps.analysis.overlap import presence, take_apart
    from torchcaps.analysis.reconstruct import draw_triples
    from torchcaps.plots.capsules import apart_figure, triples_figure
    from torchcaps.runs.parts import parts_for

    test = parts_for(run, None, options.data_dir).test
    if run.metadata.labels_per_image > 1:
        found = asdict(presence(model, test))
        return {"overlap": found}, {"overlap.png": apart_figure(take_apart(model, test), run.metadata.classes)}
    cases = draw_triples(model, test)
    right = (cases.labels == cases.answers)[:, 0]
    from_truth = ~right & (cases.sources == cases.labels)[:, 0]
    from_answer = ~right & ~from_truth
    each = cases.reconstruction_errors[:, 0]
    errors = {
        name: float(each[rows].mean()) if rows.any() else None
        for name, rows in (
            ("right answers", right),
            ("mistakes, from the answer", from_answer),
            ("mistakes, from the truth", from_truth),
        )
    }
    return {"reconstruction errors": errors}, {"grid.png": triples_figure(cases, run.metadata.classes)}


def _factors(model: ImageModel, run: Run, options: Explain) -> tuple[dict[str, Any], dict[str, Figure]]:
    """Which dimension of the poses follows which change of test images."""
    from torchcaps.analysis.perturb import dimension_meanings
    from torchcaps.plots.capsules import meanings_figure
    from torchcaps.runs.parts import parts_for

    meanings = dimension_meanings(model, parts_for(run, None, options.data_dir).test)
    names = (*meanings.factors, "what chance would give")
    values = [
        None if value != value else value for value in (*meanings.best.tolist(), meanings.chance)
    ]  # JSON has no NaN
    best = dict(zip(names, values, strict=True))
    return {"best dimension, mean |r|": best}, {"factors.png": meanings_figure(meanings)}


def _show(name: str, facts: dict[str, Any]) -> None:
    errors = facts.get("errors", {})
    print(f"{shown(name)}\n  {'class':<12}  activation" + ("  reconstruction error" if errors else ""))
    for row in facts["classes"]:
        error = f"  {errors[row['class']]:.4f}" if row["class"] in errors else ""
        print(f"  {shown(row['class']):<12}  {row['activation']:>10.2f}{error}")
    if facts.get("parts"):
        print(f"  {'part':<18}  {'for':<12}  activation  coupling  contribution   share")
    for row in facts.get("parts", []):
        part = f"type {row['type']}" + ("" if row["place"] is None else f" at {row['place'][0]}, {row['place'][-1]}")
        numbers = f"{row['activation']:>10.2f}  {row['couplings'][-1]:>8.3f}  {row['contribution']:>12.3f}"
        print(f"  {part:<18}  {shown(row['class']):<12}  {numbers}  {row['share']:>6.1%}")
    print()


def _show_numbers(facts: dict[str, Any]) -> None:
    for title, values in facts.items():
        print(title)
        for name, value in values.items():
            print(f"  {name:<26}  {'-' if value is None else format(value, '.4g')}")
    print()


def _say_what_is_missing(model: ImageModel) -> None:
    """One sentence on what could not be drawn of this model."""
    from torchcaps.models import CapsuleModel

    missing = []
    if model.decoder is None:
        missing.append("reconstruction and perturbation (the model has no decoder)")
    if not isinstance(model, CapsuleModel):
        missing.append("routing tree and couplings (the model has no routing)")
    if missing:
        print(f"not drawn: {'; '.join(missing)}.", file=sys.stderr)
