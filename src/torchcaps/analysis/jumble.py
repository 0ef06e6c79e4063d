"""Jumbled images: is a network still confident if all parts of an object are present, but in wrong places?

A capsule represents a whole whose parts agree on its pose. It should not be active if the parts of an image are
shuffled, and two capsules should be active if two objects stand side by side (Su 2018, kexue.fm 4819), although
training images show only one.
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

# Shuffled: rows and columns of the grid. Mirrored: each part is flipped horizontally in its place.
SHUFFLES = {"2x2": (2, 2), "3x3": (3, 3), "rows": (4, 1)}
MIRRORED = {"mirrored": (2, 2)}
JUMBLES = [*SHUFFLES, *MIRRORED]
INK = 0.1  # a pixel is ink if it lies further than this from the background
CLEAR = 2 / 3  # of the border of an image must be background for an object to be cut out


def jumble(images: Float[Tensor, "b c h w"], kind: str, seed: int = 0) -> Float[Tensor, "b c h w"]:
    """Jumble images by a method of this name; `JUMBLES` lists them."""
    check_choice("jumble", "kind", kind, JUMBLES)
    if kind in MIRRORED:
        return mirror_parts(images, *MIRRORED[kind])
    return shuffle_parts(images, *SHUFFLES[kind], seed=seed)


def shuffle_parts(images: Float[Tensor, "b c h w"], rows: int, columns: int, seed: int = 0) -> Float[Tensor, "b c h w"]:
    """Cut each image into a grid of equal parts and permute them, so that none stays in its place.

    The permutation is one random cycle through all places, a different one for each image. If a side is not divisible,
    the remaining pixels at the edges stay in place.
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
    """Cut each image into a grid of equal parts, and flip each part horizontally in its place."""
    return _join(images, _cut(images, rows, columns).flip(-1), rows, columns)


def _inside(images: Tensor, rows: int, columns: int) -> Tensor:
    """The center of the images, as a view, with sides that are divisible by the grid."""
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
    """Two objects side by side in an image of the same size, each in the middle of its half.

    Networks take images of one size, so each object is cut out of its background (the color of the corners), and scaled
    down, with its proportions, if it is wider than half an image. The new background is the mean of both.
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
    """Whether most images show an object on a uniform background, from which it can be cut out; photos seldom do."""
    border = [images[..., 0, :], images[..., -1, :], images[..., :, 0], images[..., :, -1]]
    clear = (torch.cat(border, -1) - _corners(images).squeeze(-1)).abs().amax(1) <= INK  # [b n]
    return float((clear.float().mean(-1) >= CLEAR).float().mean()) > 0.5


def _corners(images: Tensor) -> Tensor:
    """The background [*b c 1 1]: the median of the four corners."""
    corners = torch.stack([images[..., y, x] for y in (0, -1) for x in (0, -1)])
    return corners.median(0).values[..., None, None]


def _cut_out(image: Tensor, width: int) -> Tensor:
    """The object in one image [c h w] without its background, no wider than `width`."""
    ink = ((image - _corners(image)).abs() > INK).any(0)
    rows, columns = ink.any(1).nonzero(), ink.any(0).nonzero()
    if len(rows):
        image = image[:, int(rows[0]) : int(rows[-1]) + 1, int(columns[0]) : int(columns[-1]) + 1]
    if image.shape[-1] <= width:
        return image
    size = (max(1, round(image.shape[-2] * width / image.shape[-1])), width)
    return interpolate(image[None], size, mode="bilinear", antialias=True)[0].clamp(0, 1)


def other_partners(labels: Int[Tensor, " n"], seed: int = 0) -> Int[Tensor, " n"]:
    """For each example a random other one of another class."""
    order, counts = labels.argsort(stable=True), torch.bincount(labels)
    others = len(labels) - counts
    if not int(others[labels].min()):
        raise input_error("side by side", "images of two classes or more", "one", "Take more images.")
    draws = torch.rand(len(labels), generator=Generator().manual_seed(seed), dtype=torch.float64)
    # In the order of classes, those of the others follow one's own, around the end.
    return order[(counts.cumsum(0)[labels] + (draws * others[labels]).long()) % len(labels)]


@dataclass(frozen=True)
class JumbleResult:
    """Predictions for images of one kind. If an image shows two objects, both must be right."""

    kind: str
    evaluation: Evaluation

    @property
    def confidence(self) -> Tensor:
        """The activation of the most active class, or of the second if an image shows two objects: [n]."""
        return self.evaluation.activations.gather(1, self.evaluation.predictions).amin(-1)

    @property
    def true_confidence(self) -> Tensor:
        """The activation of the true class, or of the less active one if an image shows two objects: [n]."""
        return self.evaluation.activations.gather(1, self.evaluation.labels).amin(-1)

    @property
    def accuracy(self) -> float:
        return self.evaluation.accuracy

    @property
    def interval(self) -> tuple[float, float]:
        return wilson_interval(self.evaluation.count - self.evaluation.errors, self.evaluation.count)


def no_pairs(data: InMemoryImages) -> str:
    """The reason why these images cannot be put side by side; None if they can."""
    if len(data.classes) < 3:
        return "with two classes, naming both is trivial"
    return "" if stand_alone(data.images) else "the objects have no uniform background"


def jumbled_sets(data: InMemoryImages, seed: int = 0) -> dict[str, InMemoryImages]:
    """The whole images, jumbled ones of every method, and, unless `no_pairs`, pairs side by side."""
    if data.labels.ndim > 1:
        raise input_error("jumble", "images that show one object", "pairs", "Choose a run on single objects.")
    sets = {"whole": data} | {kind: replace(data, images=jumble(data.images, kind, seed)) for kind in JUMBLES}
    if no_pairs(data):
        return sets
    partners = other_partners(data.labels, seed)
    pairs = side_by_side(data.images, data.images[partners])
    sets["side by side"] = InMemoryImages(pairs, torch.stack([data.labels, data.labels[partners]], -1), data.classes)
    return sets


def jumble_test(model: ImageModel, sets: dict[str, InMemoryImages]) -> dict[str, JumbleResult]:
    """The predictions of a network for `jumbled_sets`."""
    check_images("jumble", model, sets["whole"].images)
    return {kind: JumbleResult(kind, evaluate(model, images)) for kind, images in sets.items()}


@dataclass(frozen=True)
class Sureness:
    """The mean confidence on shuffled images as a fraction of that on whole ones, with its 95 % interval.

    A single image has no interval.
    """

    share: float
    interval: tuple[float, float] | None


def sureness(results: dict[str, JumbleResult], z: float = 1.959964) -> Sureness:
    """The confidence that is kept. The interval is that of a ratio of means, paired by image."""
    whole = results["whole"].confidence.double()
    shuffled = torch.stack([results[kind].confidence for kind in SHUFFLES]).double().mean(0)
    share = float(shuffled.mean() / whole.mean())
    if len(whole) < 2:
        return Sureness(share, None)
    half = z * float((shuffled - share * whole).std() / whole.mean()) / len(whole) ** 0.5
    return Sureness(share, (max(0.0, share - half), share + half))
