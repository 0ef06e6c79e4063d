"""Tiles change nothing but time and memory: values, gradients, draws, masks, precision."""

import gc
import threading
import weakref

import pytest
import torch
from torch.nn.utils import prune

import torchcaps as tc
from torchcaps.functional import agree, combine, distances, spread
from torchcaps.layers.votes import VoteTransform
from torchcaps.ledger import ledger_of, with_ledger
from torchcaps.scratch import Room, scratch
from torchcaps.tiling import tile_bytes


def capsules(*shape, masked=False):
    generator = torch.Generator().manual_seed(5)
    poses = torch.randn(*shape, generator=generator, dtype=torch.float64)
    activations = torch.rand(shape[:-1], generator=generator, dtype=torch.float64)
    mask = torch.rand(shape[:-1], generator=generator) > 0.3 if masked else None
    return tc.Capsules(poses.requires_grad_(), activations.requires_grad_(), mask)


def outcome(layer, children, **options):
    """Parents, couplings, and the gradients of everything that has one."""
    torch.manual_seed(3)
    routed = layer.route(children, **options)
    torch.manual_seed(3)
    parents = layer(children)
    if not options:
        torch.testing.assert_close(parents[:2], routed[:2], rtol=1e-12, atol=1e-14)
    loss = sum((part * torch.linspace(-1, 1, part.numel(), dtype=part.dtype).view_as(part)).sum() for part in routed)
    leaves = [leaf for leaf in (children.poses, children.activations, *layer.parameters()) if leaf.requires_grad]
    return [*routed, *torch.autograd.grad(loss, leaves, allow_unused=True)]


def assert_same(make, children, **options):
    """One row a tile, untiled, and all in one tile with a ledger, in float64."""
    torch.manual_seed(0)
    layer = make().double()
    layer.tile_bytes = 0
    plain = outcome(layer, children, **options)
    assert any(part is not None for part in plain[3:])
    for size in (1, 2**40):
        layer.tile_bytes = size
        for mine, expected in zip(outcome(layer, children, **options), plain, strict=True):
            if expected is None or mine is None:
                assert mine is expected or not (mine if expected is None else expected).any()
            else:
                torch.testing.assert_close(mine, expected, rtol=1e-9, atol=1e-11)


def dense(**options):
    return lambda: tc.DenseCapsules(7, 4, 5, 6, **options)


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
    {"routing": "attention"},
    {"routing": "uniform"},
]


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("options", ROUTINGS, ids=str)
def test_tiles_change_no_routing(options, masked):
    assert_same(dense(**options), capsules(5, 7, 5, masked=masked))


def test_every_routing_is_tiled():
    assert {options["routing"] for options in ROUTINGS} == set(tc.ROUTINGS)


@pytest.mark.parametrize("normalise", [False, True], ids=["plain", "normalised"])
@pytest.mark.parametrize("votes", ["full", "shared", "factorised"])
def test_tiles_change_no_vote_transform(votes, normalise):
    assert_same(dense(votes=votes, vote_bias=True, normalise=normalise), capsules(5, 7, 5))


def test_tiles_change_no_matrix_votes():
    make = lambda: tc.DenseCapsules(7, 4, 16, 16, votes="matrix", routing="em", vote_bias=True)  # noqa: E731
    assert_same(make, capsules(3, 7, 16))


@pytest.mark.parametrize("competition", ["grid", "window"])
@pytest.mark.parametrize("routing", ["dynamic", "em", "kmeans"])
@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
def test_tiles_change_no_convolution(routing, competition, masked):
    def make():
        return tc.ConvCapsules(
            2, 3, 4, 4, 3, 2, 1, votes="matrix", routing=routing, competition=competition, sampling=0.7
        )

    assert_same(make, capsules(3, 5, 4, 2, 4, masked=masked))


def test_tiles_change_no_convolution_in_one_dimension():
    assert_same(lambda: tc.ConvCapsules(2, 3, 4, 5, 3, dimensions=1), capsules(3, 8, 2, 4, masked=True))


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
        return torch.func.functional_call(layer, {"votes.weight": weight}, (tc.Capsules(poses, activations),))[:2]

    weight = layer.votes.weight.detach().clone().requires_grad_()
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


def test_weights_changed_before_the_backward_pass_are_noticed():
    layer = dense(routing="em", tile_bytes=1)().double()
    loss = layer(capsules(5, 7, 5)).activations.sum()
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
    layer.votes.weight.requires_grad_(False)
    layer(tc.Capsules(children.poses.detach(), children.activations)).poses.sum().backward()
    assert children.poses.grad is None
    assert layer.votes.weight.grad is None
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
        found.append(layer.votes.weight.grad.clone())
    torch.testing.assert_close(found[1], found[0], rtol=2e-3, atol=1e-4)


