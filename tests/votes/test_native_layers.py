"""Layers that compute natively: which of them do, and that they keep what every layer promises."""

import os
import subprocess
import sys
import threading

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import torchcaps as tc
from tests.support.readers import planned
from tests.support.tiles import Sizes, capsules
from torchcaps.functional import combine
from torchcaps.routing.kmeans import KMeans
from torchcaps.votes.native.backend import tile_of


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("changed", ["weight", "poses"])
def test_what_is_changed_before_the_backward_pass_is_noticed_or_harmless(changed, frozen):
    """Matrices are read where they are; of poses a copy is read, in the order of the functions."""
    layer = tc.DenseCapsules(7, 4, 5, 6, routing="em").double()
    layer.transform.weight.requires_grad_(not frozen)
    poses = torch.randn(32, 7, 5, dtype=torch.float64)
    activations = torch.rand(32, 7, dtype=torch.float64, requires_grad=True)
    loss = layer(tc.Capsules(poses, activations)).poses.square().sum()
    (expected,) = torch.autograd.grad(loss, activations, retain_graph=True)
    with torch.no_grad():
        (layer.transform.weight if changed == "weight" else poses).add_(1)
    if changed == "weight":
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            torch.autograd.grad(loss, activations)
    else:
        assert torch.equal(torch.autograd.grad(loss, activations)[0], expected)


@pytest.mark.usefixtures("native")
def test_gradients_of_gradients_are_refused():
    layer, children = tc.DenseCapsules(7, 4, 5, 6).double(), capsules(5, 7, 5)
    with pytest.raises(RuntimeError, match="tile_bytes=0"):
        torch.autograd.grad(layer(children).poses.sum(), children.poses, create_graph=True)


@pytest.mark.usefixtures("native")
def test_which_layers_are_native():
    """Not those whose votes somebody looks at, nor halves, nor poses that are too large, nor other devices."""

    def kinds(layer, children=None):
        given = tc.Capsules(torch.randn(9, 7, 5), torch.rand(9, 7)) if children is None else children
        return "native" if planned(layer, given) == "native" else "other"

    for routing in tc.ROUTINGS:
        assert kinds(tc.DenseCapsules(7, 4, 5, 6, routing=routing)) == "native"
    assert kinds(tc.DenseCapsules(7, 4, 5, 6, routing="em", votes="shared")) == "native"
    assert kinds(tc.DenseCapsules(7, 4, 5, 6, routing="gaussian", covariance="full")) == "other"
    assert kinds(tc.DenseCapsules(7, 4, 5, 6, votes="shared")) == "native"
    assert kinds(tc.DenseCapsules(7, 4, 5, 65, votes="shared")) == "native"
    assert kinds(tc.DenseCapsules(7, 4, 5, 65)) == "other"
    assert kinds(tc.DenseCapsules(7, 4, 5, 6, tile_bytes=0)) == "other"
    layer = tc.DenseCapsules(7, 4, 5, 6)
    with torch.autocast("cpu", torch.float16):
        assert kinds(layer) == "other"
    elsewhere = tc.Capsules(torch.randn(9, 7, 5, device="meta"), torch.rand(9, 7, device="meta"))
    assert kinds(layer.to("meta"), elsewhere) == "other"
    hooked = tc.DenseCapsules(7, 4, 5, 6)
    hooked.transform.register_forward_hook(lambda *_: None)
    assert kinds(hooked) == "other"


def test_one_example_is_computed_by_torch():
    layer = tc.DenseCapsules(7, 4, 5, 6)
    assert "fewer than 8" in layer.plan(tc.Capsules(torch.randn(1, 7, 5), torch.rand(1, 7))).refusals["native"]


@pytest.mark.parametrize(
    ("examples", "windows", "most", "expected"),
    [
        (128, 1, 200, 192),  # whole blocks
        (128, 1, 20, 32),  # one, if less would fit
        (8, 36, 3, 2),  # several windows in a block
        (8, 36, 0, 1),
        (64, 16, 40, 32),
    ],
)
def test_tiles_fill_vectors(examples, windows, most, expected):
    assert tile_of(examples, windows, most, 32) == expected


class Worn(torch.Tensor):
    """A tensor of another class, which may keep its numbers elsewhere."""


@pytest.mark.usefixtures("native")
def test_tensors_of_other_classes_are_left_to_torch():
    layer, poses, activations = tc.DenseCapsules(7, 4, 5, 6), torch.randn(9, 7, 5), torch.rand(9, 7)
    assert planned(layer, tc.Capsules(poses, activations)) == "native"
    assert planned(layer, tc.Capsules(poses.as_subclass(Worn), activations)) == "dense"
    assert planned(layer, tc.Capsules(poses, activations.as_subclass(Worn))) == "dense"


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_distances_stay_equal(dtype):
    """The vote of an only child is its own mean, to the last bit: with hard couplings all parents share it."""
    layer = tc.DenseCapsules(1, 3, 5, 4, routing="kmeans", hard=True).to(dtype)
    couplings = layer.route(tc.Capsules(torch.randn(8, 1, 5, dtype=dtype), torch.ones(8, 1, dtype=dtype))).couplings
    torch.testing.assert_close(couplings, torch.full((8, 1, 3), 1 / 3, dtype=dtype))


