"""Is it a 2 or a 3? Six parts, two wholes, and routing by agreement, iteration by iteration.

A 3 is made of the first four parts, a 2 of the first, fifth and sixth. Every part knows where in a 2 and in a 3 it
would sit, so from its own pose it votes for the pose of either whole. In a true 3 the votes for "3" agree; then the
top hook, which both digits have, goes to the 3. Jumble the parts and no votes agree: no class may win.

Run: python examples/two_or_three.py [--out out/two_or_three.png]
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import torch
from torch import Tensor

import torchcaps as tc
from torchcaps._core.types import Step
from torchcaps.layers import make_votes

PARTS = ("top hook", "right shoulder", "middle bar", "lower bowl", "diagonal", "base line")
WHOLES = ("2", "3")
IS_PART_OF = {"2": (0, 4, 5), "3": (0, 1, 2, 3)}
# Where each part sits in a whole: (x, y, angle). None: this whole has no such part.
PLACES: dict[str, list[tuple[float, float, float] | None]] = {
    "2": [(0.0, 0.55, 0.0), None, None, None, (0.0, -0.35, 0.0), (0.0, -1.0, 0.0)],
    "3": [(0.0, 0.55, 0.0), (0.32, 0.3, 0.0), (0.15, 0.0, 0.0), (0.0, -0.5, 0.0), None, None],
}


Point = tuple[float, float]


def arc(start: float, stop: float, radius: float) -> list[Point]:
    angles = [math.radians(start + (stop - start) * step / 20) for step in range(21)]
    return [(radius * math.cos(angle), radius * math.sin(angle)) for angle in angles]


def curve(
    start: tuple[float, float], pull: tuple[float, float], stop: tuple[float, float]
) -> list[tuple[float, float]]:
    def along(t: float, axis: int) -> float:
        return (1 - t) ** 2 * start[axis] + 2 * t * (1 - t) * pull[axis] + t**2 * stop[axis]

    return [(along(step / 20, 0), along(step / 20, 1)) for step in range(21)]


STROKES = [  # each part in its own frame
    arc(160, 0, 0.45),
    curve((0.13, 0.25), (0.13, -0.25), (-0.17, -0.3)),
    [(-0.25, 0.0), (0.0, 0.0)],
    arc(75, -150, 0.5),
    curve((0.45, 0.9), (0.42, 0.45), (-0.45, -0.65)),
    [(-0.45, 0.0), (0.5, 0.0)],
]


def pose(x: float, y: float, angle: float) -> Tensor:
    """A 3x3 matrix that turns by `angle` and moves by (x, y)."""
    cos, sin = math.cos(angle), math.sin(angle)
    return torch.tensor([[cos, -sin, x], [sin, cos, y], [0.0, 0.0, 1.0]])


def part_to_whole() -> Tensor:
    """W_ij: from the pose of part i to the pose of whole j, [i j 3 3]; meaningless where there is no relation."""
    generator = torch.Generator().manual_seed(3)
    weights = torch.empty(len(PARTS), len(WHOLES), 3, 3)
    for j, whole in enumerate(WHOLES):
        for i, place in enumerate(PLACES[whole]):
            if place is None:
                x, y, angle = (4 * torch.rand(3, generator=generator) - 2).tolist()
                place = (x, y, angle)
            weights[i, j] = pose(*place).inverse()
    return weights


def picture(whole: str, jumble: int | None = None) -> tc.Capsules:
    """The six part capsules that a picture of a whole activates; `jumble` throws its parts about."""
    generator = torch.Generator().manual_seed(7 if jumble is None else jumble)
    poses, activations = [], []
    for i, place in enumerate(PLACES[whole]):
        x, y, angle = place or (0.0, 0.0, 0.0)
        noise = 0.03 * torch.randn(3, generator=generator)
        if jumble is not None:
            x, y, angle = (torch.rand(3, generator=generator) * torch.tensor([2.0, 2.0, 2 * math.pi]) - 1.0).tolist()
        poses.append(pose(x + noise[0].item(), y + noise[1].item(), angle + noise[2].item()).flatten())
        activations.append(float(i in IS_PART_OF[whole]))
    return tc.Capsules(torch.stack(poses), torch.tensor(activations))


def watch(parts: tc.Capsules) -> list[Step]:
    """Vote, route, and keep every iteration."""
    votes = make_votes("matrix", len(PARTS), len(WHOLES), 9, 9)
    with torch.no_grad():
        votes.weight.copy_(part_to_whole())
        # Poses to a tenth are as good as equal (variance_floor). Describing a part by a whole costs beta_use plus
        # log sigma for each number of its pose; a whole is active when its parts together cost less than -20.
        routing = tc.make_routing(
            "em",
            out_capsules=len(WHOLES),
            variance_floor=0.01,
            beta_use=1.2,
            beta_active=-20,
            inverse_temperature=4,
        )
        return routing.trace(votes(parts.poses), parts.activations)


SCENES = {
    "a 3": picture("3"),
    "a 2": picture("2"),
    "a jumbled 3": picture("3", jumble=1),
}


def print_table(name: str, parts: tc.Capsules, steps: list[Step]) -> None:
    print(f"\n{name}: share of each part that goes to the 2 and to the 3, iteration by iteration")
    print(f"{'':16}" + "".join(f"{f'iteration {t + 1}':>18}" for t in range(len(steps))))
    for i, part in enumerate(PARTS):
        if parts.activations[i] > 0:
            cells = [step.routed.couplings[i].tolist() for step in steps]
            print(f"{part:16}" + "".join(f"{two:>10.3f}{three:>8.3f}" for two, three in cells))
    cells = [step.routed.activations.tolist() for step in steps]
    print(f"{'active':16}" + "".join(f"{two:>10.3f}{three:>8.3f}" for two, three in cells))


def draw(path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    colors = ("#0072b2", "#d55e00")  # 2 and 3, apart for the color-blind too
    steps_of = {name: watch(parts) for name, parts in SCENES.items()}
    columns = 1 + max(len(steps) for steps in steps_of.values())
    figure, axes = plt.subplots(len(SCENES), columns, figsize=(3.1 * columns, 3.3 * len(SCENES)), squeeze=False)
    for row, (name, parts) in zip(axes, SCENES.items(), strict=True):
        last = steps_of[name][-1].routed
        canvas = row[0]
        for i, stroke in enumerate(STROKES):
            if parts.activations[i] == 0:
                continue
            points = torch.tensor([(*point, 1.0) for point in stroke]) @ parts.poses[i].view(3, 3).T
            share = float(last.couplings[i, 1])
            mixed = [(1 - share) * a + share * b for a, b in zip(*map(matplotlib.colors.to_rgb, colors), strict=True)]
            canvas.plot(points[:, 0], points[:, 1], color=mixed, linewidth=6, solid_capstyle="round")
        canvas.set(xlim=(-1.8, 1.8), ylim=(-1.8, 1.8), aspect="equal", xticks=[], yticks=[])
        canvas.set_title(name, fontsize=13)
        for t, (step, axis) in enumerate(zip(steps_of[name], row[1:], strict=True)):
            for i, part in enumerate(PARTS):
                active = bool(parts.activations[i] > 0)
                axis.text(-0.08, 5 - i, part, ha="right", va="center", fontsize=9, color="black" if active else "0.75")
                axis.plot(0, 5 - i, "o", color="0.2" if active else "0.85")
                for j in range(2):
                    width = 7 * float(step.routed.couplings[i, j]) * float(parts.activations[i])
                    axis.plot([0, 1], [5 - i, 3.5 - 2 * j], color=colors[j], linewidth=width, alpha=0.8, zorder=0)
            for j, whole in enumerate(WHOLES):
                activation = float(step.routed.activations[j])
                axis.plot(1, 3.5 - 2 * j, "o", markersize=26, color="white")
                axis.plot(1, 3.5 - 2 * j, "o", markersize=26, markeredgecolor=colors[j], markeredgewidth=2,
                          color=(*matplotlib.colors.to_rgb(colors[j]), activation))  # fmt: skip
                dark = "white" if activation > 0.5 else "black"
                axis.text(1, 3.5 - 2 * j, whole, ha="center", va="center", fontsize=13, color=dark)
                axis.text(1.22, 3.5 - 2 * j, f"{activation:.2f}", va="center", fontsize=10)
            axis.set(xlim=(-0.9, 1.6), ylim=(-0.6, 5.6))
            axis.set_axis_off()
            axis.set_title(f"iteration {t + 1}", fontsize=11)
    figure.suptitle("Routing by agreement: line width is the coupling, fill is the activation", fontsize=13)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description="Is it a 2 or a 3? Routing by agreement, iteration by iteration.")
    parser.add_argument("--out", type=Path, default=Path("out/two_or_three.png"), help="where the picture goes")
    path = parser.parse_args().out
    for name, parts in SCENES.items():
        steps = watch(parts)
        print_table(name, parts, steps)
        two, three = steps[-1].routed.activations.tolist()
        verdict = "no class wins" if max(two, three) < 0.5 else f"it is a {'2' if two > three else '3'}"
        print(f"=> {verdict}")
    draw(path)
    print(f"\nThe same as a picture: {path}")


if __name__ == "__main__":
    main()
