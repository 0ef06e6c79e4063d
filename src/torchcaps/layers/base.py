"""A capsule layer is geometry x vote transform x routing; this base joins the three."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from torchcaps.errors import check_choice, check_count, complaint
from torchcaps.precision import HALVES, autocasting
from torchcaps.routing import ROUTINGS, Routing, make_routing, routing_options
from torchcaps.routing.checks import declared
from torchcaps.routing.competition import OverParents, over_own_parents
from torchcaps.types import Capsules, Routed, Step
from torchcaps.votes.buffers import KEPT_BYTES
from torchcaps.votes.gradients import with_ledger
from torchcaps.votes.lazy import Unmade
from torchcaps.votes.native import KEPT_NUMBERS, TILE_NUMBERS, fill_lanes, filled, native_votes
from torchcaps.votes.tiling import hooked, tile_bytes, tiled
from torchcaps.votes.transforms import VoteTransform, make_votes


class Gathered(NamedTuple):
    """The children of every parent, as a layer lays them out for its routing."""

    poses: Tensor  # [*b i e], zero where masked; class capsules keep the grid, [b h w i e]
    activations: Tensor  # [*b i]
    mask: Tensor | None = None  # [*b i]
    over_parents: OverParents = over_own_parents
    parent_mask: Tensor | None = None  # [*b j], where parents of padded children are padding too


class Way(NamedTuple):
    """How a routing gets the votes of a tile."""

    votes: Callable[..., Tensor | Unmade]  # from poses, mask and these weights
    weights: tuple[Tensor, ...]
    numbers: int  # what a pair of child and parent takes of a tile's bytes
    native: bool = False


class RoutedLayer(nn.Module):
    """A layer that votes and routes. A kind of layer says how children are gathered and how couplings are laid out.

    votes: "full", "shared" (in_capsules may be None: any number of children), "factorised" or "matrix", or a
    `VoteTransform`. routing: a name, with its options as further arguments, or a `Routing`. vote_bias adds a learned
    bias to every vote; normalise divides each vote matrix by its Frobenius norm. std is the standard deviation of the
    starting weights; left out, votes keep the scale of poses where parents are means of votes. Where they are sums, it
    is such that children of length 0.7 under uniform couplings sum to a length of about one: squash is neither
    saturated nor silent, and learning starts at the first step. For this a layer must know about how many children a
    parent sees (expected_children, else in_capsules, else 1024) and how many parents share a child (rivals).
    tile_bytes: how many bytes the votes of one tile may take (see `tiling`); 0 keeps all votes, which only gradients of
    gradients need.
    """

    def __init__(
        self,
        in_capsules: int | None,
        out_capsules: int,
        in_dim: int,
        out_dim: int,
        *,
        votes: str | VoteTransform,
        routing: str | Routing,
        vote_bias: bool = False,
        normalise: bool = False,
        std: float | None = None,
        expected_children: int | None = None,
        rivals: float | None = None,
        any_grid: bool = False,
        tile_bytes: int | None = None,
        **routing_options: Any,
    ) -> None:
        super().__init__()
        owner = type(self).__name__
        sizes = {"in_capsules": in_capsules, "out_capsules": out_capsules, "in_dim": in_dim, "out_dim": out_dim}
        if isinstance(votes, VoteTransform):
            _check_sizes(owner, "votes", votes, sizes)
            self.votes = votes
        else:
            self.votes = make_votes(
                votes, in_capsules, out_capsules, in_dim, out_dim, bias=vote_bias, normalise=normalise, std=std
            )
        known = {
            "in_capsules": None if any_grid else in_capsules,  # on any grid, nothing is learned for single children
            "out_capsules": out_capsules,
            "out_dim": out_dim,
            "vote_std": self.votes.vote_std(),
        }
        self.routing = _routing_for(owner, routing, routing_options, known)
        if tile_bytes is not None:
            check_count(owner, "tile_bytes", tile_bytes, 0)
        self.tile_bytes = tile_bytes
        if std is None and not isinstance(votes, VoteTransform) and not self.routing.averages:
            children = expected_children or in_capsules or 1024
            vote = 0.7 * math.sqrt(self.votes.fan_out())  # the length of a vote, for weights of standard deviation one
            start = (rivals or out_capsules) / (vote * math.sqrt(children))
            # Few children of a dense layer would need votes so long that the first couplings are all or nothing.
            self.votes.start_at(start if rivals else min(start, 0.4 / vote))

    def gather(self, children: Capsules) -> Gathered:
        raise NotImplementedError

    def _laid_out(self, routed: Routed) -> Routed:
        """The couplings in the layer's own shape."""
        return routed

    def _flat(self, couplings: Tensor) -> Tensor:
        """The couplings in the routing's shape, [*b i j]."""
        return couplings

    def vote(self, gathered: Gathered) -> Tensor:
        """The votes of these children, [*b i j d]."""
        return self._vote(gathered.poses, self.votes(None))

    def _vote(self, poses: Tensor, weights: tuple[Tensor, ...]) -> Tensor:
        votes: Tensor = self.votes(poses, weights)
        return votes

    def forward(self, children: Capsules) -> Capsules:
        """The parents of these children."""
        gathered = self.gather(children)
        poses, activations = self._call(gathered, None, 2)
        return Capsules(poses, activations, gathered.parent_mask)

    def route(self, children: Capsules, couplings: Tensor | None = None) -> Routed:
        """The parents together with the couplings that made them; from given couplings (in that shape) if any."""
        flat = None if couplings is None else self._flat(couplings)
        return self._laid_out(Routed(*self._call(self.gather(children), flat, 3)))

    def trace(self, children: Capsules, couplings: Tensor | None = None) -> list[Step]:
        """The routing's `Routed` and objective after every iteration."""
        gathered = self.gather(children)
        flat = None if couplings is None else self._flat(couplings)
        steps = self.routing.trace(
            self.vote(gathered),
            gathered.activations,
            mask=gathered.mask,
            couplings=flat,
            over_parents=gathered.over_parents,
        )
        return [Step(self._laid_out(step.routed), step.objective) for step in steps]

    def _call(self, gathered: Gathered, couplings: Tensor | None, count: int) -> tuple[Tensor, ...]:
        """The first `count` parts of what the routing gives, a tile of the batch at a time."""
        poses, activations, mask, over_parents, _ = gathered
        budget = tile_bytes(self.tile_bytes)
        compiled = torch.compiler.is_compiling() or self.routing._compiled_call_impl is not None
        if compiled or not (budget and poses.numel()):
            votes = self.vote(gathered)
            routed = self.routing(votes, activations, mask=mask, couplings=couplings, over_parents=over_parents)
            return tuple(routed[:count])
        # Leading axes are one, unless parents compete across them: then a tile is whole examples.
        leading = activations.shape[:-1] if over_parents is over_own_parents else activations.shape[:1]
        kept = self.routing.draw(activations, self.votes.out_capsules)
        batch = [
            None if part is None else part.flatten(0, len(leading) - 1)
            for part in (poses, activations, mask, couplings, kept, None)
        ]
        # Where only the last update has gradients and needs nothing but couplings, the backward pass begins with these.
        forgets = bool(declared(type(self.routing), "forgets"))
        last = self.routing.gradients == "last" and couplings is None and forgets
        watched = hooked(self.votes) or hooked(self.routing)
        windows = math.prod(activations.shape[1:-1])  # of an example
        pairs = activations[0].numel() * self.votes.out_capsules * poses.element_size()  # a number for each, in bytes
        if over_parents is over_own_parents:
            windows, pairs = 1, pairs // windows
        size = fill_lanes(max(1, budget // (pairs * TILE_NUMBERS)), windows)
        way = self._way(gathered, last, watched, min(size, math.prod(leading)) * windows)
        weights = way.weights
        learned = dict(self.routing.named_parameters())

        def work(part: list[Tensor | None], given: list[Tensor]) -> tuple[Tensor, ...]:
            poses, activations, mask, couplings, kept, final = part
            assert poses is not None
            ready = tuple(given[: len(weights)])
            votes = way.votes(poses, mask, *ready)
            beside = {"mask": mask, "couplings": couplings, "over_parents": over_parents}
            if kept is not None:
                beside["kept"] = kept
            routing = _with_parameters(self.routing, dict(zip(learned, given[len(weights) :], strict=True)))
            if final is not None:
                routing = copy.copy(routing)
                routing.iterations = 1
                beside["couplings"] = final
            return tuple(routing(votes, activations, **beside)[: 3 if last else count])

        size = size if way.native else max(1, budget // (pairs * way.numbers))
        whole = filled(work, windows) if way.native else work
        keep = way.native and math.prod(leading) * pairs * KEPT_NUMBERS * self.routing.iterations <= KEPT_BYTES
        results = tiled(whole, batch, [*weights, *learned.values()], size, watched, last, keep)
        return tuple(result.unflatten(0, leading) for result in results[:count])

    def _marked(self, poses: Tensor, mask: Tensor | None, *weights: Tensor) -> Tensor:
        """The votes of a tile, zero for masked children, with a ledger for their gradient."""
        votes = self._vote(poses, weights)
        if autocasting(votes.device.type) and votes.dtype in HALVES:
            votes = votes.float()
        if mask is not None:
            votes = votes.masked_fill(~mask[..., None, None], 0)
        return votes if votes.dtype in HALVES else with_ledger(votes)

    def _way(self, gathered: Gathered, last: bool, watched: bool, examples: int) -> Way:
        """How the routing gets its votes: as it needs them, and as it pays for tiles of so many examples."""
        made = Way(self._marked, (), self.votes.out_dim)
        poses, sees = gathered.poses, self.routing.sees
        if declared(type(self.routing), "sees") in (None, "votes"):  # an instance can only narrow it down
            sees = "votes"
        plain = not (autocasting(poses.device.type) or poses.dtype in HALVES)
        if watched or sees == "votes" or not plain or type(self)._vote is not RoutedLayer._vote:
            return made._replace(weights=self.votes(None))
        if declared(type(self.votes), "by_pair"):
            matrices = self.votes.by_pair()
            if matrices is not None:
                beside = (gathered.activations, *self.routing.parameters())
                native = native_votes(poses, matrices, self.votes.bias is not None, examples, beside)
                if native is not None:
                    return Way(native, (matrices,), TILE_NUMBERS, native=True)
        learning = torch.is_grad_enabled() and any(
            tensor.requires_grad for tensor in (poses, gathered.activations, *self.parameters())
        )
        # With a matrix for each pair, the gradients of all iterations cost less where votes are made.
        pays = last or not learning or self.votes.costs
        if sees == "sums" and not self.routing.translates and declared(type(self.votes), "linear") and pays:
            linear = self.votes.linear()
            if linear is not None:
                numbers = self.votes.costs or self.votes.in_dim
                return Way(lambda poses, _, *ready: self.votes.unmade(poses, *ready), linear, numbers)
        return made._replace(weights=self.votes(None))


def _with_parameters(module: Any, given: dict[str, Tensor], prefix: str = "") -> Any:
    """The module with other tensors for its parameters: a shallow copy, as other threads may be using the module."""
    own = {name: given[prefix + name] for name, old in module._parameters.items() if old is not None}
    inner = {name: part and _with_parameters(part, given, f"{prefix}{name}.") for name, part in module._modules.items()}
    same = all(module._parameters[name] is tensor for name, tensor in own.items())
    if same and all(module._modules[name] is part for name, part in inner.items()):
        return module
    other = copy.copy(module)
    other._parameters = {**module._parameters, **own}
    other._modules = inner
    return other


def _routing_for(owner: str, routing: str | Routing, options: dict[str, Any], known: dict[str, Any]) -> Routing:
    """The layer's routing: a `Routing` as it is, or one by name, with its options and what the layer knows of them."""
    if isinstance(routing, Routing):
        if options:
            got = f"a Routing and {', '.join(options)}"
            raise complaint(
                owner, "a Routing, or a name with options", got, f"Give them to {type(routing).__name__}(...)."
            )
        _check_sizes(
            owner, "routing", routing, {word: known[word] for word in ("in_capsules", "out_capsules", "out_dim")}
        )
        return routing
    if isinstance(routing, type):
        raise complaint(
            owner, "a routing's name or a Routing", f"the class {routing.__name__}", f"Pass {routing.__name__}()."
        )
    check_choice(owner, "routing", routing, list(ROUTINGS))
    accepted = routing_options(routing)
    unknown = ", ".join(option for option in options if option not in accepted)
    if unknown:
        expected = f"{', '.join(LAYER_OPTIONS)}, or an option of {routing!r} ({', '.join(accepted)})"
        raise complaint(owner, expected, unknown, "Drop or rename it.")
    if known["in_capsules"] is None and "prior" in accepted:
        options = {"prior": False, **options}  # nothing can be learned for single children whose number is free
    return make_routing(routing, **{word: value for word, value in known.items() if word in accepted}, **options)


# What a user may tell a routed layer, beside the options of its routing.
LAYER_OPTIONS = tuple(
    word
    for word, parameter in inspect.signature(RoutedLayer.__init__).parameters.items()
    if parameter.kind is parameter.KEYWORD_ONLY and word not in ("rivals", "any_grid")  # these are the layer's own
)


def _check_sizes(owner: str, what: str, part: nn.Module, sizes: dict[str, int | None]) -> None:
    """Refuse a ready-made part whose fixed sizes are not the layer's."""
    for word, size in sizes.items():
        wanted = getattr(part, word)
        if size is not None and wanted is not None and wanted != size:
            raise complaint(owner, f"{what} with {word}={size}", f"{word}={wanted}", f"Make it with {word}={size}.")
