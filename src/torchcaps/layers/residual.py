"""What lets routed layers be stacked: normalized poses of children, and skip connections past a layer.

Both are off unless asked for; the papers' networks have neither. A stack in which each layer normalizes what it is
given and adds its parents to their children (as transformers do) keeps poses, activations and gradients at one scale,
however deep it is.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import pad

from torchcaps._core.errors import input_error
from torchcaps._core.types import Capsules
from torchcaps.votes.windows import Windows


def check_skip(owner: str, in_capsules: int | None, out_capsules: int, in_dim: int, out_dim: int) -> None:
    """Refuse a skip connection between capsules that do not correspond to each other."""
    if in_capsules != out_capsules or in_dim != out_dim:
        expected = "as many parents as children, with poses of one size, for skip=True"
        got = f"{in_capsules} x {in_dim} -> {out_capsules} x {out_dim}"
        raise input_error(owner, expected, got, "Choose equal sizes, or skip=False.")


def at_centers(values: Tensor, windows: Windows) -> Tensor:
    """Values of places [b *grid ...] at the middle of each window, [b *out ...]; zero where that is outside."""
    for axis, count in enumerate(windows.out):
        stride, size = windows.stride[axis], values.shape[1 + axis]
        first = windows.kernel[axis] // 2 * windows.dilation[axis] - windows.padding[axis]
        end = first + stride * (count - 1) + 1
        if end > size:  # an even kernel with padding reaches beyond the last place
            values = pad(values, [0, 0] * (values.ndim - 2 - axis) + [0, end - size])
        values = values[(slice(None),) * (1 + axis) + (slice(first, end, stride),)]
    return values


def add_children(parents: Capsules, children: Capsules, windows: Windows | None) -> Capsules:
    """Parents with the poses of the children in their places added, and the mean of both activations.

    windows: through which parents see a grid of children; the child at the middle is in a parent's place. A parent that
    is masked stays zero.
    """
    if windows is not None:
        children = Capsules(*(None if part is None else at_centers(part, windows) for part in children))  # type: ignore[arg-type]
    added = children.silent()._replace(mask=parents.mask).silent()
    activations = (parents.activations + added.activations) / 2
    return Capsules(parents.poses + added.poses, activations, parents.mask)
