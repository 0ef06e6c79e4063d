"""A bound on what flows back from iteration to iteration.

Where activations are all but zero and votes are large, the gradient of one iteration is a number of thirty digits, and
that of three is beyond the range of float32: infinity less infinity. What cannot be written down saturates instead.
"""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor

Value = TypeVar("Value")


def bounded(values: Value) -> Value:
    """The same tensor, or tuple of tensors, whose gradient saturates at the fifth root of the largest number.

    Far above any gradient that training could use: 5e7 in float32, 4e61 in float64.
    """
    if torch.compiler.is_compiling():
        return values
    for part in values if isinstance(values, tuple) else (values,):
        if isinstance(part, Tensor) and part.requires_grad:
            part.register_hook(_saturated)
    return values


def _saturated(gradient: Tensor | None) -> Tensor | None:
    if gradient is None:  # as gradients of gradients may be
        return None
    most = largest(gradient.dtype)
    return gradient.clamp(-most, most)


def largest(dtype: torch.dtype) -> float:
    """The largest gradient."""
    return float(torch.finfo(dtype).max ** 0.2)
