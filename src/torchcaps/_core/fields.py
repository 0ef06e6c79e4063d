"""Strict JSON, and dataclasses from JSON files with type checks of every field."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from torchcaps._core.errors import input_error
from torchcaps._core.files import read_text
from torchcaps._core.neutral import CONTROL

Value = TypeVar("Value")


def as_json(value: Any, indent: int = 2) -> str:
    """Serialize plain values to JSON. NaN and infinity become null; letters stay as they are if a terminal has them."""
    plain = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "") != "utf8"
    text = json.dumps(_finite(value), indent=indent, default=str, allow_nan=False, ensure_ascii=plain)
    return CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value


def read_fields(kind: type[Value], path: Path, what: str) -> Value:
    """Read a dataclass from a JSON object with some of its fields."""
    values = read_object(path, what)
    hints = get_type_hints(kind)
    for name, value in values.items():
        if name not in hints:
            raise input_error(str(path), f"{what} among {', '.join(hints)}", name, "Drop or rename it.")
        if not _is_a(hints[name], value):
            raise input_error(str(path), f"{name} to be {_text(hints[name])}", repr(value), "Correct it.")
    try:
        return kind(**{name: _as_a(hints[name], value) for name, value in values.items()})
    except TypeError as error:
        raise input_error(str(path), f"all {what}", str(error), "Copy the run anew.") from None


def read_object(path: Path, what: str) -> dict[str, Any]:
    """Read a JSON object from a file."""
    try:
        values = json.loads(read_text(path))
    except (OSError, ValueError, RecursionError) as error:
        raise input_error(str(path), f"a JSON file of {what}", error, "Give the file of a run.") from None
    if not isinstance(values, dict):
        raise input_error(str(path), f"a JSON object of {what}", type(values).__name__, "Give the file of a run.")
    return values


def _is_a(hint: Any, value: Any) -> bool:
    """Whether a value from JSON is valid for a type hint."""
    kind, inner = get_origin(hint), get_args(hint)
    if kind in (Union, UnionType):
        return any(_is_a(one, value) for one in inner)
    if kind is Literal:
        return value in inner
    if kind is tuple:
        length_fits = isinstance(value, list) and (... in inner or len(value) == len(inner))
        return length_fits and all(_is_a(inner[0], one) for one in value)
    if kind is dict:
        return isinstance(value, dict) and all(_is_a(inner[1], one) for one in value.values())
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    return isinstance(value, str if hint is Path else hint)


def _as_a(hint: Any, value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    return Path(value) if isinstance(value, str) and Path in (hint, *get_args(hint)) else value


def _text(hint: Any) -> str:
    return getattr(hint, "__name__", str(hint)) if get_origin(hint) is None else str(hint).replace("typing.", "")
