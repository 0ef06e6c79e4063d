"""The command that tells what this machine can do. Heavy modules are imported inside."""

from __future__ import annotations

from torchcaps.apps.cli.parsing import parse


def doctor_command(words: list[str]) -> None:
    from torchcaps.apps.cli.options import Doctor

    options = parse(Doctor, words, "doctor", "  torchcaps doctor\n  torchcaps doctor --device cuda")
    from torchcaps._core.device import choose_device
    from torchcaps.apps.bench.machine import machine_lines, plan_lines

    device = choose_device("doctor", options.device)
    print("\n".join([*machine_lines(device), "", *plan_lines(device)]))
