"""The one form of error message, and the checks that use it. No torch here: the command line must answer at once."""

from __future__ import annotations

from collections.abc import Sequence

from torchcaps._core.neutral import shown


class InputError(ValueError):
    """Something given that cannot be used, told in one sentence. The command line shows it without a traceback."""


def input_error(owner: str, expected: object, got: object, remedy: str) -> InputError:
    """The one form of error message: owner, what was expected, what was found, what to do.

    Of another error that was found, the first line is told; some have many.
    """
    if isinstance(got, Exception):
        said = getattr(got, "strerror", None) or str(got)
        got = next(iter(said.splitlines()), "").rstrip(":. ") or type(got).__name__
    return InputError(shown(f"{owner}: expected {expected}, got {got}. {remedy}"))


def shape_text(shape: Sequence[int]) -> str:
    return "(" + ", ".join(str(size) for size in shape) + ")"


def check_choice(owner: str, name: str, value: object, choices: Sequence[object]) -> None:
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise input_error(owner, f"{name} to be one of {listed}", repr(value), f"Choose one of these as {name}.")


def check_range(owner: str, name: str, value: float, low: float, high: float = float("inf")) -> None:
    if not isinstance(value, int | float) or not low <= value <= high:
        raise input_error(owner, f"{name} between {low:g} and {high:g}", repr(value), f"Choose {name} in this range.")


def check_positive(owner: str, name: str, value: float) -> None:
    if not isinstance(value, int | float) or not value > 0:
        raise input_error(owner, f"{name} above 0", repr(value), f"Choose a positive {name}.")


def check_count(owner: str, name: str, value: int, low: int = 1) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise input_error(
            owner, f"{name} to be a whole number from {low} on", repr(value), f"Choose a whole number as {name}."
        )
