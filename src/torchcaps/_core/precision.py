"""Half precision and autocast, asked in one place."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any

import torch
from torch import Tensor

HALVES = (torch.float16, torch.bfloat16)


def autocasting(device: str) -> bool:
    """Is autocast on for this kind of device?"""
    return device != "meta" and torch.is_autocast_enabled(device)  # meta tensors know no autocast


def no_autocast(device: str) -> AbstractContextManager[Any]:
    return torch.autocast(device, enabled=False) if autocasting(device) else nullcontext()


def autocast_as_now(device: str) -> Callable[[], AbstractContextManager[Any]]:
    """Autocast as it is now, to be entered later."""
    if device == "meta":
        return nullcontext
    enabled, dtype = autocasting(device), torch.get_autocast_dtype(device)
    return lambda: torch.autocast(device, dtype=dtype, enabled=enabled)


def without_autocast(backward: Callable[..., Any]) -> Callable[..., Any]:
    """A backward pass of an autograd function that keeps its precision, wherever it is called from."""

    @wraps(backward)
    def plain(ctx: Any, *gradients: Tensor | None) -> Any:
        device = next((gradient.device.type for gradient in gradients if gradient is not None), "cpu")
        with no_autocast(device):
            return backward(ctx, *gradients)

    return plain
