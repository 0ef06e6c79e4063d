"""Tiles under odd use: views, hooks, threads, random numbers, pruning, empty batches, what is freed and when."""

import gc
import threading
import weakref

import pytest
import torch
from torch.nn.utils import prune

import torchcaps as tc
from tests.support.readers import with_factors
from tests.support.routings import sized
from tests.support.tiles import Sizes, assert_same, capsules, dense
from torchcaps.functional import agree, combine
from torchcaps.votes.buffers import BufferPool
from torchcaps.votes.transforms import VoteTransform

pytestmark = pytest.mark.usefixtures("way")


@pytest.mark.parametrize("routing", ["em", "kmeans", "dynamic"])
def test_votes_are_freed_without_a_backward_pass(routing):
    """Factors that held the means held their graph, and that the factors: nobody could free them."""
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
    translation_equivariant = True


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

    def reset_parameters(self):
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
    children = capsules(70, 7, 5)
    loss = layer(children).poses.sum()
    if layer.plan(children).keep:  # nothing is made again
        loss.backward()
        assert routing.gain.grad.any()
        return
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
    (expected,) = torch.autograd.grad(layer(children).poses.square().sum(), layer.transform.weight)
    loss = layer(children).poses.square().sum()
    with torch.autocast("cpu", dtype=torch.float16):
        (found,) = torch.autograd.grad(loss, layer.transform.weight)
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
    torch.testing.assert_close(torch.autograd.grad(loss(with_factors(votes)), votes), expected)


def test_centers_may_be_the_same_for_all_examples():
    votes, centers = torch.randn(3, 7, 4, 6), torch.randn(4, 6)
    expected = torch.einsum("bijd,jd->bij", votes, centers)
    torch.testing.assert_close(agree(votes, centers), expected)
    torch.testing.assert_close(agree(with_factors(votes), centers), expected)
    assert agree(votes[:1], centers).shape == (1, 7, 4)


@pytest.mark.parametrize("size", [0, None])
@pytest.mark.parametrize("votes", ["full", "shared", "factorized", "matrix"])
@pytest.mark.parametrize("routing", sorted(tc.ROUTINGS))
def test_an_empty_batch_gives_an_empty_answer(votes, routing, size):
    layer = tc.DenseCapsules(7, 3, 4, 4, votes=votes, routing=routing, tile_bytes=size)
    assert layer(tc.Capsules(torch.randn(0, 7, 4), torch.rand(0, 7))).poses.shape == (0, 3, 4)


@pytest.mark.parametrize("name", ["gaussian", "kmeans", "dynamic", "kde", "variational", "heinsen", "inverted"])
def test_no_children_at_all_make_no_numbers_that_are_not(name):
    assert tc.make_routing(name, **sized(name))(torch.randn(2, 0, 3, 4)).poses.isfinite().all()


def test_pruned_votes_train():
    """Pruning makes the weight anew in a hook before every call."""
    layer, children = dense()().double(), capsules(5, 7, 5)
    prune.l1_unstructured(layer.transform, "weight", 0.5)
    for _ in range(2):
        layer(children).poses.square().sum().backward()
    assert not layer.transform.weight_orig.grad[layer.transform.weight_mask == 0].any()


def test_hooks_on_votes_see_votes():
    layer, children, seen = dense()().double(), capsules(5, 7, 5), []
    layer.transform.register_forward_hook(lambda module, inputs, output: seen.append(output))
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
    with BufferPool().tile():
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


def test_a_routing_derived_from_one_that_forgets_need_not_forget():
    class Slow(tc.ROUTINGS["dynamic"]):
        def update(self, votes, weights, previous, step):
            sums = super().update(votes, weights, previous, step)
            return sums if previous is None else (sums + previous) / (step + 1)

    assert_same(lambda: tc.DenseCapsules(7, 4, 5, 6, routing=Slow(3, gradients="last")), capsules(3, 7, 5))
