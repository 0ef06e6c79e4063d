"""Capsules for vectors."""

import pytest
import torch

import torchcaps as tc
from torchcaps.models import VectorCapsules


def test_capsules_are_a_linear_map_of_a_vector():
    model = VectorCapsules(5, 3, capsules=4, capsule_dim=2)
    vectors = torch.randn(6, 5)
    children = model.children_of(vectors[..., None, None])
    weight, bias = model.primary.poses.weight.flatten(1), model.primary.poses.bias
    expected = tc.squash((vectors @ weight.T + bias).unflatten(1, (4, 2)), "exponential")
    torch.testing.assert_close(children.poses[:, 0, 0], expected)


@pytest.mark.parametrize("routing", tc.ROUTINGS)
def test_answers_in_capsules_with_every_routing(routing):
    model = VectorCapsules(5, 3, routing=routing)
    answer = model(torch.randn(6, 5, 1, 1))
    assert answer.poses.shape == (6, 3, 16)
    assert answer.activations.shape == (6, 3)
    assert len(model.trace(torch.randn(2, 5, 1, 1))) == 1


def test_sizes_are_checked():
    with pytest.raises(ValueError, match="VectorCapsules: expected capsules to be a whole number from 1 on, got 0"):
        VectorCapsules(5, 3, capsules=0)
