"""The routings that the clusters room offers, and which of their options it shows."""

from __future__ import annotations

import inspect
from typing import Any

from torchcaps._core.errors import input_error
from torchcaps.analysis.clusters import ITERATIVE
from torchcaps.functional import SQUASHES
from torchcaps.routing import ROUTINGS, Routing, make_routing
from torchcaps.routing.em import EM_PRESETS

Option = dict[str, Any]


def _number(low: float, high: float, step: float, text: str) -> Option:
    return {"type": "number", "low": low, "high": high, "step": step, "text": text}


def _choice(choices: list[Any], text: str) -> Option:
    return {"type": "choice", "choices": choices, "text": text}


_HARD = {"type": "flag", "text": "Each point goes wholly to its best parent."}
_LEAKY = {"type": "flag", "text": "A point may belong to nobody."}
_SHARP = _number(0.05, 10.0, 0.05, "How sharply near parents are preferred: K.")
OPTIONS: dict[str, dict[str, Option]] = {
    "dynamic": {
        "squash": _choice(list(SQUASHES), "How a sum becomes a vector shorter than one."),
        "accumulate": {"type": "flag", "text": "Agreements add up over iterations, instead of replacing each other."},
        "leaky": _LEAKY,
        "hard": _HARD,
    },
    "kmeans": {
        "distance": _choice(["euclidean", "inner"], "Near means by place, or by direction."),
        "sharpness": _SHARP,
        "leaky": _LEAKY,
        "hard": _HARD,
    },
    "entropy": {
        "entropy_weight": _number(0.05, 5.0, 0.05, "How much even couplings are worth."),
        "entropy_decay": _number(0.5, 1.0, 0.05, "What the weight is multiplied by after every iteration."),
        "leaky": _LEAKY,
        "hard": _HARD,
    },
    "gaussian": {
        "covariance": _choice(["full", "diagonal", "spherical", "fixed"], "The shape of a cluster."),
        "variance": _number(0.05, 5.0, 0.05, "The variance of all clusters where the shape is fixed."),
        "leaky": _LEAKY,
        "hard": _HARD,
    },
    "em": {
        "variant": _choice([1, 2, 3, 4], "From a plain mixture (1) to the paper's procedure (4), step by step."),
        "inverse_temperature": _number(0.0, 0.5, 0.005, "How sharply the cost decides about a parent's activation."),
        "damping": _number(0.0, 0.9, 0.05, "The share of the mean before that is kept in the new one."),
        "sharpness": _number(0.05, 2.0, 0.05, "A factor of the log-density when points are assigned."),
        "leaky": _LEAKY,
        "hard": _HARD,
    },
}
OPTIONS |= {
    "heinsen": {
        "covariance": _choice(["full", "diagonal", "spherical", "fixed"], "The shape of a cluster."),
        "leaky": _LEAKY,
        "hard": _HARD,
    },
    "variational": {
        "concentration": _number(0.05, 5.0, 0.05, "How even shares are expected to be."),
        "mean_strength": _number(0.05, 5.0, 0.05, "How many points the expected place, the origin, counts for."),
        "prior_variance": _number(0.05, 5.0, 0.05, "The variance that a cluster without points would have."),
        "leaky": _LEAKY,
        "hard": _HARD,
    },
    "kde": {
        "kernel": _choice(["gaussian", "epanechnikov"], "How the weight of a point falls with its distance."),
        "bandwidth": _number(0.1, 3.0, 0.05, "How far away a point still counts: h."),
        "sharpness": _number(0.05, 10.0, 0.05, "How surely the densest parent wins."),
        "tolerance": _number(0.0, 0.5, 0.01, "It settles when the density grew by no more than this share."),
        "leaky": _LEAKY,
        "hard": _HARD,
    },
}
# Those that the page has words for. Without `inverted`: in two dimensions its layer norm leaves two points.
OFFERED = tuple(name for name in ITERATIVE if name in OPTIONS)


def describe_routings() -> list[dict[str, Any]]:
    """What the page must know of every routing that it offers."""
    described = []
    for name in OFFERED:
        defaults = ROUTINGS[name].options()
        if name == "em":
            defaults = {**defaults, **EM_PRESETS[defaults["preset"] or "paper"]}
        made = _made(name)
        options = [
            {"name": word, "default": getattr(made, word) if defaults[word] is None else defaults[word], **told}
            for word, told in OPTIONS[name].items()
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
    """The options of a routing as the library takes them; what is not offered is refused."""
    offered = OPTIONS[name]
    for word, value in given.items():
        if word not in offered:
            raise input_error(name, f"options among {', '.join(offered)}", repr(word)[:80], "Drop or rename it.")
        if not _fits(offered[word], value):
            raise input_error(name, f"{word} to be {_wanted(offered[word])}", repr(value)[:80], "Choose such a value.")
    chosen = {word: {str(one): one for one in told["choices"]} for word, told in offered.items() if "choices" in told}
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
    """The first sentence of the file that holds a routing: what it clusters, and how."""
    text = (inspect.getmodule(ROUTINGS[name]) or ROUTINGS[name]).__doc__ or ""
    return text.strip().split("\n", 1)[0].rstrip(".").split(": Algorithm")[0] + "."


def _made(name: str) -> Routing:
    sizes = {word: 2 for word in ("out_capsules", "out_dim") if word in ROUTINGS[name].options()}
    return make_routing(name, **sizes)
