"""Class capsules whose transform all places share: coordinates beside a bias, and matrices of children before."""

import pytest
import torch

import torchcaps as tc
from tests.support.tiles import assert_same, capsules


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("coordinates", ["first", None])
@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("votes", ["full", "shared", "factorized"])
@pytest.mark.parametrize("routing", ["em", "dynamic"])
def test_coordinates_and_bias_are_told_apart(routing, votes, bias, coordinates):
    def make():
        layer = tc.ClassCapsules(
            2, 3, 5, 6, votes=votes, routing=routing, vote_bias=bias, coordinates=coordinates, dimensions=1
        )
        if bias:
            torch.nn.init.normal_(layer.transform.bias)
        return layer

    assert_same(make, capsules(3, 4, 2, 5))
