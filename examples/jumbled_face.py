"""Is it a face? All parts of a face are no face yet: they must agree where the face is.

Every part knows where in a face it sits, so from its own pose it votes for the pose of the face. In a face the votes
agree, also if it is turned or smaller: then the pose of the face says so. If the parts are thrown about, each is as
sure as before, so a maximum over the picture finds all of them, but their votes are apart.

Run: python examples/jumbled_face.py [--out out/jumbled_face.png]
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import torch
from torch import Tensor

import torchcaps as tc
from torchcaps.layers import make_votes

# Where each part sits in a face of width 2, and its stroke in its own frame.
PLACES = {"left eye": (-0.45, 0.4), "right eye": (0.45, 0.4), "nose": (0.0, 0.0), "mouth": (0.0, -0.5)}
ROUND = [(0.2 * math.cos(step / 10 * math.pi), 0.12 * math.sin(step / 10 * math.pi)) for step in range(21)]
SMILE = [(x / 10, 0.3 * (x / 10) ** 2 - 0.05) for x in range(-4, 5)]
STROKES = {"left eye": ROUND, "right eye": ROUND, "nose": [(0.0, 0.2), (-0.1, -0.1), (0.1, -0.1)], "mouth": SMILE}


def pose(x: float, y: float, angle: float = 0.0, scale: float = 1.0) -> Tensor:
    """A 3x3 matrix that scales, turns by `angle` and moves by (x, y)."""
    cos, sin = scale * math.cos(angle), scale * math.sin(angle)
    return torch.tensor([[cos, -sin, x], [sin, cos, y], [0.0, 0.0, 1.0]])


def face(angle: float = 0.0, scale: float = 1.0) -> Tensor:
    """The poses of the parts of a face that is turned and scaled, [i 9]."""
    whole = pose(0, 0, angle, scale)
    return torch.stack([(whole @ pose(*place)).flatten() for place in PLACES.values()])


def jumbled(seed: int = 4) -> Tensor:
    """The same parts, anywhere."""
    generator = torch.Generator().manual_seed(seed)
    where = (torch.rand(len(PLACES), 3, generator=generator) - 0.5) * torch.tensor([1.6, 1.6, 2 * math.pi])
    return torch.stack([pose(*place).flatten() for place in where.tolist()])


def look(parts: Tensor) -> tc.Routed:
    """The face capsule that these parts make: pose [1 9], activation [1]."""
    votes = make_votes("matrix", len(PLACES), 1, 9, 9)
    with torch.no_grad():
        for i, place in enumerate(PLACES.values()):
            votes.weight[i, 0] = pose(*place).inverse()
        # As in two_or_three.py: a whole is active when its parts, described by it, cost little.
        costs = {"beta_use": 1.2, "beta_active": -20, "inverse_temperature": 4}
        routing = tc.make_routing("em", out_capsules=1, variance_floor=0.01, **costs)
        return routing(votes(parts), torch.ones(len(PLACES)))


SCENES = {
    "a face": face(),
    "turned and smaller": face(angle=0.7, scale=0.75),
    "the same parts, jumbled": jumbled(),
}


def draw(path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(SCENES), figsize=(9, 3.4), layout="constrained")
    for panel, (scene, parts) in zip(axes, SCENES.items(), strict=True):
        active = float(look(parts).activations[0])
        for part, stroke in zip(parts, STROKES.values(), strict=True):
            points = torch.tensor([(*point, 1.0) for point in stroke]) @ part.view(3, 3).T
            panel.plot(points[:, 0], points[:, 1], color="#0072b2" if active > 0.5 else "#d55e00", linewidth=4)
        panel.set(xlim=(-1.2, 1.2), ylim=(-1.2, 1.2), aspect="equal", xticks=[], yticks=[])
        panel.set_title(f"{scene}\nparts found: all 4; face: {active:.2f}", fontsize=11)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description="Is it a face?")
    parser.add_argument("--out", type=Path, default=Path("out/jumbled_face.png"), help="where the picture goes")
    path = parser.parse_args().out
    for scene, parts in SCENES.items():
        routed = look(parts)
        matrix = routed.poses[0].view(3, 3)
        turned = math.degrees(math.atan2(float(matrix[1, 0]), float(matrix[0, 0])))
        size = float(matrix[:2, 0].norm())
        active = float(routed.activations[0])
        told = f"turned by {turned:.0f} degrees, {size:.2f} of its size" if active > 0.5 else "its votes are apart"
        print(f"{scene:24}  parts found: 4 of 4   face: {active:.2f}  {told}")
    draw(path)
    print(f"\nThe same as a picture: {path}")


if __name__ == "__main__":
    main()
