"""Which animal do feathers belong to? Features are shared out among animals by softmax, and animals follow.

A feature u_i asks every animal v_j how well they fit, <u_i, v_j>, and gives it the share exp <u_i, v_j> / Z. An animal
is the squashed sum of its shares, v_j = squash(Sum_i p_j|i u_i), and the features ask again. This is dynamic routing
with logits that are overwritten, and with what we know of animals as the start. The length of an animal says if it is
there. It is below one, so shares become more even than at the start, and eyes, which all animals have, go to all.

Run: python examples/animals.py [--out out/animals.png]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

import torchcaps as tc
from torchcaps._core.types import Step

# What features and animals are about: flying, scratching in the yard, water, fur.
FEATURES = {
    "feathers": (1.6, 1.2, 0.0, 0.0),
    "wings": (2.2, 0.4, 0.0, 0.0),
    "comb": (0.2, 2.4, 0.0, 0.0),
    "fins": (0.0, 0.0, 2.4, 0.0),
    "gills": (0.0, 0.0, 2.0, 0.0),
    "fur": (0.0, 0.2, 0.0, 2.4),
    "paws": (0.0, 0.4, 0.0, 2.0),
    "eyes": (0.4, 0.4, 0.4, 0.4),
}
ANIMALS = {
    "chicken": (0.6, 1.4, 0.0, 0.0),
    "sparrow": (1.5, 0.2, 0.0, 0.0),
    "fish": (0.0, 0.0, 1.5, 0.0),
    "dog": (0.0, 0.2, 0.0, 1.5),
}
SCENES = {
    "everything": tuple(FEATURES),
    "a hen": ("feathers", "comb", "eyes"),
    "a fish": ("fins", "gills", "eyes"),
}


def watch(names: tuple[str, ...], iterations: int = 3) -> list[Step]:
    """The shares of these features and the animals that they make, in every iteration."""
    features = torch.tensor([FEATURES[name] for name in names])
    known = torch.tensor(list(ANIMALS.values()))
    start = (features @ known.T).softmax(-1)  # p_j|i: over animals, not over features
    routing = tc.make_routing("dynamic", accumulate=False, iterations=iterations)
    return routing.trace(features.unsqueeze(1).expand(-1, len(ANIMALS), -1), couplings=start)


def print_table(scene: str, names: tuple[str, ...], steps: list[Step]) -> None:
    print(f"\n{scene}: shares in the first and in the last iteration")
    print(" " * 10 + "".join(f"{animal:>16}" for animal in ANIMALS))
    for i, name in enumerate(names):
        pairs = zip(steps[0].routed.couplings[i].tolist(), steps[-1].routed.couplings[i].tolist(), strict=True)
        print(f"{name:10}" + "".join(f"{first:>10.2f}{last:>6.2f}" for first, last in pairs))
    lengths = zip(steps[0].routed.activations.tolist(), steps[-1].routed.activations.tolist(), strict=True)
    print(f"{'length':10}" + "".join(f"{first:>10.2f}{last:>6.2f}" for first, last in lengths))


def draw(path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    heights = [len(names) for names in SCENES.values()]
    figure, axes = plt.subplots(1, len(SCENES), figsize=(10.5, 4.2), layout="constrained")
    for panel, (scene, names), height in zip(axes, SCENES.items(), heights, strict=True):
        last = watch(names)[-1].routed
        panel.imshow(last.couplings.numpy(), cmap="Blues", vmin=0, vmax=1, aspect="auto")
        for i, row in enumerate(last.couplings.tolist()):
            for j, share in enumerate(row):
                panel.text(j, i, f"{share:.2f}", ha="center", va="center", color="white" if share > 0.5 else "black")
        lengths = last.activations.tolist()
        below = [f"{animal}\n{length:.2f}" for animal, length in zip(ANIMALS, lengths, strict=True)]
        panel.set_xticks(range(len(ANIMALS)), below)
        panel.set_yticks(range(height), names)
        panel.tick_params(length=0)
        panel.set_title(scene)
    figure.suptitle("The share of each feature that goes to each animal; below, the animal's length")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description="Which animal do feathers belong to?")
    parser.add_argument("--out", type=Path, default=Path("out/animals.png"), help="where the picture goes")
    path = parser.parse_args().out
    for scene, names in SCENES.items():
        print_table(scene, names, watch(names))
    draw(path)
    print(f"\nThe same as a picture: {path}")


if __name__ == "__main__":
    main()
