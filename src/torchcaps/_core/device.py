"""The device to compute on, by name."""

from __future__ import annotations

import torch

from torchcaps._core.errors import check_choice, input_error

DEVICES = ("auto", "cpu", "cuda", "mps")


def choose_device(owner: str, name: str = "auto") -> torch.device:
    """The device of this name; "auto" is the best one available. Raises an `InputError` if the machine lacks it."""
    check_choice(owner, "device", name, DEVICES)
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return torch.device(next(device for device, is_there in there.items() if is_there))
    if not there[name]:
        raise input_error(owner, f"a device {name}", "none on this machine", "Drop --device.")
    return torch.device(name)
