"""Tiles change nothing but time and memory: values, gradients, draws, masks, precision."""

import threading

import pytest
import torch

import torchcaps as tc
from tests.support.readers import with_factors
from tests.support.tiles import Sizes, assert_same, capsules, dense
from torchcaps.functional import agree, combine, distances, spread
from torchcaps.votes.buffers import BufferPool, scratch
from torchcaps.votes.tiling import tile_bytes

pytestmark = pytest.mark.usefixtures("way")

ROUTINGS = [
    {"routing": "dynamic"},
    {"routing": "dynamic", "gradients": "last"},
    {"routing": "dynamic", "accumulate": False, "bias": True},
    {"routing": "dynamic", "leaky": True, "amendment": True},
    {"routing": "dynamic", "hard": True},
    {"routing": "dynamic", "sampling": 0.5},
    {"routing": "dynamic", "gradients": "last", "bias": True, "leaky": True, "amendment": True},
    {"routing": "dynamic", "gradients": "last", "sampling": 0.5, "accumulate": False},
    {"routing": "entropy", "gradients": "last", "entropy_decay": 0.5},
    {"routing": "kmeans", "distance": "inner", "gradients": "last"},
    {"routing": "em", "gradients": "last", "preset": "official"},
    {"routing": "kmeans"},
    {"routing": "kmeans", "distance": "inner", "sharpness": 2.0},
    {"routing": "entropy", "entropy_weight": 0.5},
    {"routing": "gaussian"},
    {"routing": "gaussian", "covariance": "full"},
    {"routing": "gaussian", "covariance": "spherical", "gradients": "last"},
    {"routing": "gaussian", "covariance": "fixed"},
    {"routing": "em", "inverse_temperature": 0.5},
    {"routing": "em", "preset": "official", "beta_per_dimension": True},
    {"routing": "em", "variant": 1},
    {"routing": "heinsen", "beta_use": 0.5, "beta_ignore": 0.1},
    {"routing": "heinsen", "beta_use": 0.5, "gradients": "last", "leaky": True},
    {"routing": "variational"},
    {"routing": "variational", "gradients": "last", "leaky": True},
    {"routing": "kde"},
    {"routing": "kde", "tolerance": 0.5, "iterations": 9},
    {
        "routing": "kde",
        "kernel": "epanechnikov",
        "bandwidth": 3.0,
        "tolerance": 0.3,
        "gradients": "last",
        "leaky": True,
    },
    {"routing": "inverted"},
    {"routing": "inverted", "gradients": "last", "leaky": True},
    {"routing": "attention"},
    {"routing": "uniform"},
]


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("options", ROUTINGS, ids=str)
def test_tiles_change_no_routing(options, masked):
    assert_same(dense(**options), capsules(5, 7, 5, masked=masked))


def test_every_routing_is_tiled():
    assert {options["routing"] for options in ROUTINGS} == set(tc.ROUTINGS)


@pytest.mark.parametrize("normalize", [False, True], ids=["plain", "normalized"])
@pytest.mark.parametrize("votes", ["full", "shared", "factorized"])
def test_tiles_change_no_vote_transform(votes, normalize):
    assert_same(dense(votes=votes, vote_bias=True, normalize=normalize), capsules(5, 7, 5))


def test_tiles_change_no_matrix_votes():
    make = lambda: tc.DenseCapsules(7, 4, 16, 16, votes="matrix", routing="em", vote_bias=True)  # noqa: E731
    assert_same(make, capsules(3, 7, 16))


@pytest.mark.parametrize("competition", ["grid", "window"])
@pytest.mark.parametrize("routing", ["dynamic", "em", "kmeans"])
@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
def test_tiles_change_no_convolution(routing, competition, masked):
    def make():
        return tc.ConvCapsules2d(
            2, 3, 4, 4, 3, 2, 1, votes="matrix", routing=routing, competition=competition, sampling=0.7
        )

    assert_same(make, capsules(3, 5, 4, 2, 4, masked=masked))


def test_tiles_change_no_convolution_in_one_dimension():
    assert_same(lambda: tc.ConvCapsules1d(2, 3, 4, 5, 3), capsules(3, 8, 2, 4, masked=True))


@pytest.mark.parametrize("coordinates", ["column", "first", None])
def test_tiles_change_no_class_capsules(coordinates):
    assert_same(lambda: tc.ClassCapsules(2, 3, 4, 4, coordinates=coordinates), capsules(3, 4, 3, 2, 4))


def test_tiles_take_given_couplings():
    couplings = torch.rand(5, 7, 4, dtype=torch.float64).softmax(-1)
    assert_same(dense(iterations=1), capsules(5, 7, 5), couplings=couplings)
    layer = dense(iterations=2)().double()
    couplings.requires_grad_()
    found = []
    for size in (0, 1):
        layer.tile_bytes = size
        found.append(torch.autograd.grad(layer.route(capsules(5, 7, 5), couplings).poses.sum(), couplings)[0])
    torch.testing.assert_close(found[1], found[0], rtol=1e-9, atol=1e-12)


