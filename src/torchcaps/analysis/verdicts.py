"""Plain words for what health and ablations found."""

from __future__ import annotations

from torchcaps.analysis.ablate import ALL, Ablation, Ablations
from torchcaps.analysis.health import Health, LayerHealth

EVEN, SHARP = 0.95, 0.2  # a mean entropy above is nearly uniform, below nearly all or nothing
FIXED, FREE = 0.05, 0.5  # a dependence below is a fixed weighting, above decided by the input


def capsule_verdicts(health: Health) -> list[str]:
    """Which capsules are dead or starved, layer by layer."""
    lines = [f"{each.name}: dead: {_of(each.dead, len(each.activity))}" for each in health.primaries]
    for layer in health.layers:
        names = (*health.classes, "noise") if layer.gives_classes else None
        dead, starved = (_of(which, len(layer.activity), names) for which in (layer.dead, layer.starved))
        lines.append(f"{layer.name}: dead: {dead}; starved: {starved}")
    return lines


def _of(which: tuple[int, ...], total: int, names: tuple[str, ...] | None = None) -> str:
    listed = ", ".join(str(place) if names is None else names[place] for place in which[:8])
    more = ", ..." if len(which) > 8 else ""
    return f"{len(which)} of {total}" + (f" ({listed}{more})" if which else "")


def coupling_verdict(layer: LayerHealth) -> str:
    """Whether routing decides anything in this layer, as far as its couplings tell."""
    facts = layer.couplings
    entropy = facts.entropy[-1]
    if entropy > EVEN:
        return f"{layer.name}: couplings are nearly uniform (entropy {entropy:.4f}): routing does little here"
    kind = "nearly all or nothing" if entropy < SHARP else "soft"
    if facts.dependence < FIXED:
        return f"{layer.name}: couplings are {kind} and nearly the same for every input: a fixed weighting"
    share = f"{facts.dependence:.0%} of their entropy"
    how = "mostly decided by the input" if facts.dependence > FREE else "decided by the input in part"
    return f"{layer.name}: couplings are {kind} and {how} ({share})"


def mirror_verdict(layer: LayerHealth) -> str:
    """Whether the network tells the children of this layer from their negatives."""
    if layer.mirror.change < 1e-5:
        return f"{layer.name}: children x and -x give the same answer: the layer cannot tell them apart"
    return f"{layer.name}: x and -x differ: {layer.mirror.answers:.0%} of answers change"


def move_verdict(health: Health) -> str:
    """Whether poses move and activations stay when the image moves."""
    assert health.moves is not None
    most = health.moves.responses[-1]
    share = most.angle / health.moves.between if health.moves.between else 0.0
    angle = f"{most.angle:.1f} degrees, {share:.0%} of the angle between images of one class"
    return f"{most.move}: the pose of the class turns by {angle}; its activation changes by {most.change:.3f}"


def ablation_verdicts(found: Ablations) -> list[str]:
    """Does routing matter in this network? By layer, and for all together where there are several."""
    rows = {(row.kind, row.layer): row for row in found.rows}
    layers = [layer for kind, layer in rows if kind == "uniform"]
    reasons: dict[tuple[str, str], list[str]] = {}
    for (kind, layer), why in found.left_out.items():
        reasons.setdefault((kind, why), []).append(layer)
    missing = [f"{kind} cannot be tried in {', '.join(names)}: {why}" for (kind, why), names in reasons.items()]
    return missing + [_ablation_verdict(layer, rows["uniform", layer], rows["frozen", layer]) for layer in layers]


def _ablation_verdict(layer: str, uniform: Ablation, frozen: Ablation) -> str:
    where = "routing" if layer == ALL else f"routing in {layer}"
    if not uniform.matters:
        others = f", but frozen ones {_points(frozen)}" if frozen.matters else ""
        return f"{where} decides nothing that can be told: uniform couplings lose {_points(uniform)}{others}"
    if not frozen.matters:
        return f"{where} acts as a fixed weighting: uniform couplings lose {_points(uniform)}, frozen {_points(frozen)}"
    return f"{where} matters: uniform couplings lose {_points(uniform)}, frozen {_points(frozen)}"


def _points(row: Ablation) -> str:
    low, high = row.lost_interval
    return f"{100 * row.lost:.1f} points ({100 * low:.1f} to {100 * high:.1f})"
