"""Vote transforms: what each child says about the pose of each parent. They know nothing of routing.

full W_ij and shared W_j: Sabour 2017 and Su Jianlin (kexue.fm 4819); factorised W_j W~_i: Su Jianlin (kexue.fm 5112);
matrix product P_i W_ij: Hinton 2018; votes divided by the Frobenius norm of their matrix: Wang, Liu 2018.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from torchcaps.functional import safe_divide
from torchcaps.types import Votes, check_choice, check_positive, complaint


class VoteTransform(nn.Module):
    """The base: sizes, an optional bias, and an optional division by the Frobenius norm of each matrix.

    std is the standard deviation of the starting weights. The default keeps the scale of the pose's components
    (1 / sqrt(in_dim)), and where the number of children is known it is at most out_capsules / sqrt(in_capsules *
    out_dim): then the sum of votes from children of length one under uniform couplings has a length of about one,
    squash is not saturated, and learning starts at the first step.
    """

    def __init__(
        self,
        in_capsules: int | None,
        out_capsules: int,
        in_dim: int,
        out_dim: int,
        *,
        bias: bool = False,
        normalise: bool = False,
        std: float | None = None,
    ) -> None:
        super().__init__()
        for name, size in (
            ("in_capsules", in_capsules),
            ("out_capsules", out_capsules),
            ("in_dim", in_dim),
            ("out_dim", out_dim),
        ):
            if size is not None:
                check_positive(type(self).__name__, name, size)
        self.in_capsules = in_capsules
        self.out_capsules = out_capsules
        self.in_dim = in_dim
        self.out_dim = out_dim
        self.normalise = normalise
        self.std = self._default_std() if std is None else std
        each = () if in_capsules is None or not self._one_bias_per_child else (in_capsules,)
        self.bias = nn.Parameter(torch.zeros(*each, out_capsules, out_dim)) if bias else None

    _one_bias_per_child = True

    def _fan_in(self) -> int:
        return self.in_dim

    def _default_std(self) -> float:
        keep_scale = self._fan_in() ** -0.5
        if self.in_capsules is None:
            return keep_scale
        return min(keep_scale, self.out_capsules / math.sqrt(self.in_capsules * self.out_dim))

    def _known_children(self, name: str) -> int:
        if self.in_capsules is None:
            raise complaint(
                name, "the number of children", "in_capsules=None", 'Set in_capsules, or use votes="shared".'
            )
        return self.in_capsules

    def _weight(self, *shape: int, std: float | None = None) -> nn.Parameter:
        return nn.Parameter(torch.randn(shape) * (self.std if std is None else std))

    def _scaled(self, weight: Tensor) -> Tensor:
        """The weight with each trailing matrix divided by its Frobenius norm, if so asked."""
        return safe_divide(weight, torch.linalg.matrix_norm(weight, keepdim=True)) if self.normalise else weight

    def forward(self, poses: Float[Tensor, "*b i e"]) -> Votes:
        votes = self.transform(poses)
        return votes if self.bias is None else votes + self.bias

    def transform(self, poses: Tensor) -> Tensor:
        raise NotImplementedError

    def extra_repr(self) -> str:
        sizes = (self.in_capsules, self.in_dim, self.out_capsules, self.out_dim)
        return "{} x {} -> {} x {}".format(*("any" if size is None else size for size in sizes))


class FullVotes(VoteTransform):
    """u_j|i = W_ij u_i: a matrix for every pair."""

    def __init__(
        self, in_capsules: int | None, out_capsules: int, in_dim: int, out_dim: int, **options: object
    ) -> None:
        super().__init__(in_capsules, out_capsules, in_dim, out_dim, **options)  # type: ignore[arg-type]
        self.weight = self._weight(self._known_children("FullVotes"), out_capsules, in_dim, out_dim)

    def transform(self, poses: Tensor) -> Tensor:
        return torch.einsum("...ie,ijed->...ijd", poses, self._scaled(self.weight))


class SharedVotes(VoteTransform):
    """u_j|i = W_j u_i: a matrix for every parent, so any number of children will do."""

    _one_bias_per_child = False

    def __init__(
        self, in_capsules: int | None, out_capsules: int, in_dim: int, out_dim: int, **options: object
    ) -> None:
        super().__init__(in_capsules, out_capsules, in_dim, out_dim, **options)  # type: ignore[arg-type]
        self.weight = self._weight(out_capsules, in_dim, out_dim)

    def transform(self, poses: Tensor) -> Tensor:
        return torch.einsum("...ie,jed->...ijd", poses, self._scaled(self.weight))


class FactorisedVotes(VoteTransform):
    """u_j|i = W_j W~_i u_i: a matrix for every child and one for every parent."""

    _one_bias_per_child = False

    def __init__(
        self, in_capsules: int | None, out_capsules: int, in_dim: int, out_dim: int, **options: object
    ) -> None:
        super().__init__(in_capsules, out_capsules, in_dim, out_dim, **options)  # type: ignore[arg-type]
        children = self._known_children("FactorisedVotes")
        self.child_weight = self._weight(children, in_dim, out_dim, std=in_dim**-0.5)
        self.parent_weight = self._weight(out_capsules, out_dim, out_dim, std=self.std * (in_dim / out_dim) ** 0.5)

    def transform(self, poses: Tensor) -> Tensor:
        inner = torch.einsum("...ie,ied->...id", poses, self.child_weight)
        votes = torch.einsum("...id,jdf->...ijf", inner, self.parent_weight)
        return safe_divide(votes, self._norms().unsqueeze(-1)) if self.normalise else votes

    def _norms(self) -> Tensor:
        """|W_j W~_i|_F for every pair, from the two small Gram matrices, without the products themselves."""
        child = torch.einsum("ied,ieg->idg", self.child_weight, self.child_weight)
        parent = torch.einsum("jdf,jgf->jdg", self.parent_weight, self.parent_weight)
        return torch.einsum("idg,jdg->ij", child, parent).clamp(min=0).sqrt()


class MatrixVotes(VoteTransform):
    """V_ij = P_i W_ij: poses are square matrices, row-major, and multiply from the left."""

    def __init__(
        self, in_capsules: int | None, out_capsules: int, in_dim: int, out_dim: int, **options: object
    ) -> None:
        self.side = math.isqrt(in_dim)
        if in_dim != out_dim or self.side**2 != in_dim:
            got = f"in_dim={in_dim} and out_dim={out_dim}"
            raise complaint("MatrixVotes", "in_dim = out_dim = a square number", got, "Use 16 for 4x4 matrices.")
        super().__init__(in_capsules, out_capsules, in_dim, out_dim, **options)  # type: ignore[arg-type]
        self.weight = self._weight(self._known_children("MatrixVotes"), out_capsules, self.side, self.side)

    def _fan_in(self) -> int:
        return math.isqrt(self.in_dim)

    def transform(self, poses: Tensor) -> Tensor:
        matrices = poses.unflatten(-1, (self.side, self.side))
        return torch.einsum("...ipq,ijqr->...ijpr", matrices, self._scaled(self.weight)).flatten(-2)


VOTES: dict[str, type[VoteTransform]] = {
    "full": FullVotes,
    "shared": SharedVotes,
    "factorised": FactorisedVotes,
    "matrix": MatrixVotes,
}


def make_votes(
    name: str, in_capsules: int | None, out_capsules: int, in_dim: int, out_dim: int, **options: object
) -> VoteTransform:
    """A vote transform by name; `VOTES` lists the names."""
    check_choice("make_votes", "votes", name, list(VOTES))
    return VOTES[name](in_capsules, out_capsules, in_dim, out_dim, **options)  # type: ignore[arg-type]


COORDINATE_PLACES = ("column", "first")


def add_coordinates(
    votes: Float[Tensor, "b *grid i j d"], place: str = "column", scale: float = 1.0
) -> Float[Tensor, "b *grid i j d"]:
    """Coordinate addition (Hinton 2018): tell votes from a grid where their child stands.

    Each grid axis runs from -scale/2 to scale/2. The row is added to one element of the vote and the column to the
    next: "column" takes the first elements of the matrix's right-hand column (the paper), "first" the vote's first
    elements (the official code; for vectors).
    """
    check_choice("add_coordinates", "place", place, COORDINATE_PLACES)
    grid = votes.shape[1:-3]
    dim = votes.shape[-1]
    side = math.isqrt(dim)
    if place == "column" and (side**2 != dim or side < len(grid)):
        expected = f"square pose matrices with at least {len(grid)} rows"
        raise complaint("add_coordinates", expected, f"poses of {dim} numbers", 'Use place="first".')
    step, offset = (side, side - 1) if place == "column" else (1, 0)
    if place == "first" and dim < len(grid):
        raise complaint("add_coordinates", f"at least {len(grid)} numbers in a pose", dim, "Use larger poses.")
    shift = votes.new_zeros(*grid, dim)
    for axis, size in enumerate(grid):
        place_of_child = ((torch.arange(size, device=votes.device, dtype=votes.dtype) + 0.5) / size - 0.5) * scale
        spread = place_of_child.view(*(size if other == axis else 1 for other in range(len(grid))), 1)
        basis = torch.zeros(dim, device=votes.device, dtype=votes.dtype)
        basis[offset + axis * step] = 1
        shift = shift + spread * basis
    return votes + shift[..., None, None, :]
