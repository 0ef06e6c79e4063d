"""torchcaps health: measure the routing of a trained run. Heavy modules are imported inside."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from torchcaps._core.fields import as_json
from torchcaps._core.files import atomic_write
from torchcaps.apps.cli.parsing import parse
from torchcaps.runs.config import Folder

if TYPE_CHECKING:
    from torchcaps.analysis.ablate import Ablations
    from torchcaps.analysis.health import Health


@dataclass(frozen=True)
class HealthOptions:
    """Measure routing in a trained run, and the accuracy without parts of it; results are saved in the run folder."""

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """The run folder of a capsule network."""
    count: Annotated[int, arg(metavar="N")] = 500
    """Number of test examples, stratified."""
    ablate: bool = True
    """Also evaluate the network without parts of its routing; it is not retrained."""
    data_dir: Folder = None
    """Folder of data sets by name."""
    device: Annotated[str, arg(metavar="NAME")] = "auto"
    """Device: auto, cpu, cuda or mps."""
    json: bool = False
    """Print JSON instead of tables."""


def health_command(words: list[str]) -> None:
    examples = """\
  torchcaps health runs/mine
  torchcaps health runs/mine --count 2000
  torchcaps health runs/mine --no-ablate --json"""
    options = parse(HealthOptions, words, "health", examples)
    from torchcaps._core.errors import check_count

    check_count("health", "--count", options.count)
    from torchcaps._core.device import choose_device
    from torchcaps._core.errors import input_error
    from torchcaps.analysis.ablate import ablate
    from torchcaps.analysis.health import health, sample
    from torchcaps.analysis.layers import named_layers
    from torchcaps.losses import loss_of_classes
    from torchcaps.plots.health import health_pictures
    from torchcaps.runs.parts import parts_for
    from torchcaps.runs.run import Run

    device = choose_device("health", options.device)
    run = Run.open(options.run)
    model = run.load_model().to(device)
    named_layers("health", model)
    parts = parts_for(run, None, options.data_dir)
    if not len(parts.test):
        raise input_error("health", "examples in the test part", "none", "Train with --test above 0.")
    data = sample(parts.test, options.count)
    found = health(model, data, loss_of_classes(run.config.loss, model.readout))
    without = None
    if options.ablate:
        without = ablate(model, data, sample(parts.validation if len(parts.validation) else parts.train, options.count))
    summary = _summary(found, without)
    if options.json:
        print(as_json(summary))
    else:
        _show(found, without)
    folder = run.path("health")
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(folder / "results.json", as_json(summary) + "\n")
    for path in health_pictures(found, without, folder):
        print(f"picture: {path}", file=sys.stderr)


def _show(found: Health, without: Ablations | None) -> None:
    from torchcaps.analysis.ablate import ABLATIONS
    from torchcaps.analysis.health import FEW
    from torchcaps.analysis.verdicts import (
        ablation_verdicts,
        capsule_verdicts,
        cost_verdict,
        coupling_verdict,
        gradient_verdicts,
        mirror_verdict,
        move_verdict,
    )

    layers = found.layers
    print(f"{found.examples:,} examples of the test part\n")
    _section(
        "capsules: dead ones are active on no example, starved ones receive less than a tenth of an even share",
        ("layer", "routing", "children", "parents", "least active", "least mass"),
        [
            (
                layer.name,
                layer.routing,
                f"{layer.children:,}",
                f"{layer.parents:,}",
                f"{float(layer.activity.min()):.3f}",
                f"{float(layer.couplings.mass.min()):.2f}",
            )
            for layer in layers
        ],
        capsule_verdicts(found),
    )
    _section(
        "couplings: the shares of a child that its parents receive; whether they matter is told by ablations;\n"
        "entropy: 1 is even, 0 all to one parent, also with active children counting more;\n"
        "polarized: children with a coupling above 0.9; by input: 0 the same couplings for every input, 1 the input\n"
        "alone decides them; parse tree: 1 the class of the input decides the one parent of every child,\n"
        "0 it tells no more than shuffled labels would",
        ("layer", "entropy after each iteration", "by activity", "polarized", "by input", "parse tree"),
        [
            (
                layer.name,
                " ".join(f"{value:.4f}" for value in layer.couplings.entropy),
                f"{layer.couplings.active_entropy:.4f}",
                f"{layer.couplings.polarized[-1]:.1%}",
                f"{layer.couplings.dependence:.3f}",
                "-" if layer.couplings.parse_tree is None else f"{layer.couplings.parse_tree:.3f}",
            )
            for layer in layers
        ],
        [coupling_verdict(layer, found.examples) for layer in layers],
    )
    _section(
        "sign and gradient: the change of the output if the children's poses are negated; norms of the gradient",
        ("layer", "change", "answers", "by parameters", "by poses"),
        [
            (
                layer.name,
                f"{layer.mirror.change:.4f}",
                f"{layer.mirror.answers:.1%}",
                f"{layer.gradients.parameters:.2e}",
                f"{layer.gradients.poses:.2e}",
            )
            for layer in layers
        ],
        [*(mirror_verdict(layer) for layer in layers), *gradient_verdicts(found)],
    )
    if found.moves is not None:
        _section(
            "moves of the image: by how many degrees poses turn, and how much activations change",
            ("move", "class pose", "class activation", "primary pose", "primary activation"),
            [
                (
                    each.move,
                    f"{each.angle:.1f}",
                    f"{each.change:.3f}",
                    f"{each.primary_angle:.1f}",
                    f"{each.primary_change:.3f}",
                )
                for each in found.moves.responses
            ],
            [move_verdict(found)],
        )
    _section(
        f"cost: a layer with one iteration and more, for {min(FEW, found.examples)} examples without gradients; rough "
        "figures",
        ("layer", "iterations", "milliseconds", "megabytes"),
        [
            (layer.name, str(cost.iterations), f"{1e3 * cost.seconds:.1f}", f"{cost.peak_bytes / 1e6:.1f}")
            for layer in layers
            for cost in layer.costs
        ],
        [cost_verdict(layer) for layer in layers],
    )
    if without is not None:
        low, high = without.interval
        whole = f"{without.accuracy:.2%} ({low:.2%} to {high:.2%})"
        meaning = "".join(f"\n{kind}: {what}" for kind, what in ABLATIONS.items())
        _section(
            f"ablations of the trained network, without training (compare trains them); whole: {whole}{meaning}",
            ("ablation", "layer", "accuracy", "95 % interval", "points lost", "95 % interval"),
            [
                (
                    row.kind,
                    row.layer,
                    f"{row.accuracy:.2%}",
                    _interval(row.interval),
                    f"{100 * row.lost:.1f}",
                    _interval(row.lost_interval),
                )
                for row in without.rows
            ],
            ablation_verdicts(without),
        )


def _interval(interval: tuple[float, float]) -> str:
    return f"{100 * interval[0]:.1f} to {100 * interval[1]:.1f}"


def _section(title: str, header: tuple[str, ...], rows: list[tuple[str, ...]], verdicts: list[str]) -> None:
    widths = [max(len(row[place]) for row in [header, *rows]) for place in range(len(header))]
    print(title)
    for row in [header, *rows]:
        cells = [f"{row[0]:<{widths[0]}}", *(f"{c:>{w}}" for c, w in zip(row[1:], widths[1:], strict=True))]
        print("  " + "  ".join(cells))
    for verdict in verdicts:
        print(f"  -> {verdict}")
    print()


def _summary(found: Health, without: Ablations | None) -> dict[str, Any]:
    from torchcaps.analysis.verdicts import ablation_verdicts, health_verdicts

    summary: dict[str, Any] = {
        "examples": found.examples,
        "primary": [{"name": each.name, "dead": list(each.dead)} for each in found.primaries],
        "layers": [
            {
                "name": layer.name,
                "routing": layer.routing,
                "children": layer.children,
                "parents": layer.parents,
                "dead": list(layer.dead),
                "starved": list(layer.starved),
                "activity": layer.activity.tolist(),
                "mass": layer.couplings.mass.tolist(),
                "entropy": list(layer.couplings.entropy),
                "active_entropy": layer.couplings.active_entropy,
                "polarized": list(layer.couplings.polarized),
                "dependence": layer.couplings.dependence,
                "parse_tree": layer.couplings.parse_tree,
                "mirror": asdict(layer.mirror),
                "gradients": asdict(layer.gradients),
                "costs": [asdict(cost) for cost in layer.costs],
            }
            for layer in found.layers
        ],
        "moves": None if found.moves is None else asdict(found.moves),
        "verdicts": health_verdicts(found),
    }
    if without is not None:
        summary["ablations"] = {
            "accuracy": without.accuracy,
            "interval_95": list(without.interval),
            "rows": [asdict(row) for row in without.rows],
            "left_out": [{"kind": k, "layer": layer, "why": why} for (k, layer), why in without.left_out.items()],
        }
        summary["verdicts"] += ablation_verdicts(without)
    return summary
