"""Which pixel belongs to what? Class capsules for every pixel, on pictures of circles, crosses and triangles.

A convolution of capsules looks at a neighborhood, transposed ones bring its parents back to the size of the picture,
and the margin loss takes labels [b h w] for activations [b h w y]: the head is four layers, one after the other.

Run: python examples/segmentation.py    (half a minute on one core)
"""

import argparse
import time

import torch
from torch import Tensor, nn

import torchcaps as tc

NAMES = ["background", "circle", "cross", "triangle"]
SIDE = 32


class Segmentation(nn.Module):
    """Images [b c h w] to a capsule for each class at each pixel, [b h w y d]."""

    def __init__(self, channels: int, classes: int, capsules: int = 8, dim: int = 8) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(channels, 32, 5, stride=2, padding=2),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, 64, 5, stride=2, padding=2),
            nn.BatchNorm2d(64),
            nn.ReLU(),
        )
        self.primary = tc.PrimaryCapsules(64, capsules, dim, kernel_size=3, padding=1)
        sizes, routing = (capsules, capsules, dim, dim), {"iterations": 2, "normalize_poses": True}
        self.around = tc.ConvCapsules2d(*sizes, kernel_size=3, padding=1, skip=True, **routing)
        self.larger = tc.ConvTransposeCapsules2d(*sizes, kernel_size=2, stride=2, **routing)
        self.pixels = tc.ConvTransposeCapsules2d(
            capsules, classes, dim, dim, kernel_size=2, stride=2, competition="window", **routing
        )

    def forward(self, images: Tensor) -> tc.Capsules:
        return self.pixels(self.larger(self.around(self.primary(self.encoder(images)))))


def draw(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Pictures [b 1 h w] of two turned shapes each, with noise, and the class of every pixel [b h w]."""
    place = torch.arange(SIDE) + 0.5
    images, labels = torch.zeros(count, SIDE, SIDE), torch.zeros(count, SIDE, SIDE, dtype=torch.long)

    def between(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(count, 1, 1, generator=generator)

    for _ in range(2):
        x, y = place - between(7, SIDE - 7), place.unsqueeze(1) - between(7, SIDE - 7)
        angle, size = between(-0.4, 0.4), between(6, 9)
        x, y = x * angle.cos() + y * angle.sin(), y * angle.cos() - x * angle.sin()
        circle = x.square() + y.square() < size.square()
        cross = (torch.minimum(x.abs(), y.abs()) < 0.35 * size) & (torch.maximum(x.abs(), y.abs()) < size)
        triangle = (y > -0.6 * size) & (y + 1.73 * x.abs() < 1.2 * size)
        kind = torch.randint(1, len(NAMES), (count, 1, 1), generator=generator)
        inside = torch.where(kind == 1, circle, torch.where(kind == 2, cross, triangle))
        images = torch.where(inside, between(0.5, 1), images)
        labels = torch.where(inside, kind, labels)
    images = images + 0.1 * torch.randn(images.shape, generator=generator)
    return images.unsqueeze(1), labels


def overlaps(found: Tensor, labels: Tensor) -> list[float]:
    """The intersection over the union of what was found and what is there, for each class."""
    pairs = [(found == kind, labels == kind) for kind in range(len(NAMES))]
    return [float((left & right).sum() / (left | right).sum().clamp(min=1)) for left, right in pairs]


def main() -> None:
    parser = argparse.ArgumentParser(description="Segment circles, crosses and triangles with capsules.")
    parser.add_argument("--steps", type=int, default=250)
    steps = parser.parse_args().steps
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    model, loss = Segmentation(1, len(NAMES)), tc.MarginLoss()
    optimizer = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=steps)
    start = time.perf_counter()
    for step in range(1, steps + 1):
        images, labels = draw(16, generator)
        value = loss(model(images).activations, labels)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        schedule.step()
        if step % 50 == 0 or step == steps:
            print(f"step {step:>4}   loss {value.item():.3f}   {time.perf_counter() - start:.0f} s")

    model.eval()
    images, labels = draw(200, torch.Generator().manual_seed(1))
    with torch.inference_mode():
        found = torch.cat([model(part).activations.argmax(-1) for part in images.split(20)])
    mine, always = overlaps(found, labels), overlaps(torch.zeros_like(labels), labels)
    for name, value in zip(NAMES, mine, strict=True):
        print(f"{name:<12} IoU {value:.2f}")
    print(f"mean IoU {sum(mine) / len(mine):.2f}, of background alone {sum(always) / len(always):.2f}")
    right = (found == labels).float().mean()
    print(f"pixels right {right:.3f}, share of background {(labels == 0).float().mean():.3f}")


if __name__ == "__main__":
    main()
