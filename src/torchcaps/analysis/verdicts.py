"""Sentences that summarize the results of health and ablations."""

from __future__ import annotations

from torchcaps.analysis.ablate import ALL, Ablation, Ablations
from torchcaps.analysis.health import Health, LayerHealth

EVEN, SHARP = 0.95, 0.2  # a mean entropy above the first is nearly uniform, below the second nearly all or nothing
FIXED, FREE = 0.05, 0.5  # a dependence below is a fixed weighting, above decided by the input

VANISHED = 1e-3  # a gradient below this fraction of the last layer's has vanished
ENOUGH = 30  # examples; with fewer, rare events may be missed
UNSEEN = 0.05  # a loss of accuracy that the interval must exclude to report that nothing is lost


def health_verdicts(health: Health) -> list[str]:
    """Sentences on couplings, capsules, signs, gradients and moves."""
    layers = health.layers
    return [
        *capsule_verdicts(health),
        *(coupling_verdict(layer, health.examples) for layer in layers),
        *(mirror_verdict(layer) for layer in layers),
        *gradient_verdicts(health),
        *([] if health.moves is None else [move_verdict(health)]),
    ]


def capsule_verdicts(health: Health) -> list[str]:
    """The number of dead or starved capsules, layer by layer."""
    few = health.examples < max(ENOUGH, 3 * len(health.classes))
    doubt = f"; {health.examples:,} examples are too few to tell" if few else ""
    lines = []
    for each in health.primaries:
        lines.append(f"{each.name}: dead: {_of(each.dead, len(each.activity))}{doubt if each.dead else ''}")
    for layer in health.layers:
        names = (*health.classes, "noise") if layer.gives_classes else None
        dead, starved = (_of(which, len(layer.activity), names) for which in (layer.dead, layer.starved))
        lines.append(f"{layer.name}: dead: {dead}; starved: {starved}{doubt if layer.dead or layer.starved else ''}")
    return lines


def _of(which: tuple[int, ...], total: int, names: tuple[str, ...] | None = None) -> str:
    listed = ", ".join(str(place) if names is None else names[place] for place in which[:8])
    more = ", ..." if len(which) > 8 else ""
    return f"{len(which)} of {total}" + (f" ({listed}{more})" if which else "")


def coupling_verdict(layer: LayerHealth, examples: int) -> str:
    """Whether routing decides anything in this layer, judged by its couplings on so many examples."""
    facts = layer.couplings
    entropy = facts.entropy[-1]
    if entropy > EVEN:
        return f"{layer.name}: every child is shared almost evenly among its parents (entropy {entropy:.4f} of 1)"
    kind = "nearly all or nothing" if entropy < SHARP else "soft"
    if facts.dependence < FIXED and examples < ENOUGH:
        return f"{layer.name}: couplings are {kind}; {examples} examples are too few to tell if they follow the input"
    if facts.dependence < FIXED:
        return f"{layer.name}: couplings are {kind} and nearly the same for every input, like a fixed weighting"
    share = f"{facts.dependence:.0%} of their entropy"
    how = "mostly decided by the input" if facts.dependence > FREE else "decided by the input in part"
    return f"{layer.name}: couplings are {kind} and {how} ({share})"


def mirror_verdict(layer: LayerHealth) -> str:
    """Whether the network distinguishes the children of this layer from their negatives."""
    if layer.mirror.change < 1e-5:
        return f"{layer.name}: children x and -x give the same answer: the layer cannot tell them apart"
    change = f"changes activations by {layer.mirror.change:.3f}, and {layer.mirror.answers:.0%} of answers"
    return f"{layer.name}: the network tells children x from -x: negating all poses {change}"


def gradient_verdicts(health: Health) -> list[str]:
    """Whether the gradient of the loss reaches the first layer; for texts, in each branch."""
    lines, first = [], health.layers[0]
    for number, layer in enumerate(health.layers):
        if layer.gives_classes:
            lines.append(_gradient_verdict(first, layer))
            first = health.layers[min(number + 1, len(health.layers) - 1)]
    return lines


def _gradient_verdict(first: LayerHealth, last: LayerHealth) -> str:
    if last.gradients.poses == 0:
        return f"{last.name}: no gradient at all: nothing is learned from these examples"
    if first is last:
        return f"{last.name}: the gradient reaches the children, which can learn from it"
    share = first.gradients.poses / last.gradients.poses
    how = "vanishes on the way" if share < VANISHED else "arrives"
    return f"{first.name}: the gradient {how}: by poses {share:.2g} times that of {last.name}"


def cost_verdict(layer: LayerHealth) -> str:
    """The cost of a further iteration."""
    first, last = layer.costs[0], layer.costs[-1]
    if first is last:
        return f"{layer.name}: one iteration, {1e3 * first.seconds:.1f} ms"
    more, room = last.seconds - first.seconds, max(0, last.peak_bytes - first.peak_bytes)
    time = f"about {1e3 * more / (last.iterations - 1):.1f} ms"
    if more <= max(first.spread, last.spread):
        time = "a time within the noise"
    room_each = f"{room / (last.iterations - 1) / 1e6:.1f} MB"
    return f"{layer.name}: {time} and {room_each} for each iteration after the first"


def move_verdict(health: Health) -> str:
    """Whether poses change and activations stay if the image moves."""
    assert health.moves is not None
    most = health.moves.responses[-1]
    share = most.angle / health.moves.between if health.moves.between else 0.0
    angle = f"{most.angle:.1f} degrees, {share:.0%} of the angle between images of the same answer"
    return f"{most.move}: the pose of the class turns by {angle}; its activation changes by {most.change:.3f}"


def ablation_verdicts(found: Ablations) -> list[str]:
    """Whether routing matters in this network: for each layer, and for all together if there are several."""
    rows = {(row.kind, row.layer): row for row in found.rows}
    layers = [layer for kind, layer in rows if kind == "uniform"]
    reasons: dict[tuple[str, str], list[str]] = {}
    for (kind, layer), why in found.left_out.items():
        reasons.setdefault((kind, why), []).append(layer)
    missing = [f"{kind} cannot be tried in {', '.join(names)}: {why}" for (kind, why), names in reasons.items()]
    return missing + [_ablation_verdict(layer, rows["uniform", layer], rows["frozen", layer]) for layer in layers]


def _ablation_verdict(layer: str, uniform: Ablation, frozen: Ablation) -> str:
    where = "routing" if layer == ALL else f"routing in {layer}"
    lost = f"with uniform couplings accuracy falls by {_points(uniform)}, with frozen ones by {_points(frozen)}"
    if not uniform.matters:
        if _may_hide(uniform):
            return f"too few examples to tell whether {where} matters: {lost}"
        others = f", but with frozen ones by {_points(frozen)}" if frozen.matters else ""
        said = f"with uniform couplings accuracy falls by {_points(uniform)}"
        return f"{where} decides nothing that can be told: {said}{others}"
    if frozen.matters:
        return f"{where} matters: {lost}"
    if _may_hide(frozen):
        return f"{where} matters, but there are too few examples to tell whether by more than a fixed weighting: {lost}"
    return f"{where} acts as a fixed weighting: {lost}"


def _may_hide(row: Ablation) -> bool:
    """Whether so few examples could miss a loss of accuracy that matters."""
    return row.lost_interval[1] > UNSEEN


def _points(row: Ablation) -> str:
    low, high = row.lost_interval
    return f"{100 * row.lost:.1f} points (95 % interval {100 * low:.1f} to {100 * high:.1f})"
