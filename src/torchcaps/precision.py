"""Half precision and autocast, asked in one place."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

HALVES = (torch.float16, torch.bfloat16)


def autocasting(device: str) -> bool:
    """Is autocast on for this kind of device?"""
    return device != "meta" and torch.is_autocast_enabled(device)  # meta tensors know no autocast


def no_autocast(device: str) -> AbstractContextManager[Any]:
    return torch.autocast(device, enabled=False) if autocasting(device) else nullcontext()


def autocast_as_now(device: str) -> Callable[[], AbstractContextManager[Any]]:
    """Autocast as it is now, to be entered later."""
    if not autocasting(device):
        return nullcontext
    dtype = torch.get_autocast_dtype(device)
    return lambda: torch.autocast(device, dtype=dtype)
