"""Coordinates that are added to votes, as further numbers of poses: backends then see products with matrices alone."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from torchcaps.votes.job import Job, Part


def added_columns(job: Job, columns: int) -> list[int]:
    """The columns of votes to which coordinates are added: each is one more number of a pose's row."""
    if job.gathered.known_offsets is None:
        return []
    used = job.gathered.known_offsets.unflatten(-1, (-1, columns)).abs().amax((0, 1))
    return [column for column, most in enumerate(used.tolist()) if most]


def extended(matrices: Tensor, added: list[int], bias: bool) -> Tensor:
    """Matrices [t j k c] with a row of a one for each column that something is added to; a bias stays the last row."""
    if not added:
        return matrices
    every = torch.eye(matrices.shape[-1], dtype=matrices.dtype, device=matrices.device)
    ones = every[added].expand(*matrices.shape[:2], -1, -1)
    return torch.cat([matrices[:, :, :-1], ones, matrices[:, :, -1:]] if bias else [matrices, ones], 2)


def extended_beside(matrices: Tensor, added: int) -> Tensor:
    """Matrices [i e d] that leave as many further numbers of a pose as they are."""
    ones = torch.eye(added, dtype=matrices.dtype, device=matrices.device).expand(len(matrices), -1, -1)
    return torch.cat([pad(matrices, (0, added)), pad(ones, (matrices.shape[2], 0))], 1) if added else matrices


def children_of(job: Job, added: list[int], columns: int) -> Part:
    """Children by their places, [b q c e], with coordinates as further numbers of the rows of their poses."""
    gathered = job.gathered
    flat = (len(gathered.children.poses), gathered.places, gathered.types)
    poses = gathered.children.silent_poses().reshape(*flat, -1)
    if gathered.offsets is not None and added:
        more = gathered.offsets.unflatten(-1, (-1, columns))[..., added]  # [q rows a]
        rows = poses.unflatten(-1, (more.shape[1], -1))
        poses = torch.cat([rows, more[:, None].expand(*rows.shape[:-1], -1)], -1).flatten(-2)
    activations = gathered.children.activations.reshape(flat)
    return Part(poses, activations, gathered.mask, job.couplings, job.kept)
