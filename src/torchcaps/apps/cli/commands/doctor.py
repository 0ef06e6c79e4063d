"""torchcaps doctor: what this machine supports. Heavy modules are imported inside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import arg

from torchcaps.apps.cli.parsing import parse


@dataclass(frozen=True)
class Doctor:
    """Report compiler, native functions, Triton, GPU and threads of this machine, and the backends in use."""

    device: Annotated[str, arg(metavar="NAME")] = "auto"
    """Device: auto, cpu, cuda or mps."""


def doctor_command(words: list[str]) -> None:
    options = parse(Doctor, words, "doctor", "  torchcaps doctor\n  torchcaps doctor --device cuda")
    from torchcaps._core.device import choose_device
    from torchcaps.apps.bench.machine import machine_lines, plan_lines

    device = choose_device("doctor", options.device)
    print("\n".join([*machine_lines(device), "", *plan_lines(device)]))
