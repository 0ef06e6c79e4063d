"""Bounds the gradients between iterations.

If activations are nearly zero and votes are large, the gradient of one iteration can reach 1e30, and that of three
exceeds the range of float32, which leads to infinity minus infinity. Gradients saturate instead.
"""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor

Value = TypeVar("Value")


def bounded(values: Value) -> Value:
    """The same tensor, or tuple of tensors, with gradients clamped to the fifth root of the largest number.

    This is far above any useful gradient: 5e7 in float32, 4e61 in float64.
    """
    if torch.compiler.is_compiling():
        return values
    for part in values if isinstance(values, tuple) else (values,):
        if isinstance(part, Tensor) and part.requires_grad and not _saturates(part):
            part.register_hook(_saturated)
    return values


def _saturates(part: Tensor) -> bool:
    """Whether the function that made it clamps the gradients itself."""
    return getattr(getattr(part.grad_fn, "_forward_cls", None), "saturates", False)


def _saturated(gradient: Tensor | None) -> Tensor | None:
    if gradient is None:  # possible for gradients of gradients
        return None
    most = largest(gradient.dtype)
    return gradient.clamp(-most, most)


def largest(dtype: torch.dtype) -> float:
    """The bound of gradients of this dtype."""
    return float(torch.finfo(dtype).max ** 0.2)
