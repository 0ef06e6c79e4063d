"""The routings of the clusters room, with the options that their classes offer as controls."""

from __future__ import annotations

import inspect
from typing import Any

from torchcaps._core.errors import input_error
from torchcaps.analysis.clusters import iterative
from torchcaps.routing import ROUTINGS, Routing, make_routing
from torchcaps.routing.checks import Choice, Control, Switch, controls_of
from torchcaps.routing.em import EM_PRESETS

Option = dict[str, Any]
STEPS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5)  # of sliders


def offered() -> tuple[str, ...]:
    """The routings that cluster points in the plane, iteration by iteration."""
    return tuple(name for name in iterative() if ROUTINGS[name].smallest_dim <= 2)


def options_of(name: str) -> dict[str, Option]:
    """The controls of a routing, as declared by its class."""
    kind = ROUTINGS[name]
    return {word: _option(control) for word, control in controls_of(kind).items()}


def _option(control: Control) -> Option:
    if isinstance(control, Switch):
        return {"type": "flag", "text": control.text}
    if isinstance(control, Choice):
        return {"type": "choice", "choices": list(control.choices), "text": control.text}
    step = max(size for size in STEPS if size <= max(STEPS[0], (control.high - control.low) / 60))
    return {"type": "number", "low": control.low, "high": control.high, "step": step, "text": control.text}


def describe_routings() -> list[dict[str, Any]]:
    """The data that the page needs about every routing."""
    described = []
    for name in offered():
        defaults = ROUTINGS[name].options()
        if name == "em":
            defaults = {**defaults, **EM_PRESETS[defaults["preset"] or "paper"]}
        made = _made(name)
        options = [
            {"name": word, "default": getattr(made, word) if defaults[word] is None else defaults[word], **told}
            for word, told in options_of(name).items()
        ]
        described.append(
            {
                "name": name,
                "title": _title(name),
                "kind": "distance" if made.parents_are_means else "direction",
                "options": options,
            }
        )
    return described


def read_options(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """The options of a routing as Python values; an `InputError` for unknown ones."""
    known = options_of(name)
    for word, value in given.items():
        if word not in known:
            raise input_error(name, f"options among {', '.join(known)}", repr(word)[:80], "Drop or rename it.")
        if not _fits(known[word], value):
            raise input_error(name, f"{word} to be {_wanted(known[word])}", repr(value)[:80], "Choose such a value.")
    chosen = {word: {str(one): one for one in told["choices"]} for word, told in known.items() if "choices" in told}
    return {word: chosen[word][str(value)] if word in chosen else value for word, value in given.items()}


def _fits(told: Option, value: Any) -> bool:
    if told["type"] == "flag":
        return isinstance(value, bool)
    if told["type"] == "choice":
        return isinstance(value, str | int) and str(value) in map(str, told["choices"])
    return isinstance(value, int | float) and not isinstance(value, bool) and told["low"] <= value <= told["high"]


def _wanted(told: Option) -> str:
    if told["type"] == "flag":
        return "true or false"
    if told["type"] == "choice":
        return f"one of {', '.join(map(str, told['choices']))}"
    return f"a number from {told['low']:g} to {told['high']:g}"


def _title(name: str) -> str:
    """The first sentence of the module of a routing: what it clusters, and how."""
    text = (inspect.getmodule(ROUTINGS[name]) or ROUTINGS[name]).__doc__ or ""
    return text.strip().split("\n", 1)[0].rstrip(".").split(": Algorithm")[0] + "."


def _made(name: str) -> Routing:
    sizes = {word: 2 for word in ("out_capsules", "out_dim") if word in ROUTINGS[name].options()}
    return make_routing(name, **sizes)
