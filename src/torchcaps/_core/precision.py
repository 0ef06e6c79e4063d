"""Half precision and autocast."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any

import torch
from torch import Tensor

HALVES = (torch.float16, torch.bfloat16)


def autocasting(device: str) -> bool:
    """Whether autocast is enabled for this device type."""
    return device != "meta" and torch.is_autocast_enabled(device)  # meta tensors have no autocast


def no_autocast(device: str) -> AbstractContextManager[Any]:
    """A context without autocast."""
    return torch.autocast(device, enabled=False) if autocasting(device) else nullcontext()


def autocast_as_now(device: str) -> Callable[[], AbstractContextManager[Any]]:
    """A function that restores the current autocast state as a context."""
    if device == "meta":
        return nullcontext
    enabled, dtype = autocasting(device), torch.get_autocast_dtype(device)
    return lambda: torch.autocast(device, dtype=dtype, enabled=enabled)


def without_autocast(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate the backward pass of an autograd function to run without autocast."""

    @wraps(backward)
    def plain(ctx: Any, *gradients: Tensor | None) -> Any:
        device = next((gradient.device.type for gradient in gradients if gradient is not None), "cpu")
        with no_autocast(device):
            return backward(ctx, *gradients)

    return plain
