"""How children are divided among parents, and what parents receive: the couplings of a network for one image."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torchcaps._core.errors import input_error
from torchcaps.analysis.lastlayer import Voted
from torchcaps.functional import unit


@dataclass(frozen=True)
class Sharing:
    """One child's couplings [j], and what a parent receives: s = Sum_i c_i u_i, a vector [d].

    parts [i]: the contribution of each child to s, <c_i u_i, s> / |s|^2; they sum to one, and votes against the parent
    are negative. If parents are means, c_i is the child's weight in the mean.
    """

    child: int
    couplings: Tensor
    parent: int
    received: Tensor
    parts: Tensor
    activations: Tensor


@dataclass(frozen=True)
class Agreement:
    """Votes for two parents as arrows in a plane, with one child's vote for each of them marked.

    For each of the parents [2]: votes [2 n 2] of the n strongest children, and the marked child's vote [2 2]. The first
    axis of the plane is the direction of the parent's pose, so that votes to the right agree with it; the second is the
    first principal axis of the remainder of the votes. held [2]: the fraction of the votes' squared length in this
    plane. cosines [2]: between the marked vote and the pose, in all dimensions. before, after [2]: the marked child's
    couplings at the first and the last iteration.
    """

    parents: tuple[int, int]
    child: int
    votes: Tensor
    marked: Tensor
    held: Tensor
    cosines: Tensor
    before: Tensor
    after: Tensor


def sharing(voted: Voted, child: int | None = None, parent: int | None = None) -> Sharing:
    """How one child is divided among its parents, and what one parent receives from all children.

    By default, the parent is the most active one and the child the one that contributes most to it.
    """
    activations = voted.steps[-1].activations
    parent = int(activations.argmax()) if parent is None else _checked("parent", parent, len(activations))
    given = voted.shares()[:, parent, None] * voted.votes[:, parent]
    received = given.sum(0)
    parts = given @ received / received.square().sum().clamp(min=torch.finfo(received.dtype).tiny)
    child = int(parts.argmax()) if child is None else _checked("child", child, len(parts))
    return Sharing(child, voted.steps[-1].couplings[child], parent, received, parts, activations)


def agreement(
    voted: Voted, parents: tuple[int, int] | None = None, child: int | None = None, count: int = 12
) -> Agreement:
    """Two parents and the votes of the `count` strongest children for them, for routings by inner product.

    By default, the parents are the two most active ones, and the child is the one with the largest product of its
    coupling to the first parent and the difference of the cosines between its votes and both parents.
    """
    classes = len(voted.poses)
    if voted.parents_are_means:
        expected = "a routing by inner product (attention, dynamic, entropy, inverted)"
        raise input_error("agreement", expected, "one by distance", "Try torchcaps draw convergence.")
    if parents is None:
        if classes < 2:
            raise input_error("agreement", "at least two parents", classes, "Use a network of more classes.")
        first, second = voted.steps[-1].activations.topk(2).indices.tolist()
    else:
        first, second = (_checked("parent", parent, classes) for parent in parents)
    pair = [first, second]
    votes, poses = voted.votes[:, pair].movedim(1, 0), voted.poses[pair]  # [2 i d], [2 d]
    angles = torch.cosine_similarity(votes, poses.unsqueeze(1), dim=-1)  # [2 i]
    before, after = voted.steps[0].couplings[:, pair], voted.steps[-1].couplings[:, pair]
    if child is None:
        child = int((after[:, 0] * (angles[0] - angles[1])).argmax())
    child = _checked("child", child, votes.shape[1])
    strongest = voted.activations.topk(min(count, votes.shape[1])).indices
    plane = torch.stack([_plane(one[strongest], pose) for one, pose in zip(votes, poses, strict=True)])  # [2 2 d]
    shown = torch.einsum("nid,npd->nip", votes[:, strongest], plane)
    return Agreement(
        (first, second),
        child,
        shown,
        torch.einsum("nd,npd->np", votes[:, child], plane),
        shown.square().sum((1, 2)) / votes[:, strongest].square().sum((1, 2)),
        angles[:, child],
        before[child],
        after[child],
    )


def _plane(votes: Tensor, pose: Tensor) -> Tensor:
    """Two orthogonal directions, [2 d]: that of the pose, and the first principal axis of the rest of the votes."""
    along = unit(pose)
    beside = torch.eye(len(pose), dtype=torch.float64) - torch.outer(along, along).double()
    # A small part of every other direction, in case all votes are parallel to the pose.
    rest = torch.cat([votes.double() @ beside, 1e-9 * beside])
    across = torch.linalg.svd(rest, full_matrices=False).Vh[0].to(pose.dtype)
    return torch.stack([along, across])


def _checked(word: str, number: int, count: int) -> int:
    if not 0 <= number < count:
        raise input_error(f"--{word}", f"a {word} from 0 to {count - 1}", number, "Choose one of these.")
    return number
