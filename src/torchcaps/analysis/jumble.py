"""Jumbled parts: is a network still sure when all the parts of a thing are there, but not where they belong?

A capsule stands for a whole whose parts agree on where it is. So it should fall silent when the parts of an image are
shuffled, and two capsules should speak where two things stand side by side (Su 2018, kexue.fm 4819), though training
has never shown more than one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor
from torch.nn.functional import interpolate

from torchcaps._core.errors import check_choice, check_count, input_error
from torchcaps.analysis.evaluate import Evaluation, evaluate, wilson_interval
from torchcaps.analysis.images import InMemoryImages, check_images
from torchcaps.models import ImageModel

# Shuffled: rows and columns of the grid that is cut. Mirrored: each part turned left to right in its place.
SHUFFLES = {"2x2": (2, 2), "3x3": (3, 3), "rows": (4, 1)}
MIRRORED = {"mirrored": (2, 2)}
JUMBLES = [*SHUFFLES, *MIRRORED]
INK = 0.1  # a pixel is ink if it lies further than this from the background
CLEAR = 2 / 3  # of the border of an image is background, where a thing stands alone


def jumble(images: Float[Tensor, "b c h w"], kind: str, seed: int = 0) -> Float[Tensor, "b c h w"]:
    """Images jumbled by the name of a way; `JUMBLES` lists them."""
    check_choice("jumble", "kind", kind, JUMBLES)
    if kind in MIRRORED:
        return mirror_parts(images, *MIRRORED[kind])
    return shuffle_parts(images, *SHUFFLES[kind], seed=seed)


def shuffle_parts(images: Float[Tensor, "b c h w"], rows: int, columns: int, seed: int = 0) -> Float[Tensor, "b c h w"]:
    """Each image cut into a grid of equal parts that change places, so that none stays where it was.

    The order is one random cycle through all places, another for each image. What is left over at the edges, where a
    side cannot be divided, stays as it is.
    """
    parts = _cut(images, rows, columns)
    count = rows * columns
    if count < 2:
        raise input_error("shuffle_parts", "two parts or more", f"{rows} x {columns}", "Cut finer.")
    cycle = torch.rand(len(images), count, generator=Generator().manual_seed(seed)).argsort(-1)
    origin = torch.empty_like(cycle).scatter_(1, cycle, cycle.roll(1, -1)).to(images.device)
    moved = parts[torch.arange(len(images), device=images.device).unsqueeze(-1), origin]
    return _join(images, moved, rows, columns)


def mirror_parts(images: Float[Tensor, "b c h w"], rows: int, columns: int) -> Float[Tensor, "b c h w"]:
    """Each image cut into a grid of equal parts, and each part turned left to right in its place."""
    return _join(images, _cut(images, rows, columns).flip(-1), rows, columns)


def _inside(images: Tensor, rows: int, columns: int) -> Tensor:
    """The middle of the images, as a view, with sides that can be divided."""
    check_count("jumble", "rows", rows)
    check_count("jumble", "columns", columns)
    height, width = images.shape[-2:]
    if rows > height or columns > width:
        raise input_error("jumble", f"at most {height} x {width} parts", f"{rows} x {columns}", "Cut into fewer.")
    high, wide = height - height % rows, width - width % columns
    top, left = (height - high) // 2, (width - wide) // 2
    return images[..., top : top + high, left : left + wide]


def _cut(images: Tensor, rows: int, columns: int) -> Tensor:
    """[b c h w] -> parts [b n c h w], row by row."""
    split = _inside(images, rows, columns).unflatten(-1, (columns, -1)).unflatten(-3, (rows, -1))  # [b c r h k w]
    return split.permute(0, 2, 4, 1, 3, 5).flatten(1, 2)


def _join(images: Tensor, parts: Tensor, rows: int, columns: int) -> Tensor:
    joined = images.clone()
    split = parts.unflatten(1, (rows, columns)).permute(0, 3, 1, 4, 2, 5)  # [b c r h k w]
    _inside(joined, rows, columns).copy_(split.flatten(-2).flatten(-3, -2))
    return joined


def side_by_side(left: Float[Tensor, "b c h w"], right: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
    """Two things side by side in an image of the same size, each in the middle of its half.

    Networks take images of one size, so each thing is cut out of its background (the color of the corners) and made
    smaller only where it is wider than half an image; its shape stays. Behind both is the mean of their backgrounds.
    """
    canvas = ((_corners(left) + _corners(right)) / 2).expand_as(left).clone()
    half = left.shape[-1] // 2
    for row in range(len(left)):
        for start, image in ((0, left[row]), (left.shape[-1] - half, right[row])):
            thing = _cut_out(image, half)
            high, wide = thing.shape[-2:]
            top, edge = (image.shape[-2] - high) // 2, start + (half - wide) // 2
            canvas[row, :, top : top + high, edge : edge + wide] += thing - _corners(image)
    return canvas.clamp(0, 1)


def stand_alone(images: Float[Tensor, "b c h w"]) -> bool:
    """Do most images show a thing before an even background, from which it can be cut out? Photos seldom do."""
    border = [images[..., 0, :], images[..., -1, :], images[..., :, 0], images[..., :, -1]]
    clear = (torch.cat(border, -1) - _corners(images).squeeze(-1)).abs().amax(1) <= INK  # [b n]
    return float((clear.float().mean(-1) >= CLEAR).float().mean()) > 0.5


def _corners(images: Tensor) -> Tensor:
    """The background [*b c 1 1]: the median of the four corners."""
    corners = torch.stack([images[..., y, x] for y in (0, -1) for x in (0, -1)])
    return corners.median(0).values[..., None, None]


def _cut_out(image: Tensor, width: int) -> Tensor:
    """What stands out of the background of one image [c h w], no wider than this."""
    ink = ((image - _corners(image)).abs() > INK).any(0)
    rows, columns = ink.any(1).nonzero(), ink.any(0).nonzero()
    if len(rows):
        image = image[:, int(rows[0]) : int(rows[-1]) + 1, int(columns[0]) : int(columns[-1]) + 1]
    if image.shape[-1] <= width:
        return image
    size = (max(1, round(image.shape[-2] * width / image.shape[-1])), width)
    return interpolate(image[None], size, mode="bilinear", antialias=True)[0].clamp(0, 1)


def other_partners(labels: Int[Tensor, " n"], seed: int = 0) -> Int[Tensor, " n"]:
    """For each example another one of another class, at random by the seed."""
    order, counts = labels.argsort(stable=True), torch.bincount(labels)
    others = len(labels) - counts
    if not int(others[labels].min()):
        raise input_error("side by side", "images of two classes or more", "one", "Take more images.")
    draws = torch.rand(len(labels), generator=Generator().manual_seed(seed), dtype=torch.float64)
    # In the order of classes, those of the others follow one's own, around the end.
    return order[(counts.cumsum(0)[labels] + (draws * others[labels]).long()) % len(labels)]


@dataclass(frozen=True)
class JumbleResult:
    """How sure a network is of images of one kind, and how often right: of both things, where there are two."""

    kind: str
    evaluation: Evaluation

    @property
    def confidence(self) -> Tensor:
        """The activation of the most active class; of the second, where two are to be named: [n]."""
        return self.evaluation.activations.gather(1, self.evaluation.predictions).amin(-1)

    @property
    def true_confidence(self) -> Tensor:
        """The activation of the true class; of the less active, where there are two: [n]."""
        return self.evaluation.activations.gather(1, self.evaluation.labels).amin(-1)

    @property
    def accuracy(self) -> float:
        return self.evaluation.accuracy

    @property
    def interval(self) -> tuple[float, float]:
        return wilson_interval(self.evaluation.count - self.evaluation.errors, self.evaluation.count)


def no_pairs(data: InMemoryImages) -> str:
    """Why these images are not put side by side, or nothing."""
    if len(data.classes) < 3:
        return "to name two of two classes is no art"
    return "" if stand_alone(data.images) else "the things do not stand before an even background"


def jumbled_sets(data: InMemoryImages, seed: int = 0) -> dict[str, InMemoryImages]:
    """The images whole, jumbled in every way, and, unless `no_pairs`, side by side with one of another class."""
    if data.labels.ndim > 1:
        raise input_error("jumble", "images that show one thing", "pairs", "Choose a run on single things.")
    sets = {"whole": data} | {kind: replace(data, images=jumble(data.images, kind, seed)) for kind in JUMBLES}
    if no_pairs(data):
        return sets
    partners = other_partners(data.labels, seed)
    pairs = side_by_side(data.images, data.images[partners])
    sets["side by side"] = InMemoryImages(pairs, torch.stack([data.labels, data.labels[partners]], -1), data.classes)
    return sets


def jumble_test(model: ImageModel, sets: dict[str, InMemoryImages]) -> dict[str, JumbleResult]:
    """What a network answers to `jumbled_sets`: images whole, jumbled in every way, and side by side."""
    check_images("jumble", model, sets["whole"].images)
    return {kind: JumbleResult(kind, evaluate(model, images)) for kind, images in sets.items()}


@dataclass(frozen=True)
class Sureness:
    """The mean confidence on shuffled images as a share of that on whole ones, with its 95 % interval.

    A single image has none.
    """

    share: float
    interval: tuple[float, float] | None


def sureness(results: dict[str, JumbleResult], z: float = 1.959964) -> Sureness:
    """How sure a network stays. The interval is that of a ratio of means: whole and shuffled, image by image."""
    whole = results["whole"].confidence.double()
    shuffled = torch.stack([results[kind].confidence for kind in SHUFFLES]).double().mean(0)
    share = float(shuffled.mean() / whole.mean())
    if len(whole) < 2:
        return Sureness(share, None)
    half = z * float((shuffled - share * whole).std() / whole.mean()) / len(whole) ** 0.5
    return Sureness(share, (max(0.0, share - half), share + half))
