"""A capsule layer is geometry x vote transform x routing; this base joins the three."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

from torch import Tensor, nn

from torchcaps.layers.votes import VoteTransform
from torchcaps.routing import ROUTINGS, Routing, make_routing
from torchcaps.routing.base import OverParents, over_own_parents
from torchcaps.types import Capsules, Routed, Step, check_choice, complaint


class Gathered(NamedTuple):
    """What a layer hands to its routing."""

    votes: Tensor  # [*b i j d]
    activations: Tensor  # [*b i]
    mask: Tensor | None = None  # [*b i]
    over_parents: OverParents = over_own_parents
    parent_mask: Tensor | None = None  # [*b j], where parents of padded children are padding too


class RoutedLayer(nn.Module):
    """A layer that votes and routes. A kind of layer says how children are gathered and how couplings are laid out."""

    votes: VoteTransform
    routing: Routing

    def gather(self, children: Capsules) -> Gathered:
        raise NotImplementedError

    def _laid_out(self, routed: Routed) -> Routed:
        """The couplings in the layer's own shape."""
        return routed

    def _flat(self, couplings: Tensor) -> Tensor:
        """The couplings in the routing's shape, [*b i j]."""
        return couplings

    def forward(self, children: Capsules) -> Capsules:
        """The parents of these children."""
        gathered = self.gather(children)
        routed = self._call(gathered, None)
        return Capsules(routed.poses, routed.activations, gathered.parent_mask)

    def route(self, children: Capsules, couplings: Tensor | None = None) -> Routed:
        """The parents together with the couplings that made them; from given couplings (in that shape) if any."""
        flat = None if couplings is None else self._flat(couplings)
        return self._laid_out(self._call(self.gather(children), flat))

    def trace(self, children: Capsules) -> list[Step]:
        """The routing's `Routed` and objective after every iteration."""
        votes, activations, mask, over_parents, _ = self.gather(children)
        steps = self.routing.trace(votes, activations, mask=mask, over_parents=over_parents)
        return [Step(self._laid_out(step.routed), step.objective) for step in steps]

    def _call(self, gathered: Gathered, couplings: Tensor | None) -> Routed:
        votes, activations, mask, over_parents, _ = gathered
        routed: Routed = self.routing(votes, activations, mask=mask, couplings=couplings, over_parents=over_parents)
        return routed


def routing_for(owner: str, routing: str | Routing, options: dict[str, Any], **sizes: int | None) -> Routing:
    """The layer's routing: a `Routing` as it is, or one by name, its options and the sizes that it asks for."""
    if isinstance(routing, Routing):
        if options:
            got = f"a Routing and {', '.join(options)}"
            raise complaint(owner, "a Routing, or a name with options", got, "Give the options to make_routing.")
        for word, size in sizes.items():
            wanted = getattr(routing, word)
            if wanted is not None and wanted != size:
                raise complaint(
                    owner, f"a routing with {word}={size}", f"{word}={wanted}", f"Make it with {word}={size}."
                )
        return routing
    check_choice(owner, "routing", routing, list(ROUTINGS))
    parameters = inspect.signature(ROUTINGS[routing].__init__).parameters
    return make_routing(routing, **{word: size for word, size in sizes.items() if word in parameters}, **options)