def test_tiles_in_inference_leave_training_alone():
    layer = dense(routing="em", tile_bytes=1)()
    children = tc.Capsules(torch.randn(5, 7, 5), torch.rand(5, 7))
    with torch.inference_mode():
        layer(children)
    layer(children).poses.sum().backward()
    assert layer.votes.weight.grad.any()


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


class Sizes(tc.Routing):
    """Uniform routing that writes down how many examples it sees at a time."""

    seen: list

    def update(self, votes, weights, previous, step):
        self.seen.append(tuple(votes.shape))
        return combine(weights, votes)

    def read(self, clusters, couplings, weights):
        return tc.Routed(clusters, clusters.norm(dim=-1), couplings)


def sizes_of(layer, children):
    layer.routing.seen = []
    with torch.no_grad():
        layer(children)
    return layer.routing.seen


def test_a_tile_holds_as_many_rows_as_fit():
    row = 7 * 4 * 6 * 4
    layer = tc.DenseCapsules(7, 4, 5, 6, routing=Sizes(1), tile_bytes=2 * row)
    children = tc.Capsules(torch.randn(5, 7, 5), torch.rand(5, 7))
    assert [shape[0] for shape in sizes_of(layer, children)] == [2, 2, 1]


def test_windows_that_compete_stay_together():
    children = tc.Capsules(torch.randn(2, 5, 5, 2, 4), torch.rand(2, 5, 5, 2))
    window, grid = (
        tc.ConvCapsules(2, 3, 4, 4, 3, routing=Sizes(1), competition=how, tile_bytes=1) for how in ("window", "grid")
    )
    assert sizes_of(window, children) == [(1, 18, 3, 4)] * 18
    assert sizes_of(grid, children) == [(1, 3, 3, 18, 3, 4)] * 2


def test_a_routing_of_ones_own_may_read_votes_as_it_likes():
    """Uses of the votes that the ledger does not know add their gradients in the usual way."""

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
    kept = with_ledger(votes)
    assert ledger_of(kept) is not None
    assert ledger_of(votes) is None
    torch.testing.assert_close(torch.autograd.grad(loss(kept), inputs), expected, rtol=1e-10, atol=1e-11)


def test_scratch_is_used_again_from_tile_to_tile():
    room, like = Room(), torch.zeros(1, dtype=torch.float64)
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
    room, like, found = Room(), torch.zeros(1), []
    with room.tile():
        mine = scratch((8,), like)
        thread = threading.Thread(target=lambda: found.append(scratch((8,), like)))
        thread.start()
        thread.join()
    assert found[0].data_ptr() != mine.data_ptr()


# What a review broke.


@pytest.mark.parametrize("routing", ["em", "kmeans", "dynamic"])
def test_votes_are_freed_without_a_backward_pass(routing):
    """A ledger that held the means held their graph, and that the ledger: nobody could free it."""
    layer = dense(routing=routing)()
    freed = []

    def watch(module, inputs):
        weakref.finalize(inputs[0], freed.append, True)

    layer.routing.register_forward_pre_hook(watch)
    children = tc.Capsules(torch.randn(5, 7, 5, requires_grad=True), torch.rand(5, 7))
    for _ in range(3):
        layer(children)
    gc.collect()
    assert len(freed) == 3


class Views(tc.Routing):
    """A routing whose parents are views of the votes of its first child."""

    def update(self, votes, weights, previous, step, origin=None):
        return votes

    def read(self, clusters, couplings, weights):
        return tc.Routed(clusters[..., 0, :, :], clusters[..., 0, :, 0], couplings)


class MovingViews(Views):
    translates = True


@pytest.mark.parametrize("kind", [Views, MovingViews])
@pytest.mark.parametrize("grad", [True, False])
def test_results_that_view_votes_are_not_overwritten_by_the_next_tile(kind, grad):
    layer, children = tc.DenseCapsules(7, 4, 5, 6, routing=kind(1)), capsules(5, 7, 5)
    children = tc.Capsules(*(part.detach().float().requires_grad_(grad) for part in children[:2]))
    found = []
    for size in (0, 1):
        layer.tile_bytes = size
        with torch.set_grad_enabled(grad):
            found.append(layer(children)[:2])
    torch.testing.assert_close(found[1], found[0])


def test_a_hook_may_keep_the_votes_of_the_first_pass():
    layer, children = dense(tile_bytes=1)().double(), capsules(5, 7, 5)
    seen = []
    layer.routing.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    layer(children)
    torch.testing.assert_close(torch.cat(seen), layer.vote(layer.gather(children)))


