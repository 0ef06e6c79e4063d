"""The meaning of the dimensions of a class capsule: change one and reconstruct, or change the image and correlate.

Sabour, Frosst, Hinton 2017, section 5.1 and figure 4: every dimension from -0.25 to 0.25 in steps of 0.05.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import radians

import torch
from jaxtyping import Float
from torch import Generator, Tensor
from torch.nn.functional import max_pool2d

from torchcaps._core.errors import check_count, check_positive, input_error
from torchcaps._core.progress import bar
from torchcaps._core.types import Capsules
from torchcaps.analysis.evaluate import batches, in_eval_mode
from torchcaps.analysis.reconstruct import check_decoder
from torchcaps.data import Examples
from torchcaps.data.augment import linear_maps, warp
from torchcaps.models import ImageModel

FACTORS = ("shift x", "shift y", "rotation", "scale", "thickness")


@dataclass(frozen=True)
class Sheet:
    """Reconstructions from the capsule of a class when one dimension d of its pose is changed by an offset s.

    effects: the effect of each dimension, the root mean square difference between its first and last column.
    """

    image: Float[Tensor, "c h w"]
    label: int
    activation: float
    offsets: Float[Tensor, " s"]
    drawn: Float[Tensor, "d s c h w"]

    @property
    def effects(self) -> Float[Tensor, " d"]:
        return (self.drawn[:, -1] - self.drawn[:, 0]).square().flatten(1).mean(-1).sqrt()


@dataclass(frozen=True)
class Meanings:
    """The correlation of every pose dimension of a class with the changes of its images, for factors f.

    NaN if a class has no images, or a dimension is constant. shuffled: the same with factors of other images.
    """

    classes: tuple[str, ...]
    factors: tuple[str, ...]
    correlations: Float[Tensor, "y d f"]
    shuffled: Float[Tensor, "y d f"]

    @property
    def strength(self) -> Float[Tensor, "d f"]:
        """The absolute correlation, averaged over classes."""
        return self.correlations.abs().nanmean(0)

    @property
    def best(self) -> Float[Tensor, " f"]:
        """The absolute correlation of the dimension that follows a factor best in its class, averaged over classes.

        The maximum of many is never zero: compare with `chance`.
        """
        return _largest(self.correlations).nanmean(0)

    @property
    def chance(self) -> float:
        """The value of `best` expected by chance, averaged over factors."""
        return float(_largest(self.shuffled).nanmean())


def _largest(correlations: Float[Tensor, "y d f"]) -> Float[Tensor, "y f"]:
    """The largest absolute correlation over dimensions; NaN if there is none."""
    seen = correlations.isfinite().any(1)
    return correlations.abs().nan_to_num(-1).amax(1).where(seen, torch.nan)


@in_eval_mode
@torch.no_grad()
def perturb(
    model: ImageModel, image: Float[Tensor, "c h w"], label: int | None = None, span: float = 0.25, steps: int = 11
) -> Sheet:
    """Change every pose dimension of a class (default: the most active one) from -span to span, and reconstruct."""
    check_decoder("perturb", model)
    check_count("perturb", "steps", steps, 2)
    check_positive("perturb", "span", span)
    image = image.to(next(model.parameters()).device)
    capsules = model(image[None])
    label = int(capsules.activations[0].argmax()) if label is None else label
    offsets = torch.linspace(-span, span, steps, device=image.device)
    dim = capsules.poses.shape[-1]
    moves = torch.eye(dim, device=image.device)[:, None] * offsets[:, None]  # [d s d]
    poses = capsules.poses.expand(dim * steps, -1, -1).clone()
    poses[:, label] += moves.flatten(0, 1)
    activations = capsules.activations.expand(dim * steps, -1)
    labels = torch.full((dim * steps,), label, device=image.device)
    drawn = model.reconstruct(Capsules(poses, activations), labels).unflatten(0, (dim, steps))
    return Sheet(image.cpu(), label, float(capsules.activations[0, label]), offsets.cpu(), drawn.cpu())


def vary(images: Float[Tensor, "b c h w"], generator: Generator) -> tuple[Tensor, Float[Tensor, "b f"]]:
    """Each image translated, rotated, scaled and made thinner or thicker; the amounts have a column for each factor.

    Factors are `FACTORS`. Shifts are up to a fourteenth of the width in pixels (2 for 28), rotations up to 20 degrees,
    scales 0.8 to 1.2. Thickness goes from -1 (eroded by a pixel on all sides) over 0 (unchanged) to 1 (dilated by a
    pixel).
    """
    draws = 2 * torch.rand(len(images), len(FACTORS), generator=generator) - 1
    units = torch.tensor([images.shape[-1] / 14, images.shape[-1] / 14, 20.0, 0.2, 1.0])
    factors = draws * units + torch.tensor([0.0, 0.0, 0.0, 1.0, 0.0])
    x, y, turn, scale, thickness = factors.to(images.device).unbind(-1)
    thick = max_pool2d(images, 3, 1, padding=1)
    thin = -max_pool2d(-images, 3, 1, padding=1)
    much = thickness.view(-1, 1, 1, 1)
    shaped = images + much.clamp(min=0) * (thick - images) + (-much).clamp(min=0) * (thin - images)
    linear = linear_maps(turn * radians(1), torch.zeros_like(turn), scale, scale)
    return warp(shaped, linear, torch.stack([x, y], -1), "border"), factors


def within(values: Float[Tensor, "n v d"], factors: Float[Tensor, "n v f"]) -> Float[Tensor, "d f"]:
    """The correlation of values with factors over variations v of each object n, after subtracting each object's means.

    NaN for constant values.
    """
    moved, known = ((part - part.mean(1, keepdim=True)).flatten(0, 1).double() for part in (values, factors))
    length = moved.square().sum(0).sqrt()
    still = length <= 1e-6 * values.double().flatten(0, 1).square().sum(0).sqrt()  # constant up to rounding
    products = (moved.T @ known) / (length[:, None] * known.square().sum(0).sqrt())
    return products.masked_fill(still[:, None], torch.nan).to(values.dtype)


@in_eval_mode
@torch.no_grad()
def dimension_meanings(
    model: ImageModel, data: Examples, per_class: int = 20, variations: int = 32, seed: int = 0
) -> Meanings:
    """Which dimension follows which factor: the poses of the true class for variations of images with known factors.

    Correlations are computed within the variations of each image, so that differences between images do not count.
    """
    if data.batch(torch.arange(1)).labels.ndim > 1:
        raise input_error("dimension_meanings", "images of one object each", "pairs", "Use a run on single objects.")
    device = next(model.parameters()).device
    generator, lots = Generator().manual_seed(seed), Generator().manual_seed(seed + 1)
    chosen = some_of_each(data, per_class, seed)
    correlations: list[Tensor] = []
    shuffled: list[Tensor] = []
    for label in bar(range(len(data.classes)), "varying images"):
        poses, factors = [], []
        for index in chosen[label]:
            image = data.batch(torch.tensor([index])).inputs
            varied, known = vary(image.repeat(variations, 1, 1, 1), generator)
            poses.append(model(varied.to(device)).poses[:, label].cpu())
            factors.append(known)
        others = [known[torch.randperm(variations, generator=lots)] for known in factors]
        for found, told in ((correlations, factors), (shuffled, others)):
            nothing = torch.full((1, len(FACTORS)), torch.nan)
            found.append(within(torch.stack(poses), torch.stack(told)) if poses else nothing)
    dims = max(len(part) for part in correlations)
    both = (torch.stack([part.expand(dims, -1) for part in found]) for found in (correlations, shuffled))
    return Meanings(tuple(data.classes), FACTORS, *both)


def some_of_each(data: Examples, count: int, seed: int = 0) -> list[list[int]]:
    """The indices of so many random examples of every class; data may be sorted."""
    labels = torch.cat([batch.labels for batch in batches(data, 512)])
    order = torch.randperm(len(labels), generator=Generator().manual_seed(seed))
    return [order[labels[order] == label][:count].tolist() for label in range(len(data.classes))]