@pytest.mark.usefixtures("native")
def test_a_class_that_looks_at_votes_gets_them():
    class Looks(KMeans):
        def update(self, votes, weights, *rest, **more):
            assert (votes * 2).shape == votes.shape
            return super().update(votes, weights, *rest, **more)

    layer, children = tc.DenseCapsules(7, 4, 5, 6, routing=Looks()), tc.Capsules(torch.randn(9, 7, 5), torch.rand(9, 7))
    same = tc.DenseCapsules(7, 4, 5, 6, routing="kmeans")
    same.load_state_dict(layer.state_dict())
    assert planned(layer, children) == "dense"
    assert planned(same, children) == "native"
    torch.testing.assert_close(layer(children).poses, same(children).poses)


@pytest.mark.usefixtures("way")
def test_a_routing_that_translates_and_sees_sums():
    class Means(Sizes):
        translation_equivariant = True

        def update(self, votes, weights, previous, step, origin):
            return combine(weights, votes) / weights.sum(-2).unsqueeze(-1)

    for votes in ("shared", "full"):
        layer = tc.DenseCapsules(7, 4, 5, 6, routing=Means(1), votes=votes).double()
        children = capsules(9, 7, 5)
        with torch.no_grad():
            torch.testing.assert_close(layer(children).poses, layer.vote(layer.gather(children)).mean(1))


@pytest.mark.usefixtures("native")
@pytest.mark.filterwarnings("ignore:Full backward hook is firing")  # also where weights alone are asked for
def test_backward_hooks_see_votes():
    layer, seen = tc.DenseCapsules(7, 4, 5, 6).double(), []
    layer.transform.register_full_backward_hook(lambda module, given, gradients: seen.append(gradients[0].shape))
    layer(capsules(9, 7, 5)).poses.sum().backward()
    assert torch.Size((9, 7, 4, 6)) in seen


@pytest.mark.usefixtures("native")
def test_tiles_of_few_examples_are_left_to_torch(monkeypatch):
    monkeypatch.setattr("torchcaps.votes.native.backend.FEWEST", 8)
    for examples, native in ((7, False), (9, True)):
        children = tc.Capsules(torch.randn(examples, 7, 5), torch.rand(examples, 7))
        assert (planned(tc.DenseCapsules(7, 4, 5, 6), children) == "native") == native


@pytest.mark.usefixtures("native")
def test_modes_that_watch_operations_see_them_all():
    layer, children = tc.DenseCapsules(7, 4, 5, 6), tc.Capsules(torch.randn(9, 7, 5), torch.rand(9, 7))
    with FlopCounterMode(display=False) as counter:
        layer(children)
    assert counter.get_total_flops() > 0


@pytest.mark.usefixtures("native")
def test_a_small_stack_is_enough():
    code = (
        "import torch, torchcaps as tc; torch.set_num_threads(2);"
        "layer = tc.DenseCapsules(64, 4, 64, 64, routing='em');"
        "layer(tc.Capsules(torch.randn(64, 64, 64), torch.rand(64, 64))).poses.sum().backward()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, env={**os.environ, "OMP_STACKSIZE": "64k"})


@pytest.mark.usefixtures("way")
def test_backward_passes_at_the_same_time_do_not_mix():
    layer, children = tc.DenseCapsules(7, 4, 5, 6, routing="em").double(), capsules(40, 7, 5)
    parents = layer(children).poses
    losses = [(parents * scale).sum() for scale in (1.0, 10.0, 100.0)]
    expected = torch.autograd.grad(losses[0], layer.transform.weight, retain_graph=True)[0]
    found = [[] for _ in losses]

    def run(place):
        for _ in range(20):
            found[place].append(torch.autograd.grad(losses[place], layer.transform.weight, retain_graph=True)[0])

    threads = [threading.Thread(target=run, args=(place,)) for place in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for scale, gradients in zip((1.0, 10.0, 100.0), found, strict=True):
        assert len(gradients) == 20
        for gradient in gradients:
            torch.testing.assert_close(gradient, scale * expected)


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("examples", [5, 20, 60])
@pytest.mark.parametrize("routing", tc.ROUTINGS)
def test_an_example_is_the_same_wherever_it_stands(routing, examples):
    layer, order = tc.DenseCapsules(16, 10, 8, 16, routing=routing), torch.randperm(examples)
    poses, activations = torch.randn(examples, 16, 8), torch.rand(examples, 16)
    with torch.no_grad():
        found = layer(tc.Capsules(poses, activations))
        moved = layer(tc.Capsules(poses[order], activations[order]))
    assert torch.equal(found.poses[order], moved.poses)
    assert torch.equal(found.activations[order], moved.activations)


@pytest.mark.usefixtures("native")
def test_the_backward_pass_keeps_one_number_for_each_pair_and_iteration():
    """Couplings times activations are computed again from their factors, of which the softmax keeps one anyway."""
    layer = tc.DenseCapsules(512, 16, 4, 4, routing="em", iterations=3)
    given = tc.Capsules(torch.randn(64, 512, 4), torch.rand(64, 512, requires_grad=True))
    layer(given)  # compiles, and makes what is made once for each shape
    with torch.profiler.profile(profile_memory=True) as profile:
        parents = layer(given)
    kept = sum(event.self_cpu_memory_usage for event in profile.key_averages())
    pairs = 4 * 64 * 512 * 16  # bytes
    assert 2 * pairs < kept < 3 * pairs  # couplings of the second and third iteration; those of the first are even
    parents.activations.sum().backward()
