"""torchcaps attack: accuracy under adversarial attacks. Heavy modules are imported inside."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import arg

from torchcaps._core.fields import as_json
from torchcaps._core.neutral import shown as neutral
from torchcaps.apps.cli.commands.networks import RunsBeside, percent, print_pictures, print_table, write_results
from torchcaps.apps.cli.parsing import parse

if TYPE_CHECKING:
    from torchcaps.analysis.attacks import AttackCurve, AttackPoint

Curves = dict[str, "list[AttackCurve]"]


@dataclass(frozen=True)
class Attack(RunsBeside):
    """Attack a run: accuracy as test images are changed along gradients, as a function of the size of the change."""

    transfer: Annotated[Path | None, arg(metavar="RUN", help_behavior_hint="")] = None
    """Compute the changes on this run and apply them to the others (black-box attack)."""
    methods: Annotated[tuple[Literal["fgsm", "bim", "pgd"], ...], arg(metavar="METHOD...")] = ("fgsm", "bim")
    """fgsm: one step; bim: several steps; pgd: several steps from a random start."""
    epsilons: Annotated[tuple[float, ...], arg(metavar="E...")] = (0.05, 0.1, 0.2, 0.3)
    """Largest change of a pixel, for pixels from 0 to 1."""
    steps: int = 10
    """Number of steps of bim and pgd."""
    targeted: bool = False
    """Attack towards a random wrong class of each image, instead of away from the right one."""


def attack_command(words: list[str]) -> None:
    examples = """\
  torchcaps attack runs/mine
  torchcaps attack runs/capsules --beside runs/cnn --methods fgsm bim pgd
  torchcaps attack runs/capsules --transfer runs/cnn --targeted --epsilons 0.1 0.25"""
    options = parse(Attack, words, "attack", examples)
    from torchcaps._core.errors import check_count, check_range, input_error

    check_count("attack", "--count", options.count)
    check_count("attack", "--steps", options.steps)
    for epsilon in options.epsilons:
        check_range("attack", "--epsilons", epsilon, 0.001, 1)
    if not options.epsilons or not options.methods:
        word = "--methods" if options.epsilons else "--epsilons"
        raise input_error("attack", f"one or more {word}", "none", f"Name some, or drop {word}.")
    networks = options.networks("attack", options.transfer)
    from torchcaps.analysis.attacks import attack_curves, attack_examples
    from torchcaps.analysis.images import some, varied

    methods, epsilons = list(dict.fromkeys(options.methods)), sorted(set(options.epsilons))
    data = some(networks.test, options.count, options.seed)
    how = {"steps": options.steps, "targeted": options.targeted, "source": networks.source, "seed": options.seed}
    curves: Curves = {
        name: attack_curves(model, data, epsilons, methods, **how)  # type: ignore[arg-type]
        for name, model in networks.models.items()
    }
    clean = [found[0].points[0] for found in curves.values()]
    verdicts = [_fairness(clean)] if len(clean) > 1 else []
    summary = {
        "data": networks.run.config.data,
        "examples": len(data),
        "targeted": options.targeted,
        "transfer": None if options.transfer is None else str(options.transfer),
        "steps": options.steps,
        "runs": {name: _summary(found) for name, found in curves.items()},
        "verdicts": verdicts,
    }
    made = "" if options.transfer is None else f", changes made on {options.transfer}"
    if options.json:
        print(as_json(summary))
    else:
        print(f"{neutral(networks.run.config.data)}, test: {len(data):,} examples{made}")
        _show(curves, verdicts)
    for name, found in curves.items():
        if silent := max(curve.silent for curve in found):
            got = f"warning: {silent:.1%} of the examples have no gradient at all"
            print(f"{got} in {options.transfer or name}, for which the attack shows nothing", file=sys.stderr)
    folder = networks.run.path("attack")
    write_results(folder, summary)
    from torchcaps.plots.attacks import attack_examples_figure, attack_figure
    from torchcaps.plots.style import save_figures

    model = next(iter(networks.models.values()))
    shown = attack_examples(model, data.take(varied(data, 6)), epsilons, methods[-1], **how)  # type: ignore[arg-type]
    figures = {
        "curve.png": attack_figure(curves, None if options.transfer is None else options.transfer.name),
        "examples.png": attack_examples_figure(shown, methods[-1]),
    }
    print_pictures(save_figures(figures, folder))


def _show(curves: Curves, verdicts: list[str]) -> None:
    for name, found in curves.items():
        clean = found[0].points[0]
        print(f"{name}: clean accuracy {percent(clean.accuracy, clean.interval)}")
    print(*verdicts, sep="\n", end="\n" * bool(verdicts))
    print("\naccuracy under attack")
    columns = [(name, curve) for name, found in curves.items() for curve in found]
    head = ["epsilon", *(f"{name} {curve.method}" for name, curve in columns)]
    points = list(zip(*(curve.points[1:] for _, curve in columns), strict=True))
    print_table(head, [[f"{row[0].epsilon:g}", *(percent(p.accuracy, p.interval) for p in row)] for row in points])
    if columns[0][1].points[0].driven is not None:
        print("\nclassified as the target")
        print_table(
            head,
            [
                [f"{row[0].epsilon:g}", *(percent(p.success or 0.0, p.success_interval or (0, 0)) for p in row)]
                for row in points
            ],
        )


def _fairness(points: list[AttackPoint]) -> str:
    """Whether the clean accuracies differ, in which case the curves do not compare robustness alone."""
    low, high = max(point.interval[0] for point in points), min(point.interval[1] for point in points)
    if low <= high:
        return f"The intervals of the clean accuracies overlap: {points[0].count:,} examples do not distinguish them."
    return "The clean accuracies differ by more than their intervals: a fair comparison needs runs of equal accuracy."


def _summary(found: list[AttackCurve]) -> dict[str, object]:
    clean = found[0].points[0]
    return {
        "accuracy": clean.accuracy,
        "interval_95": list(clean.interval),
        "attacks": {
            curve.method: {"silent": curve.silent, "points": [_point(point) for point in curve.points[1:]]}
            for curve in found
        },
    }


def _point(point: AttackPoint) -> dict[str, object]:
    summary: dict[str, object] = {
        "epsilon": point.epsilon,
        "accuracy": point.accuracy,
        "interval_95": list(point.interval),
    }
    if point.success_interval is not None:
        summary |= {"driven": point.success, "driven_interval_95": list(point.success_interval)}
    return summary
