"""Votes that are never made give the same parents, couplings and gradients as votes that are."""

import pytest
import torch

import torchcaps as tc
from tests.support.readers import planned
from tests.support.tiles import capsules
from torchcaps.functional import agree, combine
from torchcaps.routing import Dynamic
from torchcaps.votes.algebra import Votes
from torchcaps.votes.lazy import FullProducts, SharedProducts
from torchcaps.votes.transforms import SharedVotes, make_votes

pytestmark = pytest.mark.usefixtures("without_native")

KINDS = [("full", False), ("full", True), ("shared", False), ("shared", True), ("factorized", False)]


def both(votes, bias, leading=(3,)):
    """Votes of the same poses, made and not made, and the tensors they are made from."""
    torch.manual_seed(1)
    transform = make_votes(votes, 5, 3, 4, 6, bias=bias).double()
    for parameter in transform.parameters():
        torch.nn.init.normal_(parameter)
    poses = torch.randn(*leading, 5, 4, dtype=torch.float64, requires_grad=True)
    form = transform.linear()
    given = form.poses(poses, *form.weights[1:])
    given = torch.nn.functional.pad(given, (0, 1), value=1) if bias else given
    if form.pairwise:
        products = FullProducts(given, form.matrices.permute(1, 3, 2, 0).contiguous())
    else:
        products = SharedProducts(given, form.matrices)
    return transform(poses), Votes(products), [poses, *transform.parameters()]


@pytest.mark.parametrize("leading", [(3,), (2, 3), (2, 1, 2)], ids=str)
@pytest.mark.parametrize(("votes", "bias"), KINDS)
def test_products_and_gradients_are_those_of_made_votes(votes, bias, leading):
    made, unmade, leaves = both(votes, bias, leading)
    weights = torch.rand(*leading, 5, 3, dtype=torch.float64, requires_grad=True)
    centers = torch.randn(*leading, 3, 6, dtype=torch.float64, requires_grad=True)
    assert unmade.shape == made.shape
    found = []
    for given in (made, unmade):
        sums, inner = combine(weights, given), agree(given, centers)
        more = agree(given, centers, weights.square())
        torch.testing.assert_close(more, inner + weights.square(), rtol=1e-10, atol=1e-12)
        loss = (sums.sin() * centers).sum() + (inner.cos() * weights).sum() + more.sin().sum()
        found.append([sums, inner, *torch.autograd.grad(loss, [weights, centers, *leaves])])
    torch.testing.assert_close(found[1], found[0], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("votes", "bias"), KINDS)
def test_gradients_are_those_of_finite_differences(votes, bias):
    _, unmade, _ = both(votes, bias)
    weights = torch.rand(3, 5, 3, dtype=torch.float64, requires_grad=True)
    centers = torch.randn(3, 3, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(unmade.combine, weights)
    assert torch.autograd.gradcheck(unmade.agree, centers)


@pytest.mark.parametrize("votes", ["full", "shared"])
def test_weights_that_are_the_same_for_all_are_combined_in_one_product(votes):
    made, unmade, leaves = both(votes, True, (2, 3))
    children = torch.rand(2, 3, 5, 1, dtype=torch.float64)
    for even in (torch.tensor(0.25, dtype=torch.float64).expand(made.shape[:-1]), children.expand(made.shape[:-1])):
        found = [
            [part, *torch.autograd.grad(part.sin().sum(), leaves, retain_graph=True)]
            for part in (unmade.combine(even), combine(even.clone(), made))
        ]
        torch.testing.assert_close(found[0], found[1], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("votes", "gradients", "learning", "expected"),
    [
        ("full", "all", True, "dense"),
        ("full", "all", False, "lazy, by pairs"),
        ("full", "last", True, "lazy, by pairs"),
        ("shared", "all", True, "lazy"),
        ("shared", "all", False, "lazy"),
        ("factorized", "all", True, "lazy"),
    ],
)
def test_votes_are_made_only_where_it_pays(votes, gradients, learning, expected):
    layer = tc.DenseCapsules(7, 4, 5, 6, votes=votes, gradients=gradients, tile_bytes=500).double()
    assert planned(layer, capsules(5, 7, 5), learning) == expected


class Looks(Dynamic):
    """Looks at votes one by one."""

    def update(self, votes, weights, previous, step):
        return torch.einsum("...ij,...ijd->...jd", weights, votes)


class Doubled(SharedVotes):
    def transform(self, poses, *ready):
        return 2 * super().transform(poses, *ready)


def test_what_a_class_changes_is_done():
    children = capsules(5, 7, 5)
    layer, looks, doubled = (
        tc.DenseCapsules(7, 4, 5, 6, **options).double()
        for options in (
            {"votes": "shared"},
            {"votes": "shared", "routing": Looks()},
            {"votes": Doubled(7, 4, 5, 6)},
        )
    )
    with torch.no_grad():
        looks.transform.weight.copy_(layer.transform.weight)
        doubled.transform.weight.copy_(layer.transform.weight / 2)
    assert planned(layer, children) == "lazy"
    assert planned(looks, children) == "dense"
    assert planned(doubled, children) == "dense"
    assert "in its own way" in doubled.plan(children).refusals["lazy"]
    for other in (looks, doubled):
        torch.testing.assert_close(other(children).poses, layer(children).poses)


def test_hooks_and_parametrizations_see_their_votes():
    children = capsules(5, 7, 5)
    layer = tc.DenseCapsules(7, 4, 5, 6, votes="shared").double()
    shapes = []
    handle = layer.transform.register_forward_hook(lambda module, given, votes: shapes.append(votes))
    assert planned(layer, children) == "dense"
    assert shapes
    handle.remove()
    assert planned(layer, children) == "lazy"
    plain = layer(children).poses
    torch.nn.utils.parametrize.register_parametrization(layer.transform, "weight", torch.nn.Tanh())
    changed = layer(children).poses
    assert not torch.allclose(changed, plain)
    layer.tile_bytes = 0
    torch.testing.assert_close(layer(children).poses, changed)


def test_padding_of_any_value_is_nothing():
    layer = tc.DenseCapsules(7, 4, 5, 6, votes="full", vote_bias=True, routing="dynamic")
    torch.nn.init.normal_(layer.transform.bias)
    mask = torch.arange(7).expand(2, 7) < 5
    poses = torch.randn(2, 7, 5)
    with torch.no_grad():
        expected = layer(tc.Capsules(poses.masked_fill(~mask.unsqueeze(-1), 0), torch.ones(2, 7), mask)).poses
        poses[~mask] = torch.nan
        assert torch.equal(layer(tc.Capsules(poses, torch.ones(2, 7), mask)).poses, expected)


def test_half_precision_votes_are_made():
    layer = tc.DenseCapsules(7, 4, 5, 6, votes="shared")
    children = tc.Capsules(torch.randn(2, 7, 5), torch.ones(2, 7))
    with torch.autocast("cpu", torch.float16):
        assert planned(layer, children, learning=False) == "dense"


def test_factors_that_are_normalized_are_no_products_with_matrices():
    assert make_votes("factorized", 5, 3, 4, 6, normalize=True).linear() is None
