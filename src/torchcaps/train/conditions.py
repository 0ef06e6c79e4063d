"""Conditions that affect the last bits of trained weights besides the options: versions, threads, processor."""

from __future__ import annotations

import platform
from collections.abc import Mapping

import torch

from torchcaps import __version__
from torchcaps.votes.native import describe


def conditions(device: str) -> dict[str, str]:
    """The conditions of this process, by name."""
    found = {
        "torchcaps": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {torch.backends.cpu.get_cpu_capability()}",
        "device": device,
        "threads": str(torch.get_num_threads()),
        "native": describe(),
    }
    if device == "cuda":
        found["GPU"] = f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}"
    return found


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Descriptions of the conditions that changed."""
    return [f"{name} {now.get(name, 'none')} (was {value})" for name, value in before.items() if now.get(name) != value]
