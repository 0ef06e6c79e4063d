"""Receptive fields: the pixels that a primary capsule can see, and those that influence it."""

from __future__ import annotations

from contextlib import ExitStack

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn
from torch.nn.functional import avg_pool2d

from torchcaps.analysis.evaluate import eval_mode, in_eval_mode
from torchcaps.models import CapsuleModel
from torchcaps.models.crops import Standardize

# Normalization layers depend on the whole image, which does not count as a receptive field.
SCALING = (Standardize, nn.GroupNorm, nn.InstanceNorm2d, nn.LayerNorm)
FAINT = 1e-5  # a smaller gradient, relative to the largest, is rounding


def receptive_fields(model: CapsuleModel) -> Int[Tensor, "h w 4"]:
    """The receptive field of each position of primary capsules: top, left, bottom, right (the last two exclusive).

    Computed from gradients on noise, for any encoder. A receptive field is a rectangle whose rows depend only on the
    row of its position and whose columns only on the column, so one position of each row and column suffices.
    """
    noise = torch.rand(1, *model.image_shape, generator=Generator().manual_seed(0))
    with eval_mode(model) as device, ExitStack() as stack:
        noise = noise.to(device)
        for module in model.encoder.modules():
            if isinstance(module, SCALING):
                stack.enter_context(_passing(module))
        with torch.no_grad():
            height, width = model.children_of(noise).poses.shape[1:3]
        steps = torch.arange(max(height, width))
        rows, columns = steps.clamp(max=height - 1), steps.clamp(max=width - 1)
        images = noise.repeat(len(steps), 1, 1, 1)
        with torch.enable_grad():
            poses = model.children_of(images.requires_grad_()).poses
            (gradient,) = torch.autograd.grad(poses[steps, rows, columns].sum(), images)
    strength = gradient.abs().amax(1)  # [n h w]
    seen = strength > FAINT * strength.amax((1, 2), keepdim=True)
    top, bottom = _ends(seen.any(2)[:height])
    left, right = _ends(seen.any(1)[:width])
    boxes = torch.empty(height, width, 4, dtype=torch.long)
    boxes[..., 0], boxes[..., 2] = top[:, None], bottom[:, None]
    boxes[..., 1], boxes[..., 3] = left, right
    return boxes


@in_eval_mode
def part_maps(model: CapsuleModel, image: Float[Tensor, "c h w"], parts: list[int]) -> Float[Tensor, "n h w"]:
    """The influence of each pixel on the activations of primary capsules: |da / dx|.

    The maximum over channels, smoothed over 3 x 3 pixels. parts: indices of primary capsules in the flattened grid.
    """
    image = image.to(next(model.parameters()).device)
    images = image[None].detach().clone().requires_grad_()
    with torch.enable_grad():
        activations = model.children_of(images).activations.flatten()
    maps = [torch.autograd.grad(activations[part], images, retain_graph=True)[0][0].abs().amax(0) for part in parts]
    return avg_pool2d(torch.stack(maps), 3, 1, padding=1, count_include_pad=False).cpu()


def _passing(module: nn.Module) -> torch.utils.hooks.RemovableHandle:
    """Replace a module by the identity, until the handle is closed."""
    return module.register_forward_hook(lambda _, given, __: given[0])


def _ends(seen: Tensor) -> tuple[Tensor, Tensor]:
    """The first true index of each row, and one after the last."""
    counts = seen.byte()
    return counts.argmax(-1), seen.shape[-1] - counts.flip(-1).argmax(-1)
