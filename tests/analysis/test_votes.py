"""Votes as points: their principal axes, found by construction."""

import pytest
import torch

from torchcaps._core.types import Routed
from torchcaps.analysis.lastlayer import Voted
from torchcaps.analysis.votes import SPREAD, vote_points


def voted(votes, active, classes):
    poses = torch.zeros(votes.shape[1:])
    steps = (Routed(poses, classes, torch.full(votes.shape[:2], 1 / votes.shape[1])),)
    return Voted(votes, active, steps, True, True)


def test_points_lie_along_the_axes_of_most_variance():
    plane = torch.randn(30, 2, 2) * torch.tensor([3.0, 1.0])
    votes = torch.zeros(30, 2, 5)
    votes[..., 3], votes[..., 1] = plane[..., 0], plane[..., 1]
    found = vote_points(voted(votes + 7, torch.ones(30), torch.tensor([0.2, 0.9])), classes=2)
    assert found.share == pytest.approx(1)
    assert found.classes == (1, 0)
    flat = plane.movedim(1, 0)[[1, 0]].flatten(0, 1).double()
    flat = flat - flat.mean(0)
    between, own = torch.cdist(flat, flat), torch.cdist(found.points, found.points)
    scale = own.sum() / between.sum()
    assert own == pytest.approx((scale * between).numpy(), abs=1e-5)
    assert float(found.points[:, 0].square().mean().sqrt()) == pytest.approx(SPREAD)
    assert found.points.mean(0).tolist() == pytest.approx([0, 0], abs=1e-6)
    assert float(found.points[:, 0] @ found.points[:, 1]) == pytest.approx(0, abs=1e-6)


def test_the_most_active_children_and_classes_are_chosen():
    votes = torch.arange(4.0).view(4, 1, 1) + 10 * torch.arange(3.0).view(1, 3, 1)
    told = voted(votes, torch.tensor([0.1, 0.9, 0.2, 0.8]), torch.tensor([0.3, 0.1, 0.7]))
    found = vote_points(told, classes=2, most=2)
    assert (found.classes, found.children) == ((2, 0), 2)
    assert found.groups.tolist() == [0, 0, 1, 1]
    values = torch.tensor([21.0, 23.0, 1.0, 3.0]).double()  # children 1 and 3 for class 2, then for class 0
    centered = values - values.mean()
    assert found.points[:, 0] == pytest.approx((centered * SPREAD / centered.square().mean().sqrt()).numpy())
    assert found.points[:, 1].tolist() == [0] * 4


def test_votes_that_all_agree_are_one_point():
    found = vote_points(voted(torch.ones(5, 2, 3), torch.ones(5), torch.ones(2)))
    assert found.points.tolist() == [[0, 0]] * 10
    assert found.share == 1


def test_the_variance_off_the_plane_is_told():
    votes = torch.zeros(6, 1, 3)
    for axis, size in enumerate((3.0, 2.0, 1.0)):
        votes[2 * axis, 0, axis], votes[2 * axis + 1, 0, axis] = size, -size
    found = vote_points(voted(votes, torch.ones(6), torch.ones(1)), classes=1)
    assert found.share == pytest.approx((9 + 4) / (9 + 4 + 1))
