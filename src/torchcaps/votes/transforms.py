"""Vote transforms: the prediction of each child for the pose of each parent. They are independent of routing.

full W_ij and shared W_j: Sabour 2017 and Su Jianlin (kexue.fm 4819); factorized W_j W~_i: Su Jianlin (kexue.fm 5112);
matrix product P_i W_ij: Hinton 2018; votes divided by the Frobenius norm of their matrix: Wang, Liu 2018.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from torchcaps._core.errors import check_choice, check_count, check_positive, input_error
from torchcaps.functional import safe_divide
from torchcaps.votes.layout import as_votes, child_first, laid_out_product
from torchcaps.votes.linear import Linear


class VoteTransform(nn.Module):
    """Base class of vote transforms, from poses [*b i e] to votes [*b i j d].

    in_capsules: the number of children; None for any number, which only "shared" supports. out_capsules: the number of
    parents. in_dim, out_dim: the sizes of child poses and of votes. bias: add a learned bias to every vote. normalize:
    divide each vote matrix by its Frobenius norm. std: the standard deviation of the initial weights; left out, 1 /
    sqrt(`fan_in`), which keeps the scale of the pose's components.
    """

    shared_bias = False  # True: one bias for each parent; False: one for each pair of child and parent
    weight: nn.Parameter

    def __init__(
        self, in_capsules: int | None, out_capsules: int, in_dim: int, out_dim: int, *,
        bias: bool = False, normalize: bool = False, std: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        owner = type(self).__name__
        for name, size in (("out_capsules", out_capsules), ("in_dim", in_dim), ("out_dim", out_dim)):
            check_count(owner, name, size)
        if in_capsules is not None:
            check_count(owner, "in_capsules", in_capsules)
        if std is not None:
            check_positive(owner, "std", std)
        self.in_capsules = in_capsules
        self.out_capsules = out_capsules
        self.in_dim = in_dim
        self.out_dim = out_dim
        self.normalize = normalize
        self.std_given = std is not None  # then layers and `calibrate` do not change it
        self.std = self.fan_in() ** -0.5 if std is None else std
        each = () if in_capsules is None or self.shared_bias else (in_capsules,)
        self.bias = nn.Parameter(torch.zeros(*each, out_capsules, out_dim)) if bias else None
        self.reset_parameters()

    def fan_in(self) -> int:
        """The number of pose components that contribute to one vote component."""
        return self.in_dim

    def fan_out(self) -> int:
        """The number of vote components that one pose component contributes to."""
        return self.out_dim

    def rescale_weights(self, std: float) -> None:
        """Rescale the initial weights to another standard deviation."""
        with torch.no_grad():
            self.outer_weight().mul_(std / self.std)
        self.std = std

    def outer_weight(self) -> nn.Parameter:
        """The weight that sets the scale of the votes."""
        return self.weight

    def vote_std(self) -> float:
        """The expected standard deviation of initial vote components, for child poses of length one."""
        return (self.in_dim * self.out_dim) ** -0.5 if self.normalize else self.std

    def reset_parameters(self) -> None:
        """Create the weights."""
        raise NotImplementedError

    def ready(self) -> tuple[Tensor, ...]:
        """The weights without bias in the layout of `transform`, computed once for all tiles of a batch."""
        raise NotImplementedError

    def transform(self, poses: Tensor, *ready: Tensor) -> Tensor:
        """Votes without bias, [*b i j d]; reductions are fastest if they are stored as [*b j i d]."""
        raise NotImplementedError

    def linear(self) -> Linear | None:
        """The matrices of which votes are products; None if this transform has no such form."""
        return None

    def says_linear(self) -> bool:
        """Whether `linear` describes the same votes as `transform`. False if a subclass overrides only `transform`."""
        order = [*reversed(type(self).__mro__)]
        newest = {name: max(place for place, kind in enumerate(order) if name in vars(kind)) for name in MAKING}
        return newest["linear"] >= max(newest.values()) and not any(name in vars(self) for name in MAKING)

    def weights_once(self) -> tuple[Tensor, ...]:
        """All weights that `vote` needs, computed once."""
        return self.ready() if self.bias is None else (*self.ready(), self.bias)

    def vote(self, poses: Float[Tensor, "*b i e"], weights: tuple[Tensor, ...]) -> Tensor:
        """Votes with weights from `weights_once`."""
        if self.bias is None:
            return self.transform(poses, *weights)
        *ready, bias = weights
        return self.transform(poses, *ready) + bias

    def forward(self, poses: Float[Tensor, "*b i e"], weights: tuple[Tensor, ...] | None = None) -> Tensor:
        """The votes [*b i j d] of poses [*b i e]. weights: from `weights_once`, to share them between calls."""
        return self.vote(poses, self.weights_once() if weights is None else weights)

    def known_children(self) -> int:
        """The number of children; raises an `InputError` if it was not given."""
        if self.in_capsules is None:
            owner = type(self).__name__
            raise input_error(owner, "in_capsules", "None", 'Set in_capsules, or use votes="shared".')
        return self.in_capsules

    def weights(self, *shape: int, std: float | None = None) -> nn.Parameter:
        """A parameter of this shape with normal values of standard deviation std; left out, `self.std`."""
        return nn.Parameter(torch.randn(shape) * (self.std if std is None else std))

    def scaled(self, weight: Tensor) -> Tensor:
        """The weight, with each trailing matrix divided by its Frobenius norm if `normalize` is True."""
        return _by_norm(weight) if self.normalize else weight

    @staticmethod
    def _with_bias(weight: Tensor, bias: Tensor | None) -> Tensor:
        """Matrices [... e d] with the bias [... d] as one more row."""
        return weight if bias is None else torch.cat([weight, bias.unsqueeze(-2)], -2)

    def extra_repr(self) -> str:
        sizes = (self.in_capsules, self.in_dim, self.out_capsules, self.out_dim)
        return "{} x {} -> {} x {}".format(*("any" if size is None else size for size in sizes))


def _by_norm(weight: Tensor) -> Tensor:
    return safe_divide(weight, torch.linalg.matrix_norm(weight, keepdim=True))


class FullVotes(VoteTransform):
    """u_j|i = W_ij u_i: one matrix for each pair of child and parent."""

    def reset_parameters(self) -> None:
        self.weight = self.weights(self.known_children(), self.out_capsules, self.in_dim, self.out_dim)

    def ready(self) -> tuple[Tensor, ...]:
        return (self.scaled(self.weight).transpose(1, 2).flatten(2),)  # [i e (j d)]

    def transform(self, poses: Tensor, *ready: Tensor) -> Tensor:
        (weight,) = ready
        children = child_first(poses)
        shape = (*children.shape[:2], self.out_capsules, self.out_dim)  # [i n j d]
        return as_votes(laid_out_product(children, weight, shape, (1, 2, 0, 3)), poses, self.out_dim)

    def linear(self) -> Linear:
        return Linear(self._with_bias(self.scaled(self.weight), self.bias), self.bias is not None)


class SharedVotes(VoteTransform):
    """u_j|i = W_j u_i: one matrix for each parent, for any number of children."""

    shared_bias = True

    def reset_parameters(self) -> None:
        self.weight = self.weights(self.out_capsules, self.in_dim, self.out_dim)

    def ready(self) -> tuple[Tensor, ...]:
        return (self.scaled(self.weight).transpose(0, 1).flatten(1),)  # [e (j d)]

    def transform(self, poses: Tensor, *ready: Tensor) -> Tensor:
        (weight,) = ready
        children = poses.flatten(0, -2).unsqueeze(0)  # one matrix for all
        shape = (math.prod(poses.shape[:-2]), poses.shape[-2], self.out_capsules, self.out_dim)  # [n i j d]
        return as_votes(laid_out_product(children, weight.unsqueeze(0), shape, (0, 2, 1, 3)), poses, self.out_dim)

    def linear(self) -> Linear:
        return Linear(self._with_bias(self.scaled(self.weight), self.bias), self.bias is not None)


class FactorizedVotes(VoteTransform):
    """u_j|i = W_j W~_i u_i: one matrix for each child and one for each parent."""

    shared_bias = True

    def outer_weight(self) -> nn.Parameter:
        return self.parent_weight

    def reset_parameters(self) -> None:
        self.child_weight = self.weights(self.known_children(), self.in_dim, self.out_dim, std=self.in_dim**-0.5)
        parent_std = self.std * (self.in_dim / self.out_dim) ** 0.5
        self.parent_weight = self.weights(self.out_capsules, self.out_dim, self.out_dim, std=parent_std)

    def ready(self) -> tuple[Tensor, ...]:
        child, parent = self.scaled(self.child_weight), self.scaled(self.parent_weight)
        weights = child, parent.transpose(0, 1).flatten(1)  # [i e d], [d (j d)]
        return (*weights, self._product_norms(child, parent)) if self.normalize else weights

    def transform(self, poses: Tensor, *ready: Tensor) -> Tensor:
        child, parent, *norms = ready
        inner = torch.bmm(child_first(poses), child)  # [i n d]
        shape = (*inner.shape[:2], self.out_capsules, self.out_dim)  # [i n j d]
        products = laid_out_product(inner.flatten(0, 1).unsqueeze(0), parent.unsqueeze(0), shape, (1, 2, 0, 3))
        votes = as_votes(products, poses, self.out_dim)
        return safe_divide(votes, *norms) if norms else votes

    def linear(self) -> Linear | None:
        if self.normalize:
            return None
        return Linear(self._with_bias(self.parent_weight, self.bias), self.bias is not None, self.child_weight)

    @staticmethod
    def _product_norms(child: Tensor, parent: Tensor) -> Tensor:
        """|W_j W~_i|_F for every pair, [i j 1], from the two small Gram matrices, without the products themselves."""
        child_gram = torch.einsum("ied,ieg->idg", child, child)
        parent_gram = torch.einsum("jdf,jgf->jdg", parent, parent)
        squared = torch.einsum("idg,jdg->ij", child_gram, parent_gram)
        positive = squared > 0
        return torch.where(positive, squared, 1.0).sqrt().masked_fill(~positive, 0).unsqueeze(-1)


class MatrixVotes(VoteTransform):
    """V_ij = P_i W_ij: poses are square matrices in row-major order, multiplied from the left."""

    def fan_in(self) -> int:
        return math.isqrt(self.in_dim)

    def fan_out(self) -> int:
        return math.isqrt(self.out_dim)

    def vote_std(self) -> float:
        """The expected standard deviation of initial vote components, for pose components of standard deviation one."""
        return self.fan_in() ** 0.5 * (1 / self.fan_in() if self.normalize else self.std)

    def reset_parameters(self) -> None:
        self.side = math.isqrt(self.in_dim)
        if self.in_dim != self.out_dim or self.side**2 != self.in_dim:
            got = f"in_dim={self.in_dim} and out_dim={self.out_dim}"
            raise input_error("MatrixVotes", "in_dim = out_dim = a square number", got, "Use 16 for 4x4 matrices.")
        self.weight = self.weights(self.known_children(), self.out_capsules, self.side, self.side)

    def ready(self) -> tuple[Tensor, ...]:
        return (self.scaled(self.weight).transpose(1, 2).flatten(2),)  # [i q (j r)]

    def transform(self, poses: Tensor, *ready: Tensor) -> Tensor:
        (weight,) = ready
        rows = child_first(poses).unflatten(-1, (self.side, self.side))  # [i n p q]
        shape = (*rows.shape[:3], self.out_capsules, self.side)  # [i n p j r]
        return as_votes(laid_out_product(rows.flatten(1, 2), weight, shape, (1, 3, 0, 2, 4)), poses, self.out_dim)

    def linear(self) -> Linear | None:
        return Linear(self.scaled(self.weight)) if self.bias is None else None


# The methods that determine votes: if a subclass overrides one of them, an inherited `linear` no longer describes them.
MAKING = ("linear", "transform", "ready", "weights_once", "vote", "forward", "scaled", "_with_bias")

VOTES: dict[str, type[VoteTransform]] = {
    "full": FullVotes,
    "shared": SharedVotes,
    "factorized": FactorizedVotes,
    "matrix": MatrixVotes,
}


def make_votes(
    name: str, in_capsules: int | None, out_capsules: int, in_dim: int, out_dim: int, **options: Any
) -> VoteTransform:
    """Create a vote transform by name; `VOTES` lists the names.

    in_capsules, out_capsules, in_dim, out_dim and options: see `VoteTransform`.
    """
    check_choice("make_votes", "votes", name, list(VOTES))
    return VOTES[name](in_capsules, out_capsules, in_dim, out_dim, **options)
