"""The values that flow between layers, and the letters of their axes.

Letters, the same in annotations, einsum strings and comments: ``b`` batch, ``i`` child capsule, ``j`` parent
capsule, ``e`` child pose, ``d`` vote and parent pose, ``h w`` grid, ``z`` its depth, ``t`` token, ``k`` kernel offset,
``c`` channel, ``y`` class. The pose is the last axis, the capsule the one before it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from torchcaps._core.errors import input_error, shape_text

GRIDS = {1: "t", 2: "h w", 3: "z h w"}  # the letters of a grid, by the number of its axes
Poses = Float[Tensor, "*b i e"]
Activations = Float[Tensor, "*b i"]
Mask = Bool[Tensor, "*b i"]
Votes = Float[Tensor, "*b i j d"]
Couplings = Float[Tensor, "*b i j"]


class Capsules(NamedTuple):
    """The input and output of capsule layers: poses [*b i e], activations [*b i] and an optional mask [*b i].

    mask: True where a capsule is real, False where it is padding; None if all are real. The poses of a grid of capsules
    are [b h w i e] (or [b t i e], or [b z h w i e]).
    """

    poses: Tensor
    activations: Tensor
    mask: Tensor | None = None

    def silent_poses(self) -> Tensor:
        """The poses, with those of masked capsules set to zero."""
        return self.poses if self.mask is None else self.poses.masked_fill(~self.mask.unsqueeze(-1), 0)

    def silent(self) -> Capsules:
        """The same capsules, with poses and activations of masked ones set to zero."""
        if self.mask is None:
            return self
        return Capsules(self.silent_poses(), self.activations.masked_fill(~self.mask, 0), self.mask)

    def to(self, *args: Any, **options: Any) -> Capsules:
        """Convert to another device or dtype, with the arguments of `Tensor.to`. The mask keeps its dtype."""
        poses, activations = self.poses.to(*args, **options), self.activations.to(*args, **options)
        return Capsules(poses, activations, None if self.mask is None else self.mask.to(poses.device))

    def flatten(self) -> Capsules:
        """Flatten the axes of a grid into one axis of capsules: [b h w i e] -> [b (h w i) e]."""
        return Capsules(
            self.poses.flatten(1, -2),
            self.activations.flatten(1),
            None if self.mask is None else self.mask.flatten(1),
        )


class Routed(NamedTuple):
    """The result of a routing: parent poses [*b j d], activations [*b j], and the final couplings [*b i j]."""

    poses: Tensor
    activations: Tensor
    couplings: Tensor

    def to(self, *args: Any, **options: Any) -> Routed:
        """The same on another device, or of another dtype, as `Tensor.to`."""
        return Routed(*(part.to(*args, **options) for part in self))


class Step(NamedTuple):
    """One iteration of a routing: its result `routed` and its `objective` [*b] (None if no objective is known)."""

    routed: Routed
    objective: Tensor | None


def can_look_at(values: Tensor) -> bool:
    """Whether values can be inspected cheaply.

    False on devices other than the CPU (reading would synchronize), under torch.func, while compiling, and for empty
    tensors.
    """
    if torch.compiler.is_compiling() or values.device.type != "cpu" or values.numel() == 0:
        return False
    return torch._C._functorch.peek_interpreter_stack() is None


def check_labels(owner: str, labels: Tensor, classes: int) -> None:
    """Raise an `InputError` if labels are not class indices from 0 to classes - 1; owner is named in the message.

    Skipped where labels cannot be inspected cheaply (`can_look_at`).
    """
    if not can_look_at(labels):
        return
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        got = low if low < 0 else high
        raise input_error(owner, f"class indices from 0 to {classes - 1}", got, "Number the classes from 0 on.")


def truth_of(labels: Tensor, classes: int, dtype: torch.dtype) -> Tensor:
    """One-hot encode labels, class indices [*b], as [*b classes] of this dtype, without inspecting values."""
    return (labels.unsqueeze(-1) == torch.arange(classes, device=labels.device)).to(dtype)


def check_capsules(owner: str, capsules: Capsules, axes: str, in_capsules: int | None, in_dim: int) -> None:
    """Raise an `InputError` if the poses of `capsules` are not `axes`, such as "b i e" = (*, in_capsules, in_dim).

    Activations and mask must have the shape of the poses without the last axis. owner is named in messages.
    in_capsules: None accepts any number of capsules.
    """
    if not isinstance(capsules, Capsules):
        raise input_error(owner, "Capsules", f"a {type(capsules).__name__}", "Pass Capsules(poses, activations).")
    poses, activations, mask = capsules
    rank = len(axes.split())
    if poses.ndim != rank:
        remedy = "Call .flatten() on a grid first." if rank == 3 and poses.ndim > 3 else f"Give poses {rank} axes."
    elif poses.shape[-1] != in_dim:
        remedy = f"Set in_dim={poses.shape[-1]}."
    elif in_capsules is not None and poses.shape[-2] != in_capsules:
        remedy = f"Set in_capsules={poses.shape[-2]}."
    else:
        _check_beside_poses(owner, "activations", activations, poses)
        if mask is not None:
            _check_beside_poses(owner, "mask", mask, poses)
        return
    sizes = ["*"] * (rank - 2) + ["any" if in_capsules is None else str(in_capsules), str(in_dim)]
    raise input_error(owner, f"poses [{axes}] = ({', '.join(sizes)})", shape_text(poses.shape), remedy)


def _check_beside_poses(owner: str, name: str, tensor: Tensor | None, poses: Tensor) -> None:
    if tensor is None or tensor.shape != poses.shape[:-1]:
        expected = f"{name} {shape_text(poses.shape[:-1])}, one for each pose"
        got = "None" if tensor is None else shape_text(tensor.shape)
        raise input_error(owner, expected, got, f"Give {name} the shape of the poses less the last axis.")
