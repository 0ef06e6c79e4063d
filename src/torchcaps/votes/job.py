"""What a layer asks of the engine: the children of every parent, how they vote, and how their votes are routed."""

from __future__ import annotations

import math
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from torchcaps._core.precision import HALVES, autocasting
from torchcaps._core.types import Capsules
from torchcaps.votes.competition import Competition, OverGrid, OverPairs, over_own_parents
from torchcaps.votes.layout import why_not_eager
from torchcaps.votes.linear import Linear
from torchcaps.votes.windows import Windows

if TYPE_CHECKING:
    from torchcaps.votes.transforms import VoteTransform

GLOBAL_HOOKS = (
    "_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks", "_global_backward_pre_hooks",
)  # fmt: skip
# What a routing was seen to do with votes, where it is more than sums and inner products: "squares", or "votes", which
# is anything. Nobody has to say so: a routing is given votes that can do no more, until it asks for more.
WANTED: weakref.WeakKeyDictionary[nn.Module, str] = weakref.WeakKeyDictionary()


class Gathered:
    """The children of every parent: children on places [b *grid c e], and the windows through which parents see them.

    windows: None where every parent sees all places. shared: is the transform that of a place, the same for all?
    offsets [*grid d]: what is added to the votes of the children at a place; known_offsets: the same on the CPU, where
    to look at it waits for no device. parent_mask [b *out j]: where parents of
    padded children are padding too. pairs [b i j]: the pairs of child and parent that are there; None: all.
    """

    def __init__(
        self,
        children: Capsules,
        windows: Windows | None = None,
        *,
        across: bool = False,
        mask: Tensor | None = None,
        parent_mask: Tensor | None = None,
        shared: bool = False,
        offsets: Tensor | None = None,
        known_offsets: Tensor | None = None,
        pairs: Tensor | None = None,
    ) -> None:
        self.places = math.prod(children.poses.shape[1:-2])
        self.types = children.poses.shape[-2]
        self.children = children
        self.windows = windows
        self.shared = shared
        self.offsets = None if offsets is None else offsets.reshape(self.places, -1)  # [q d]
        known = offsets if known_offsets is None else known_offsets
        self.known_offsets = None if known is None else known.reshape(self.places, -1)
        self.parent_mask = parent_mask
        self._mask = mask  # [b *out (k c)]
        self.pairs = pairs
        self.over_parents: Competition = OverGrid(windows) if windows is not None and across else over_own_parents
        if pairs is not None:
            self.over_parents = OverPairs(pairs)
        self._made: dict[str, Tensor] = {}

    @property
    def poses(self) -> Tensor:
        """The children of each parent, [b *out i e], zero where they are masked."""
        if "poses" not in self._made:
            self._made["poses"] = self._of(self.children.silent_poses(), 1)
        return self._made["poses"]

    @property
    def activations(self) -> Tensor:
        """[b *out i]"""
        if "activations" not in self._made:
            self._made["activations"] = self._of(self.children.activations, 0)
        return self._made["activations"]

    @property
    def mask(self) -> Tensor | None:
        """[b *out i], True where a child is real; None: all are."""
        if self.windows is not None:
            return self._mask
        return None if self.children.mask is None else self._of(self.children.mask, 0)

    @property
    def beside(self) -> dict[str, Any]:
        """What a routing is told beside votes and activations: which children are real, and which parents compete."""
        return {"mask": self.mask, "over_parents": self.over_parents}

    def laid_out(self, couplings: Tensor) -> Tensor:
        """Couplings [*b i j] as layers show them: with windows, kernel and types of children apart, [b *out k c j]."""
        return couplings if self.windows is None else couplings.unflatten(-2, (-1, self.types))

    def flat(self, couplings: Tensor) -> Tensor:
        """Couplings as layers show them, as routings have them."""
        return couplings if self.windows is None else couplings.flatten(-3, -2)

    def _of(self, values: Tensor, beside: int) -> Tensor:
        if self.windows is None:
            return values.flatten(1, -1 - beside)
        return self.windows.of(values).flatten(1 + len(self.windows.out), -1 - beside)

    @property
    def leading(self) -> tuple[int, ...]:
        """The axes [b *out]."""
        return (len(self.children.poses), *(() if self.windows is None else self.windows.out))

    @property
    def count(self) -> int:
        """The number of children of a parent."""
        return self.types * (self.places if self.windows is None else math.prod(self.windows.kernel))


