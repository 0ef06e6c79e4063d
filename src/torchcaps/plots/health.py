"""Figures of the health of routing: entropy, couplings, mass, and the effect of ablations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from torchcaps.analysis.ablate import ABLATIONS, ALL, Ablations
from torchcaps.analysis.health import STARVED, Health, LayerHealth
from torchcaps.plots.style import GRAY, PALETTE, WRONG, plain, save_figures


def health_pictures(health: Health, ablations: Ablations | None, folder: Path) -> list[Path]:
    """All figures of a network's health that have data; those of an earlier call are removed."""
    figures = {"couplings.png": couplings_figure(health), "mass.png": mass_figure(health)}
    if any(len(layer.couplings.entropy) > 1 for layer in health.layers):
        figures["entropy.png"] = entropy_figure(health)
    if ablations is not None:
        figures["ablations.png"] = ablations_figure(ablations)
    for name in ("entropy.png", "ablations.png"):
        (folder / name).unlink(missing_ok=True)
    return save_figures(figures, folder)


def entropy_figure(health: Health) -> Figure:
    """The entropy of couplings after each iteration, a line for each layer: 1 is uniform, 0 all to one parent."""
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.add_subplot()
    most = max(len(layer.couplings.entropy) for layer in health.layers)
    for number, layer in enumerate(health.layers):
        entropy = layer.couplings.entropy
        color = PALETTE[number % len(PALETTE)]
        label = f"{layer.name} ({layer.routing})"
        axes.plot(range(1, len(entropy) + 1), entropy, "o-", color=color, lw=2, ms=7, label=label, clip_on=False)
    axes.axhline(1, color=GRAY, lw=1, ls=":")
    axes.set_xticks(range(1, most + 1))
    axes.set_xlim(0.7, most + 0.3)
    axes.set_ylim(0, 1.04)
    axes.set_xlabel("iteration")
    axes.set_ylabel("entropy of couplings")
    axes.set_title("Entropy of couplings: 1 uniform, 0 all to one parent", fontsize=11)
    axes.legend(frameon=False)
    _bare(axes)
    return figure


def couplings_figure(health: Health) -> Figure:
    """A histogram of the couplings of the last iteration, a panel for each layer."""
    figure, panels = _panels(health, 3.4, 2.6)
    for axes, layer in zip(panels, health.layers, strict=True):
        counts = layer.couplings.histogram
        share = (counts / counts.sum().clamp(min=1)).tolist()
        width = 1 / len(share)
        left = [width * place for place in range(len(share))]
        axes.bar(left, share, width, align="edge", color=PALETTE[0])
        axes.set_yscale("log")
        axes.set_xlim(0, 1)
        axes.set_title(f"{layer.name} ({layer.routing})", fontsize=10)
        axes.set_xlabel("coupling")
        axes.set_ylabel("share of couplings")
        axes.axvline(layer.couplings.even, color=PALETTE[1], lw=1.5, ls="--", label="uniform")
        axes.legend(frameon=False, fontsize=9)
        _bare(axes)
    figure.suptitle("Couplings after the last iteration", fontsize=11)
    return figure


def mass_figure(health: Health) -> Figure:
    """The couplings that each parent receives, as a multiple of a uniform share; starved parents in red."""
    figure, panels = _panels(health, 4.6, 3.0)
    for axes, layer in zip(panels, health.layers, strict=True):
        mass = layer.couplings.mass
        colors = [WRONG if value < STARVED else PALETTE[0] for value in mass.tolist()]
        axes.bar(range(len(mass)), mass.tolist(), color=colors)
        axes.axhline(1, color=GRAY, lw=1, ls="--")
        names = _parent_names(health, layer)
        if len(names) <= 30:
            long = max(len(name) for name in names) > 3
            axes.set_xticks(range(len(names)), names, rotation=90 if long else 0, parse_math=False, fontsize=9)
        axes.set_title(f"{layer.name} ({layer.routing})", fontsize=10)
        axes.set_xlabel("class" if layer.gives_classes else "type of parent")
        axes.set_ylabel("mass / uniform share")
        _bare(axes)
    figure.suptitle("Couplings that parents receive: 1 is a uniform share, red is starved", fontsize=11)
    return figure


def ablations_figure(found: Ablations) -> Figure:
    """The accuracy without each part, with 95 % intervals, beside that of the whole network (line and band)."""
    kinds = list(ABLATIONS)
    rows: list[tuple[str, str]] = []
    for kind in kinds:
        done = [(row.kind, row.layer) for row in found.rows if row.kind == kind]
        rows += done or [(kind, "")]
    figures = {(row.kind, row.layer): row for row in found.rows}
    layers = list(dict.fromkeys(row.layer for row in found.rows if row.layer != ALL))
    colors = {layer: PALETTE[place % len(PALETTE)] for place, layer in enumerate(layers)} | {ALL: GRAY}
    figure = Figure(figsize=(7.6, 1.5 + 0.3 * len(rows) + 0.12 * len(kinds)), layout="constrained")
    axes = figure.add_subplot()
    low, high = found.interval
    axes.axvspan(low, high, color=GRAY, alpha=0.18, lw=0)
    axes.axvline(found.accuracy, color="black", lw=1.2)
    place, ticks = 0.0, []
    for number, key in enumerate(rows):
        if number and rows[number - 1][0] != key[0]:
            place += 0.4
        kind, layer = key
        if layer:
            row = figures[key]
            spread = [[row.accuracy - row.interval[0]], [row.interval[1] - row.accuracy]]
            axes.barh(place, row.accuracy, 0.8, color=colors[layer], xerr=spread, error_kw={"lw": 1.2, "capsize": 2.5})
        else:
            why = [reason for (left, _), reason in found.left_out.items() if left == kind][-1]
            axes.text(0.01, place, f"cannot be done: {why}", va="center", fontsize=9, color=GRAY)
        ticks.append((place, f"{kind}, {layer}" if layer and len(layers) > 1 else kind))
        place += 1
    axes.set_yticks([place for place, _ in ticks], [plain(word) for _, word in ticks], fontsize=9)
    axes.set_ylim(place - 0.4, -0.6)
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    axes.set_xlabel("accuracy, with 95 % intervals")
    axes.set_title(f"Without parts of routing (line: the whole network, {found.accuracy:.1%})", fontsize=11)
    _bare(axes)
    return figure


def _parent_names(health: Health, layer: LayerHealth) -> list[str]:
    count = len(layer.couplings.mass)
    names = [plain(name) for name in health.classes] if layer.gives_classes else [str(place) for place in range(count)]
    return [*names, "noise"][:count]


def _panels(health: Health, width: float, height: float) -> tuple[Figure, list[Any]]:
    """A figure with a panel for each layer, up to three in a row."""
    count = len(health.layers)
    columns = min(3 if count != 4 else 2, count)
    lines = -(-count // columns)
    size = (max(5.4, width * columns), 0.5 + max(height, 3.2 / count) * lines)
    figure = Figure(figsize=size, layout="constrained")
    return figure, [figure.add_subplot(lines, columns, place + 1) for place in range(count)]


def _bare(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