class OwnPoses(VoteTransform):
    """Votes are the poses themselves: a view."""

    def build(self):
        pass

    def ready(self):
        return ()

    def transform(self, poses, *ready):
        return poses.unsqueeze(-2)


@pytest.mark.parametrize("routing", ["uniform", "gaussian"])
def test_gradients_that_view_scratch_are_not_overwritten_by_the_next_tile(routing):
    layer, children = tc.DenseCapsules(7, 1, 5, 5, votes=OwnPoses(7, 1, 5, 5), routing=routing), capsules(5, 7, 5)
    found = []
    for size in (0, 1):
        layer.tile_bytes = size
        found.append(torch.autograd.grad(layer(children).poses.square().sum(), children.poses)[0])
    torch.testing.assert_close(found[1], found[0])


def test_threads_may_share_a_layer():
    layer, children = dense(routing="em", tile_bytes=1)().double(), capsules(5, 7, 5)
    leaves = list(layer.parameters())
    expected = torch.autograd.grad(layer(children).poses.square().sum(), leaves)
    wrong = []

    def work():
        for _ in range(10):
            found = torch.autograd.grad(layer(children).poses.square().sum(), leaves, allow_unused=True)
            if not all(f is not None and torch.allclose(f, e) for f, e in zip(found, expected, strict=True)):
                wrong.append(found)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert [id(leaf) for leaf in layer.parameters()] == [id(leaf) for leaf in leaves]


def test_what_would_get_no_gradient_is_refused():
    class Conditioned(Sizes):
        def read(self, clusters, couplings, weights):
            return tc.Routed(clusters * self.gain, clusters.norm(dim=-1), couplings)

    routing = Conditioned(1)
    routing.seen, routing.gain = [], torch.tensor(2.0, requires_grad=True)
    layer = tc.DenseCapsules(7, 4, 5, 6, routing=routing, tile_bytes=1).double()
    loss = layer(capsules(5, 7, 5)).poses.sum()
    with pytest.raises(RuntimeError, match=r"a tile uses a tensor \(\) that requires a gradient"):
        loss.backward()
    layer.tile_bytes = 0
    layer(capsules(5, 7, 5)).poses.sum().backward()
    assert routing.gain.grad.any()


def test_what_a_tile_draws_it_draws_again_in_the_backward_pass():
    class Noisy(Sizes):
        def read(self, clusters, couplings, weights):
            clusters = torch.nn.functional.dropout(clusters, 0.5)
            return tc.Routed(clusters, clusters.norm(dim=-1), couplings)

    routing = Noisy(1)
    routing.seen = []
    layer, children = tc.DenseCapsules(7, 4, 5, 6, routing=routing, tile_bytes=1).double(), capsules(5, 7, 5)
    loss = layer(children).poses.sum()  # linear in the poses, so it is their product with its gradient
    state = torch.get_rng_state()
    (gradient,) = torch.autograd.grad(loss, children.poses)
    torch.testing.assert_close((gradient * children.poses).sum(), loss)
    assert torch.equal(torch.get_rng_state(), state)


def test_backward_pass_under_autocast_keeps_the_precision_of_the_forward_pass():
    layer = tc.DenseCapsules(7, 4, 5, 6, tile_bytes=1)
    children = tc.Capsules(*(part.detach().float() for part in capsules(5, 7, 5)[:2]))
    (expected,) = torch.autograd.grad(layer(children).poses.square().sum(), layer.votes.weight)
    loss = layer(children).poses.square().sum()
    with torch.autocast("cpu", dtype=torch.float16):
        (found,) = torch.autograd.grad(loss, layer.votes.weight)
    torch.testing.assert_close(found, expected)


def test_a_child_given_to_nobody_stays_nobodys():
    couplings = torch.full((5, 7, 4), 0.25, dtype=torch.float64)
    couplings[:, 2] = 0
    routed = dense()().double().route(capsules(5, 7, 5), couplings)
    assert routed.poses.isfinite().all()
    assert not routed.couplings[:, 2].any()


def test_ledger_tells_a_matrix_from_its_transpose():
    """Both lie at the same place in memory."""
    votes, weights = torch.randn(3, 4, 4, 2).double().requires_grad_(), torch.rand(3, 4, 4).double()

    def loss(given):
        return combine(weights, given).sin().sum() + combine(weights.mT, given).cos().sum()

    expected = torch.autograd.grad(loss(votes), votes)
    torch.testing.assert_close(torch.autograd.grad(loss(with_ledger(votes)), votes), expected)


def test_centres_may_be_the_same_for_all_examples():
    votes, centres = torch.randn(3, 7, 4, 6), torch.randn(4, 6)
    expected = torch.einsum("bijd,jd->bij", votes, centres)
    torch.testing.assert_close(agree(votes, centres), expected)
    torch.testing.assert_close(agree(with_ledger(votes), centres), expected)
    assert agree(votes[:1], centres).shape == (1, 7, 4)


