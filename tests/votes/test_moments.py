"""Masses, sums and squares about the mean, read natively in one go: what they may not depend on."""

import pytest
import torch

from tests.support.readers import NativeVotes
from torchcaps.votes.algebra import Votes

pytestmark = pytest.mark.usefixtures("native")


def some(examples, children=12, parents=20, dim=4, dtype=torch.float32):
    """Poses, matrices and weights; votes of every other example for the first parents nearly agree, far from zero."""
    poses = torch.randn(examples, children, dim, dtype=dtype)
    poses[::2] = 30 + 0.1 * poses[::2]
    matrices = torch.eye(dim, dtype=dtype) + 0.01 * torch.randn(1, parents, dim, dim, dtype=dtype)
    matrices[:, 3:] -= matrices[:, 3:].mean(2, keepdim=True)
    weights = torch.rand(examples, children, parents, dtype=dtype)
    return poses, matrices.expand(children, -1, -1, -1), weights


def parts(votes, weights):
    """Masses, sums, and squares about the mean."""
    found = votes.moments(weights)
    return found.masses, found.sums, found.spread(found.sums / found.masses.unsqueeze(-1))


def test_the_number_of_threads_changes_no_bit():
    poses, matrices, weights = some(40)
    before, found = torch.get_num_threads(), []
    for threads in (1, 2, 3, 7):
        torch.set_num_threads(threads)
        found.append(parts(NativeVotes(poses, matrices), weights))
    torch.set_num_threads(before)
    assert all(torch.equal(*pair) for other in found[1:] for pair in zip(found[0], other, strict=True))


def test_neighbors_change_no_bit():
    """Examples whose mean is near are read once, whoever shares their block."""
    poses, matrices, weights = some(64)
    together = parts(NativeVotes(poses, matrices), weights)
    apart = parts(NativeVotes(poses[1::2], matrices), weights[1::2])
    assert all(torch.equal(mine[1::2], own) for mine, own in zip(together, apart, strict=True))


@pytest.mark.parametrize("scale", [1e20, float("inf"), float("nan")])
def test_votes_whose_squares_are_beyond_all_numbers(scale):
    """Squares about the mean are those of torch: numbers where they are numbers, NaN where a vote is none."""
    poses, matrices, weights = some(16)
    poses[3] = 1e20
    poses[3, 2] = scale
    made = torch.einsum("bie,ijed->bijd", poses.double(), matrices.double()).float()
    (*_, wanted), (*_, found) = (parts(votes, weights) for votes in (Votes(None, made), NativeVotes(poses, matrices)))
    torch.testing.assert_close(found.isfinite(), wanted.isfinite())
    others = torch.arange(16) != 3
    torch.testing.assert_close(found[others], wanted[others], rtol=1e-3, atol=1e-5)