def test_tiled_gradients_are_those_of_finite_differences():
    layer = tc.DenseCapsules(4, 3, 2, 4, votes="full", routing="em", inverse_temperature=0.5, tile_bytes=1).double()
    children = capsules(2, 4, 2)

    def run(poses, activations, weight):
        return torch.func.functional_call(layer, {"transform.weight": weight}, (tc.Capsules(poses, activations),))[:2]

    weight = layer.transform.weight.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(run, (children.poses, children.activations, weight), atol=1e-6)


def test_weights_swapped_for_one_call_get_the_gradient():
    """functional_call puts other weights in for the forward pass only; the backward pass must use the same."""
    layer = dense(routing="em", tile_bytes=1)().double()
    children = capsules(5, 7, 5)
    other = {name: (2 * p).detach().requires_grad_() for name, p in layer.named_parameters()}
    tiled = torch.func.functional_call(layer, other, (children,)).poses.square().sum()
    found = torch.autograd.grad(tiled, list(other.values()))
    layer.tile_bytes = 0
    plain = torch.func.functional_call(layer, other, (children,)).poses.square().sum()
    torch.testing.assert_close(found, torch.autograd.grad(plain, list(other.values())), rtol=1e-9, atol=1e-11)


def test_weights_changed_before_the_backward_pass_are_noticed(monkeypatch):
    monkeypatch.setattr("torchcaps.votes.engine.KEPT_BYTES", 0)  # where tiles are kept, a bias need not be known again
    layer = dense(routing="em", tile_bytes=1)().double()
    loss = layer(capsules(70, 7, 5)).activations.sum()
    with torch.no_grad():
        layer.routing.beta_use.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("size", [1, 2**40])
def test_backward_pass_can_be_run_in_parts_and_again(size):
    """A first pass that stops before the votes must leave nothing behind for the second."""
    layer = dense(routing="em", tile_bytes=size)().double()
    children = capsules(5, 7, 5)
    loss = layer(children).poses.square().sum()
    expected = torch.autograd.grad(layer(children).poses.square().sum(), children.poses)[0]
    torch.autograd.grad(loss, children.activations, retain_graph=True)
    first = torch.autograd.grad(loss, children.poses, retain_graph=True)[0]
    second = torch.autograd.grad(loss, children.poses)[0]
    torch.testing.assert_close(first, expected)
    torch.testing.assert_close(second, expected)


def test_gradients_of_gradients_need_untiled_votes():
    layer = dense(tile_bytes=0)().double()
    children = capsules(2, 7, 5)
    (gradient,) = torch.autograd.grad(layer(children).poses.square().sum(), children.poses, create_graph=True)
    gradient.square().sum().backward()
    assert children.poses.grad.any()
    for size in (1, 2**40):
        layer.tile_bytes = size
        for loss in (layer(children).poses.square().sum(), layer(children).poses.sum()):
            with pytest.raises(RuntimeError, match=r"gradients of gradients .* tile_bytes=0"):
                torch.autograd.grad(loss, children.poses, create_graph=True)


def test_only_what_needs_a_gradient_gets_one():
    layer = dense(routing="em", tile_bytes=1)().double()
    children = capsules(5, 7, 5)
    layer.transform.weight.requires_grad_(False)
    layer(tc.Capsules(children.poses.detach(), children.activations)).poses.sum().backward()
    assert children.poses.grad is None
    assert layer.transform.weight.grad is None
    assert children.activations.grad.any()
    assert layer.routing.beta_use.grad.any()


@pytest.mark.parametrize("size", [1, 2**40])
def test_tiles_under_autocast_keep_their_precision(size):
    layer = tc.DenseCapsules(7, 4, 5, 6)
    children = tc.Capsules(*(part.detach().float() for part in capsules(5, 7, 5)[:2]))
    found = []
    for budget in (0, size):
        layer.tile_bytes = budget
        layer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = layer(children).poses.square().sum()
        loss.backward()
        found.append(layer.transform.weight.grad.clone())
    torch.testing.assert_close(found[1], found[0], rtol=2e-3, atol=1e-4)


def test_tiles_in_inference_leave_training_alone():
    layer = dense(routing="em", tile_bytes=1)()
    children = tc.Capsules(torch.randn(5, 7, 5), torch.rand(5, 7))
    with torch.inference_mode():
        layer(children)
    layer(children).poses.sum().backward()
    assert layer.transform.weight.grad.any()


def test_memory_of_a_tile_comes_from_an_argument_or_the_environment(monkeypatch):
    assert tile_bytes() == 12 * 2**20
    monkeypatch.setenv("TORCHCAPS_TILE_BYTES", "1000")
    assert tile_bytes() == 1000
    assert tile_bytes(7) == 7
    monkeypatch.setenv("TORCHCAPS_TILE_BYTES", "8 MB")
    with pytest.raises(ValueError, match="expected a number of bytes, or 0 for no tiles, got '8 MB'"):
        tile_bytes()
    with pytest.raises(ValueError, match="tile_bytes"):
        tc.DenseCapsules(7, 4, 5, 6, tile_bytes=-1)