class Part(NamedTuple):
    """Tensors of a batch, or of a tile of it: examples along the first axis of each."""

    poses: Tensor
    activations: Tensor
    mask: Tensor | None = None
    couplings: Tensor | None = None
    kept: Tensor | None = None
    pairs: Tensor | None = None


class Job:
    """Votes to be made and routed. budget: the bytes of a tile; 0 for one tile whose votes are kept."""

    def __init__(
        self, gathered: Gathered, transform: VoteTransform, routing: Any, couplings: Tensor | None, budget: int
    ) -> None:
        self.gathered = gathered
        self.transform = transform
        self.routing = routing
        self.couplings = couplings
        self.budget = budget
        self.reason = self._why_plain()
        self._kept: list[Tensor | None] = []

    def _why_plain(self) -> str | None:
        reason = why_not_eager()
        if reason is not None:
            return reason
        if not self.budget:
            return "tile_bytes is 0"
        if self.routing._compiled_call_impl is not None:
            return "the routing is compiled"
        return None if self.gathered.children.poses.numel() else "there are no children"

    @property
    def pairs(self) -> int:
        """Of a window."""
        return self.gathered.count * self.transform.out_capsules

    @property
    def windows(self) -> int:
        """Of an example."""
        return math.prod(self.gathered.leading[1:])

    @property
    def has_hooks(self) -> bool:
        """Do hooks look at votes?"""
        return hooked(self.transform) or hooked(self.routing)

    @property
    def half(self) -> bool:
        """Is it half precision, or could it be?"""
        poses = self.gathered.children.poses
        return autocasting(poses.device.type) or poses.dtype in HALVES

    @property
    def tensors(self) -> list[Tensor]:
        """All that takes part."""
        children = self.gathered.children
        return [children.poses, children.activations, *self.transform.parameters(), *self.routing.parameters()]

    @property
    def learning(self) -> bool:
        return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in self.tensors)

    @property
    def plain(self) -> bool:
        """Must it be torch's own operations alone, without tiles?"""
        return self.reason is not None

    @property
    def wants(self) -> str:
        """All that the routing was seen to do with votes."""
        return WANTED.get(self.routing, "sums")

    @property
    def last(self) -> bool:
        """Has only the last update gradients?"""
        return self.routing.gradients == "last"

    @property
    def kept(self) -> Tensor | None:
        """Which parents compete in this pass, [b *out j], drawn once; None: all."""
        if not self._kept:
            first = self.gathered.children.activations.flatten(1)[:, :1]
            like = first.view(-1, *(1,) * len(self.gathered.leading)).expand(*self.gathered.leading, 1)
            self._kept.append(self.routing.draw(like, self.transform.out_capsules))
        return self._kept[0]

    def linear(self, *, half: bool = False) -> Linear | str:
        """The votes as products with matrices, or why they are not taken as such. half: may they be half precision?"""
        if self.reason is not None:
            return self.reason
        if self.has_hooks:
            return "hooks look at votes"
        if self.half and not half:
            return "half precision"
        if self.gathered.pairs is not None:
            return "not all pairs are there"
        if not self.transform.says_linear():
            return f"{type(self.transform).__name__} makes votes in its own way"
        found = self.transform.linear()
        return "votes are no products with matrices" if found is None else found

    def vote(self, poses: Tensor, weights: tuple[Tensor, ...] | None = None) -> Tensor:
        """The votes [*b i j d] of children [*b i e]."""
        gathered = self.gathered
        if not gathered.shared:
            votes: Tensor = self.transform(poses, weights)
            return votes
        votes = self.transform(poses.unflatten(-2, (gathered.places, gathered.types)), weights)  # [*b q c j d]
        if gathered.offsets is not None:
            votes = votes + gathered.offsets[:, None, None]
        return votes.flatten(-4, -3)


def hooked(part: nn.Module) -> bool:
    """Does somebody look at what goes in or out, forward or back? Hooks may be this part's own, or of all modules."""
    own = part._forward_hooks or part._forward_pre_hooks or part._backward_hooks or part._backward_pre_hooks
    return bool(own or any(vars(nn.modules.module).get(name) for name in GLOBAL_HOOKS))