@pytest.mark.parametrize("size", [0, None])
@pytest.mark.parametrize("votes", ["full", "shared", "factorised", "matrix"])
@pytest.mark.parametrize("routing", sorted(tc.ROUTINGS))
def test_an_empty_batch_gives_an_empty_answer(votes, routing, size):
    layer = tc.DenseCapsules(7, 3, 4, 4, votes=votes, routing=routing, tile_bytes=size)
    assert layer(tc.Capsules(torch.randn(0, 7, 4), torch.rand(0, 7))).poses.shape == (0, 3, 4)


@pytest.mark.parametrize("name", ["gaussian", "kmeans", "dynamic"])
def test_no_children_at_all_make_no_numbers_that_are_not(name):
    assert tc.make_routing(name)(torch.randn(2, 0, 3, 4)).poses.isfinite().all()


def test_pruned_votes_train():
    """Pruning makes the weight anew in a hook before every call."""
    layer, children = dense()().double(), capsules(5, 7, 5)
    prune.l1_unstructured(layer.votes, "weight", 0.5)
    for _ in range(2):
        layer(children).poses.square().sum().backward()
    assert not layer.votes.weight_orig.grad[layer.votes.weight_mask == 0].any()


def test_hooks_on_votes_see_votes():
    layer, children, seen = dense()().double(), capsules(5, 7, 5), []
    layer.votes.register_forward_hook(lambda module, inputs, output: seen.append(output))
    layer(children)
    assert any(isinstance(part, torch.Tensor) and part.shape == (5, 7, 4, 6) for part in seen)


@pytest.mark.filterwarnings("ignore")  # torch's own, of its jvp
def test_untiled_layers_take_transforms_of_torch_func():
    layer, children = dense(tile_bytes=0)().double(), capsules(2, 7, 5)

    def loss(poses):
        return layer(tc.Capsules(poses, children.activations.detach())).poses.square().sum()

    poses = children.poses.detach()
    (expected,) = torch.autograd.grad(loss(children.poses), children.poses)
    torch.testing.assert_close(torch.func.grad(loss)(poses), expected)
    _, change = torch.func.jvp(loss, (poses,), (torch.ones_like(poses),))
    torch.testing.assert_close(change, expected.sum())


def test_rows_of_16_bytes_may_start_anywhere():
    layer = tc.DenseCapsules(7, 3, 4, 4, tile_bytes=1)
    poses = torch.randn(5, 7, 4, requires_grad=True)
    parents = layer(tc.Capsules(poses, torch.rand(5, 7))).poses
    torch.cat([torch.zeros(1), parents.flatten()]).square().sum().backward()
    votes = tc.DenseCapsules(7, 3, 4, 4)
    with Room().tile():
        made = votes.vote(votes.gather(tc.Capsules(poses, torch.rand(5, 7))))
        torch.cat([torch.zeros(1), made.mT.mT.flatten()]).square().sum().backward()
    assert poses.grad.isfinite().all()


def test_an_unused_weight_gets_no_gradient():
    class Idle(Sizes):
        def __init__(self):
            super().__init__(1)
            self.idle, self.seen = torch.nn.Parameter(torch.ones(3)), []

    layer = tc.DenseCapsules(7, 4, 5, 6, routing=Idle(), tile_bytes=1).double()
    layer(capsules(5, 7, 5)).poses.sum().backward()
    assert layer.routing.idle.grad is None


@pytest.mark.filterwarnings("ignore")  # torch's own, from its compiler
def test_a_compiled_routing_works_in_an_eager_layer():
    layer, children = dense(routing="em", tile_bytes=1)().double(), capsules(5, 7, 5)
    expected = layer(children).poses
    torch.compiler.reset()
    layer.routing.compile(backend="aot_eager")
    torch.testing.assert_close(layer(children).poses, expected)


def test_only_the_last_update_is_made_again_for_its_gradient():
    layer, children = dense(gradients="last", tile_bytes=1)().double(), capsules(5, 7, 5)
    calls = []
    layer.routing.register_forward_hook(lambda module, inputs, output: calls.append(module.iterations))
    layer(children).poses.sum().backward()
    assert calls == [3] * 5 + [1] * 5


def test_a_routing_derived_from_one_that_forgets_need_not_forget():
    class Slow(tc.ROUTINGS["dynamic"]):
        def update(self, votes, weights, previous, step):
            sums = super().update(votes, weights, previous, step)
            return sums if previous is None else (sums + previous) / (step + 1)

    assert_same(lambda: tc.DenseCapsules(7, 4, 5, 6, routing=Slow(3, gradients="last")), capsules(3, 7, 5))
