"""Float32 pays nothing for speed: routings and layers agree with themselves in float64."""

import pytest
import torch

import torchcaps as tc
from tests.support.readers import with_factors

MOVING = [
    ("kmeans", {"sharpness": 0.5}),
    ("kde", {"bandwidth": 4.0, "tolerance": 0.0}),
    ("gaussian", {}),
    ("gaussian", {"covariance": "spherical"}),
    ("gaussian", {"covariance": "full"}),
    ("em", {"out_capsules": 8, "inverse_temperature": 0.1}),
    ("em", {"out_capsules": 8, "preset": "official"}),
    ("heinsen", {"out_capsules": 8, "beta_use": 0.1}),
    ("variational", {"out_capsules": 8, "inverse_temperature": 0.1}),
]


def relative(mine, exact):
    return ((mine.double() - exact).abs().max() / exact.abs().max()).item()


def far_votes(ratio, children=300):
    """Votes whose mean is `ratio` times their spread, with another sign for each parent and dimension."""
    generator = torch.Generator().manual_seed(0)
    place = torch.randn(4, 1, 8, 16, generator=generator).sign() * ratio
    return torch.randn(4, children, 8, 16, generator=generator) + place, torch.rand(4, children, generator=generator)


@torch.no_grad()
@pytest.mark.parametrize("ratio", [0, 1000])
@pytest.mark.parametrize("factors", [False, True], ids=["plain", "factors"])
@pytest.mark.parametrize(("name", "options"), MOVING, ids=str)
def test_float32_routing_agrees_with_float64_far_from_the_origin(name, options, factors, ratio):
    votes, activations = far_votes(ratio)
    single, double = tc.make_routing(name, **options), tc.make_routing(name, **options).double()
    mine = single(with_factors(votes) if factors else votes, activations)
    exact = double(votes.double(), activations.double())
    for part, wanted in zip(mine, exact, strict=True):
        assert relative(part, wanted) < 1e-4


@torch.no_grad()
def test_padding_does_not_spoil_the_precision():
    votes, activations = far_votes(1000)
    mask = torch.arange(300).expand(4, 300) < 30
    for name in ("gaussian", "kmeans"):
        mine = tc.make_routing(name)(votes, activations, mask=mask).couplings
        exact = tc.make_routing(name).double()(votes.double(), activations.double(), mask=mask).couplings
        assert relative(mine, exact) < 1e-4


@torch.no_grad()
@pytest.mark.parametrize("name", ["gaussian", "em"])
def test_float32_variances_agree_with_float64_far_from_the_origin(name):
    """Seen through the loop: the variances that the last M-step makes."""
    options = {"out_capsules": 8} if name == "em" else {}
    found = []
    votes, activations = far_votes(1000)
    for dtype in (torch.float32, torch.float64):
        routing = tc.make_routing(name, **options).to(dtype)
        seen = []
        read = routing.read
        routing.read = lambda clusters, *rest, read=read, seen=seen: (seen.append(clusters), read(clusters, *rest))[1]
        routing(votes.to(dtype), activations.to(dtype))
        found.append(seen[-1].covariances)
    assert relative(found[0], found[1]) < 1e-5


@pytest.mark.parametrize("routing", sorted(tc.ROUTINGS))
def test_float32_layer_agrees_with_float64(routing):
    torch.manual_seed(0)
    single = tc.DenseCapsules(60, 8, 8, 16, routing=routing, tile_bytes=10 * 60 * 8 * 16 * 4)
    double = tc.DenseCapsules(60, 8, 8, 16, routing=routing, tile_bytes=0).double()
    double.load_state_dict(single.state_dict())
    poses = tc.squash(torch.randn(32, 60, 8))
    ramp = torch.linspace(-1, 1, 16)  # the lengths alone say nothing of poses that are normalized
    found = []
    for layer, dtype in ((single, torch.float32), (double, torch.float64)):
        given = poses.to(dtype, copy=True).requires_grad_()
        parents = layer(tc.Capsules(given, tc.length(poses).to(dtype)))
        (parents.poses * ramp.to(dtype)).square().sum().backward()
        found.append([parents.poses, parents.activations, given.grad, layer.transform.weight.grad])
    for mine, exact in zip(*found, strict=True):
        assert relative(mine.detach(), exact.detach()) < 1e-5


def test_gradients_far_from_the_origin_agree_with_float64():
    votes, activations = far_votes(1000, children=50)
    found = []
    for dtype in (torch.float32, torch.float64):
        leaf = votes.to(dtype, copy=True).requires_grad_()
        routed = tc.make_routing("em", out_capsules=8).to(dtype)(with_factors(leaf), activations.to(dtype))
        slopes = torch.linspace(-1, 1, 16, dtype=dtype)  # no difference of large numbers in the loss itself
        ((routed.poses * slopes).sum() + routed.couplings.square().sum()).backward()
        found.append(leaf.grad)
    assert relative(found[0], found[1]) < 1e-4


def test_moving_all_votes_moves_the_means_alone():
    votes, activations = far_votes(0)
    votes, activations, move = votes.double(), activations.double(), torch.randn(8, 16, dtype=torch.float64)
    for name, options in MOVING[:4]:
        routing = tc.make_routing(name, mass_floor=1e-30, **options).double()
        here, there = routing(votes, activations), routing(votes + move, activations)
        torch.testing.assert_close(there.poses, here.poses + move, rtol=1e-9, atol=1e-10)
        torch.testing.assert_close(there.couplings, here.couplings, rtol=1e-8, atol=1e-10)