def sizes_of(layer, children):
    layer.routing.seen = []
    with torch.no_grad():
        layer(children)
    return layer.routing.seen


def test_a_tile_holds_as_many_rows_as_fit():
    row = 7 * 4 * 6 * 4
    layer = tc.DenseCapsules(7, 4, 5, 6, routing=Sizes(1), tile_bytes=2 * row)
    children = tc.Capsules(torch.randn(5, 7, 5), torch.rand(5, 7))
    plan = layer.plan(children)
    if plan.backend == "native":  # at least a block
        assert plan.rows >= 16
        assert plan.tiles == 1
    else:
        assert [shape[0] for shape in sizes_of(layer, children)] == [2, 2, 1]


@pytest.mark.usefixtures("without_native")
def test_windows_that_compete_stay_together():
    children = tc.Capsules(torch.randn(2, 5, 5, 2, 4), torch.rand(2, 5, 5, 2))
    window, grid = (
        tc.ConvCapsules2d(2, 3, 4, 4, 3, routing=Sizes(1), competition=how, tile_bytes=1) for how in ("window", "grid")
    )
    assert sizes_of(window, children) == [(1, 18, 3, 4)] * 18
    assert sizes_of(grid, children) == [(1, 3, 3, 18, 3, 4)] * 2


def test_a_routing_of_ones_own_may_read_votes_as_it_likes():
    """Uses of the votes that the factors do not know add their gradients in the usual way."""

    class Mixed(Sizes):
        def read(self, clusters, couplings, weights):
            return tc.Routed(clusters + self.votes.square().sum(-3), clusters.norm(dim=-1), couplings)

        def update(self, votes, weights, previous, step):
            self.votes = votes
            return combine(weights, votes)

        def assign(self, votes, clusters, scores, step):
            return -(votes - clusters.unsqueeze(-3)).abs().sum(-1) + agree(votes, clusters)

    assert_same(lambda: tc.DenseCapsules(7, 4, 5, 6, routing=Mixed(2)), capsules(3, 7, 5))


@pytest.mark.parametrize("leading", [(), (3,), (2, 2)])
def test_ledger_gives_the_gradients_of_autograd(leading):
    torch.manual_seed(0)
    votes, weights = torch.randn(*leading, 6, 3, 4).double(), torch.rand(*leading, 6, 3).double()
    means, precisions = torch.randn(*leading, 3, 4).double(), torch.rand(*leading, 3, 4).double()
    inputs = [part.requires_grad_() for part in (votes, weights, means, precisions)]

    def loss(given):
        other = means + 0.5 * combine(weights, given)
        return sum(
            part.sin().sum()
            for part in (
                agree(given, other),
                spread(weights, given, means),
                spread(weights.square(), given, other),
                distances(given, other, precisions),
                distances(given, means),
                given.cos(),
            )
        )

    expected = torch.autograd.grad(loss(votes), inputs)
    kept = with_factors(votes)
    torch.testing.assert_close(torch.autograd.grad(loss(kept), inputs), expected, rtol=1e-10, atol=1e-11)


def test_scratch_is_used_again_from_tile_to_tile():
    room, like = BufferPool(), torch.zeros(1, dtype=torch.float64)
    with room.tile():
        first, second = scratch((2, 3), like), scratch((4,), like)
        assert first.data_ptr() != second.data_ptr()
        assert first.dtype == torch.float64
    with room.tile():
        assert scratch((3, 2), like).data_ptr() == first.data_ptr()
        larger = scratch((100,), like)
        assert larger.shape == (100,)
    assert scratch((2, 3), like).data_ptr() != first.data_ptr()


def test_scratch_is_a_threads_own():
    room, like, found = BufferPool(), torch.zeros(1), []
    with room.tile():
        mine = scratch((8,), like)
        thread = threading.Thread(target=lambda: found.append(scratch((8,), like)))
        thread.start()
        thread.join()
    assert found[0].data_ptr() != mine.data_ptr()


@pytest.mark.parametrize("gradients", ["all", "last"])
def test_room_is_kept_between_calls_and_no_result_lies_in_it(gradients):
    layer = dense(gradients=gradients, tile_bytes=1)().double()
    with torch.inference_mode():  # room that is taken here serves calls with gradients too
        layer(capsules(3, 7, 5))
    children = capsules(3, 7, 5)
    answer = layer(children)
    found = torch.autograd.grad(answer.poses.sum(), [children.poses, *layer.parameters()])
    before = [part.detach().clone() for part in (answer.poses, *found)]
    other = capsules(3, 7, 5)
    layer(other._replace(poses=9 - other.poses)).poses.sum().backward()
    for part, same in zip((answer.poses, *found), before, strict=True):
        assert torch.equal(part, same)


def test_a_layer_called_within_a_tile_has_room_of_its_own():
    outer, inner = (dense(tile_bytes=1)().double() for _ in range(2))
    children = capsules(3, 7, 5)
    with torch.no_grad():
        wanted = outer(children)
        plain = outer.routing.read

        def read(*parts):
            inner(children)
            return plain(*parts)

        outer.routing.read = read
        assert torch.equal(outer(children).poses, wanted.poses)
