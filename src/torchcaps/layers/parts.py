"""The parts of a layer, ready-made or by name: its vote transform and its routing."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from torchcaps._core.errors import check_choice, input_error
from torchcaps.routing import ROUTINGS, Routing, make_routing, routing_options
from torchcaps.votes.transforms import VoteTransform, make_votes


def transform_for(owner: str, votes: str | VoteTransform, sizes: dict[str, Any], **options: Any) -> VoteTransform:
    """The layer's vote transform: a `VoteTransform` as it is, or one by name."""
    if isinstance(votes, VoteTransform):
        check_sizes(owner, "votes", votes, sizes)
        return votes
    return make_votes(votes, **sizes, **options)


def routing_for(
    owner: str, routing: str | Routing, options: dict[str, Any], known: dict[str, Any], others: Sequence[str]
) -> Routing:
    """The layer's routing: a `Routing` as it is, or one by name, with its options and what the layer knows of them.

    others: what the layer takes beside the options of a routing.
    """
    if isinstance(routing, Routing):
        if options:
            got = f"a Routing and {', '.join(options)}"
            raise input_error(
                owner, "a Routing, or a name with options", got, f"Give them to {type(routing).__name__}(...)."
            )
        check_sizes(
            owner, "routing", routing, {word: known[word] for word in ("in_capsules", "out_capsules", "out_dim")}
        )
        return routing
    if isinstance(routing, type):
        raise input_error(
            owner, "a routing's name or a Routing", f"the class {routing.__name__}", f"Pass {routing.__name__}()."
        )
    check_choice(owner, "routing", routing, list(ROUTINGS))
    accepted = routing_options(routing)
    unknown = ", ".join(option for option in options if option not in accepted)
    if unknown:
        expected = f"{', '.join(others)}, or an option of {routing!r} ({', '.join(accepted)})"
        raise input_error(owner, expected, unknown, "Drop or rename it.")
    if known["in_capsules"] is None and "prior" in accepted:
        options = {"prior": False, **options}  # nothing can be learned for single children whose number is free
    return make_routing(routing, **{word: value for word, value in known.items() if word in accepted}, **options)


def keyword_options(function: Callable[..., Any]) -> dict[str, Any]:
    """The arguments of a function that are given by name only, with their defaults."""
    return {word: p.default for word, p in inspect.signature(function).parameters.items() if p.kind is p.KEYWORD_ONLY}


def starting_std(transform: VoteTransform, children: int, rivals: float | None, normalized: bool) -> float:
    """The standard deviation of starting weights for parents that are sums of votes.

    Children of length 0.7 under uniform couplings then sum to a length of about one: squash is neither saturated nor
    silent, and learning starts at the first step. children: how many a parent sees. rivals: how many parents share a
    child; None for all parents of a dense layer. normalized: do poses of children pass a layer norm first?
    """
    length = math.sqrt(transform.in_dim) if normalized else 0.7  # of a child
    vote = length * math.sqrt(transform.fan_out())  # the length of a vote, for weights of standard deviation one
    std = (rivals or transform.out_capsules) / (vote * math.sqrt(children))
    # Few children of a dense layer would need votes so long that the first couplings are all or nothing.
    return std if rivals else min(std, 0.4 / vote)


def check_sizes(owner: str, what: str, part: nn.Module, sizes: dict[str, int | None]) -> None:
    """Refuse a ready-made part whose fixed sizes are not the layer's."""
    for word, size in sizes.items():
        wanted = getattr(part, word)
        if size is not None and wanted is not None and wanted != size:
            raise input_error(owner, f"{what} with {word}={size}", f"{word}={wanted}", f"Make it with {word}={size}.")
