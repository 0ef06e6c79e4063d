"""The form of all error messages, and checks that use it. Does not import torch, to keep the command line fast."""

from __future__ import annotations

from collections.abc import Sequence

from torchcaps._core.arguments import as_called
from torchcaps._core.neutral import shown


class InputError(ValueError):
    """Invalid input, described in one sentence. The command line prints it without a traceback."""


def input_error(owner: str, expected: object, got: object, remedy: str) -> InputError:
    """An `InputError` in the form of all error messages: "owner: expected ..., got .... remedy".

    owner: the function, class, option or file that reports the error. expected: what is valid. got: what was given; if
    it is an exception, only its first line is shown. remedy: what the user can do, a full sentence. Arguments
    are written as options (--batch-size), and shown as arguments (batch_size) to callers in Python.
    """
    if isinstance(got, Exception):
        got = first_line(got)
    return InputError(as_called(shown(f"{owner}: expected {expected}, got {got}. {remedy}")))


def first_line(error: Exception) -> str:
    """The first line of an error's message without its final period; its class if there is none."""
    said = getattr(error, "strerror", None) or str(error)
    return next(iter(said.splitlines()), "").rstrip(":. ") or type(error).__name__


def shape_text(shape: Sequence[int]) -> str:
    """A shape as text, (2, 3)."""
    return "(" + ", ".join(str(size) for size in shape) + ")"


def check_choice(owner: str, name: str, value: object, choices: Sequence[object]) -> None:
    """Raise an `InputError` of owner if value, the argument of this name, is none of these choices."""
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise input_error(owner, f"{name} to be one of {listed}", repr(value), f"Choose one of these as {name}.")


def check_range(owner: str, name: str, value: float, low: float, high: float = float("inf")) -> None:
    """Raise an `InputError` of owner if value, the argument of this name, is no number from low to high (inclusive)."""
    if not isinstance(value, int | float) or not low <= value <= high:
        raise input_error(owner, f"{name} between {low:g} and {high:g}", repr(value), f"Choose {name} in this range.")


def check_positive(owner: str, name: str, value: float) -> None:
    """Raise an `InputError` of owner if value, the argument of this name, is no number above zero."""
    if not isinstance(value, int | float) or not value > 0:
        raise input_error(owner, f"{name} above 0", repr(value), f"Choose a positive {name}.")


def check_count(owner: str, name: str, value: int, low: int = 1) -> None:
    """Raise an `InputError` of owner if value, the argument of this name, is no integer of at least low."""
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise input_error(
            owner, f"{name} to be a whole number from {low} on", repr(value), f"Choose a whole number as {name}."
        )
