"""Checks of the inputs of a routing, and its constructor options."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple, get_args

import torch
from torch import Tensor
from typing_extensions import get_type_hints

from torchcaps._core.errors import input_error, shape_text
from torchcaps.votes.algebra import Votes


def check_routed(
    owner: str,
    sizes: dict[str, int | None],
    votes: Tensor | Votes,
    activations: Tensor | None,
    mask: Tensor | None,
    couplings: Tensor | None,
) -> None:
    """Raise an `InputError` if votes have a wrong shape or size, or if the other tensors do not match them."""
    if not isinstance(votes, Tensor | Votes):
        got = f"a {type(votes).__name__}"
        raise input_error(owner, "votes [*b i j d] as a tensor", got, "Pass votes; a layer makes them from capsules.")
    if votes.ndim < 3 or not votes.is_floating_point():
        got = f"{shape_text(votes.shape)} of {votes.dtype}"
        raise input_error(
            owner, "floating-point votes [*b i j d]", got, "Give votes a child, a parent and a pose axis."
        )
    for (word, size), axis in zip(sizes.items(), (-3, -2, -1), strict=True):
        if size is not None and votes.shape[axis] != size:
            expected = f"votes [*b i j d] with {word}={size}"
            raise input_error(
                owner, expected, shape_text(votes.shape), f"Make the routing with {word}={votes.shape[axis]}."
            )
    beside = (
        ("activations [*b i]", activations, votes.shape[:-2]),
        ("mask [*b i]", mask, votes.shape[:-2]),
        ("couplings [*b i j]", couplings, votes.shape[:-1]),
    )
    for word, tensor, shape in beside:
        if tensor is not None and tensor.shape != shape:
            remedy = f"Match the votes {shape_text(votes.shape)}."
            raise input_error(owner, f"{word} = {shape_text(shape)}", shape_text(tensor.shape), remedy)
    if mask is not None and mask.dtype != torch.bool:
        raise input_error(owner, "a boolean mask", mask.dtype, "Pass mask.bool(), True where a child is real.")


def check_idle(owner: str, where: str, **given: bool) -> None:
    """Raise an `InputError` of owner for an option that has no effect.

    where: beside which other option it has none, as `with hard=True`. given: of each option, whether it was given.
    """
    for word, was in given.items():
        if was:
            raise input_error(owner, f"no {word} {where}", f"{word}, which has no effect there", f"Drop {word}.")


def needed(owner: str, word: str, size: int | None, what: str) -> int:
    """A size that layers fill in for what is learned; an `InputError` of owner if it is None."""
    if size is None:
        remedy = f'Pass it, or name the routing in a layer, which knows it: DenseCapsules(..., routing="{owner}").'
        raise input_error(owner, f"{word} for its {what}", f"{word}=None", remedy)
    return size


class Range(NamedTuple):
    """An option as a slider: its lowest and highest number, and what it does, in a sentence for a student."""

    low: float
    high: float
    text: str


class Choice(NamedTuple):
    """An option as a list to choose from."""

    choices: tuple[Any, ...]
    text: str


class Switch(NamedTuple):
    """An option that is on or off."""

    text: str


Control = Range | Choice | Switch
COMPETITION_CONTROLS: dict[str, Control] = {  # those of every routing
    "leaky": Switch("A point may belong to nobody."),
    "hard": Switch("Each point goes wholly to its best parent."),
}


def controls_of(kind: type) -> dict[str, Control]:
    """The `controls` of a routing and of the classes that it inherits from, as far as they are options of it."""
    found: dict[str, Control] = {}
    for each in kind.__mro__:
        found = {**found, **{word: it for word, it in vars(each).get("controls", {}).items() if word not in found}}
    options = constructor_options(kind)
    return {word: control for word, control in found.items() if word in options}


def constructor_options(kind: type) -> dict[str, Any]:
    """The constructor options of a class with their defaults, including those of base classes it forwards to.

    A constructor forwards what its `**options: Unpack[...]` names; every option if it has plain `**options`.
    """
    options: dict[str, Any] = {}
    forwarded: set[str] | None = None  # None: every one
    for base in kind.__mro__:
        if "__init__" in vars(base):
            constructor = vars(base)["__init__"]
            parameters = inspect.signature(constructor).parameters.values()
            others = [parameter.name for parameter in parameters if parameter.kind is parameter.VAR_KEYWORD]
            for parameter in parameters:
                if parameter.name not in ("self", *others) and (forwarded is None or parameter.name in forwarded):
                    options.setdefault(parameter.name, parameter.default)
            if not others:
                break
            named = _unpacked(constructor, others[0])
            forwarded = named if forwarded is None or named is None else forwarded & named
    return options


def _unpacked(function: Any, word: str) -> set[str] | None:
    """The keywords that an argument `**word: Unpack[...]` of a function takes; None if it takes every one."""
    if "Unpack" not in str(function.__annotations__.get(word)):
        return None
    try:
        (options,) = get_args(get_type_hints(function)[word])
    except NameError:  # an import for type checkers only
        return None
    return set(get_type_hints(options))


def takes(function: Any, word: str) -> bool:
    """Whether a function has an argument of this name, or what its decorators wrap has."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return word in function.__code__.co_varnames[: function.__code__.co_argcount + function.__code__.co_kwonlyargcount]
