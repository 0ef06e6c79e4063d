"""Native functions give the same numbers as plain loops and as torch, for any size, layout and number of threads."""

import itertools
import os
import subprocess
import sys
import threading

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import torchcaps as tc
from tests.readers import NativeVotes, planned
from tests.tiles import Sizes, capsules
from torchcaps.functional import agree, combine, distances, spread
from torchcaps.routing.kmeans import KMeans
from torchcaps.votes.native import build
from torchcaps.votes.native.backend import tile_of
from torchcaps.votes.transforms import make_votes

SIZES = {  # votes, in_dim, out_dim
    "capsnet": ("full", 8, 16),
    "odd": ("full", 5, 7),
    "narrow": ("full", 3, 2),
    "single": ("full", 1, 1),
    "wide": ("full", 12, 40),
    "matrix": ("matrix", 16, 16),
    "odd matrix": ("matrix", 9, 9),
    "large matrix": ("matrix", 36, 36),
}
# Fewer than the lanes of a vector, as many, one more, several blocks with and without a rest.
EXAMPLES = [1, 5, 8, 16, 17, 37, 64, 131]


def both(votes, in_dim, out_dim, leading, *, bias=False, dtype=torch.float64, children=5, parents=3):
    """Votes of the same poses, made by torch and native, and the tensors they are made from."""
    transform = make_votes(votes, children, parents, in_dim, out_dim, bias=bias).to(dtype)
    for parameter in transform.parameters():
        torch.nn.init.normal_(parameter)
    poses = torch.randn(*leading, children, in_dim, dtype=dtype, requires_grad=True)
    given = torch.nn.functional.pad(poses, (0, 1), value=1) if bias else poses
    return transform(poses), NativeVotes(given, transform.linear().matrices), [poses, *transform.parameters()]


def readings(votes, weights, means, precisions):
    """All four products, in a number that depends on all of them twice."""
    parts = [
        combine(weights, votes),
        agree(votes, means),
        spread(weights, votes, means),
        distances(votes, means, precisions),
    ]
    return [*parts, sum((part.sin() * torch.linspace(-1, 1, part.numel()).view_as(part)).sum() for part in parts)]


def beside(votes, dtype=torch.float64):
    *leading, children, parents, dim = votes.shape
    weights = torch.rand(*leading, children, parents, dtype=dtype, requires_grad=True)
    means = torch.randn(*leading, parents, dim, dtype=dtype, requires_grad=True)
    precisions = torch.rand(*leading, parents, dim, dtype=dtype, requires_grad=True)
    return weights, means, precisions


def assert_alike(made, native, leaves, given, rtol=1e-10, atol=1e-10):
    assert isinstance(native, NativeVotes)
    assert native.shape == made.shape
    found = []
    for votes in (made, native):
        results = readings(votes, *given)
        found.append([*results, *torch.autograd.grad(results[-1], [*given, *leaves])])
    torch.testing.assert_close(found[1], found[0], rtol=rtol, atol=atol)


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("examples", EXAMPLES)
@pytest.mark.parametrize("sizes", SIZES)
def test_products_and_gradients_are_those_of_torch(sizes, examples):
    made, native, leaves = both(*SIZES[sizes], (examples,))
    assert_alike(made, native, leaves, beside(made))


def test_sums_and_distances_are_those_of_plain_loops(native):
    """The oracle knows neither torch's products nor the layout: numbers, indices, additions."""
    torch.manual_seed(2)
    weight = torch.randn(3, 2, 2, 2, dtype=torch.float64)  # [i j k c]
    poses = torch.randn(4, 3, 4, dtype=torch.float64)  # two rows of two
    votes = NativeVotes(poses, weight)
    pairs, means = torch.rand(4, 3, 2, dtype=torch.float64), torch.randn(4, 2, 4, dtype=torch.float64)
    sums, inner = torch.zeros(4, 2, 4, dtype=torch.float64), torch.zeros(4, 3, 2, dtype=torch.float64)
    squares, apart = torch.zeros_like(sums), torch.zeros_like(inner)
    for n, i, j, row, c in itertools.product(range(4), range(3), range(2), range(2), range(2)):
        vote = sum(poses[n, i, 2 * row + k] * weight[i, j, k, c] for k in range(2))
        d = 2 * row + c
        sums[n, j, d] += pairs[n, i, j] * vote
        inner[n, i, j] += vote * means[n, j, d]
        squares[n, j, d] += pairs[n, i, j] * (vote - means[n, j, d]) ** 2
        apart[n, i, j] += (vote - means[n, j, d]) ** 2
    torch.testing.assert_close(combine(pairs, votes), sums, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(agree(votes, means), inner, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(spread(pairs, votes, means), squares, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(distances(votes, means), apart, rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("leading", [(), (3,), (2, 3), (2, 1, 9)], ids=str)
@pytest.mark.parametrize("bias", [False, True])
def test_leading_axes_and_biases(leading, bias):
    made, native, leaves = both("full", 4, 6, leading, bias=bias)
    assert_alike(made, native, leaves, beside(made))


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("sizes", SIZES)
def test_float32_is_as_exact_as_torch(sizes):
    """Against float64: the largest error of native functions is at most four times that of torch's products."""
    children, (votes, in_dim, out_dim) = 200, SIZES[sizes]
    transform = make_votes(votes, children, 3, in_dim, out_dim)
    poses = torch.randn(21, children, in_dim)
    given = [part.detach() for part in beside(transform(poses), torch.float32)]

    def products(dtype, native):
        leaves = [tensor.to(dtype).requires_grad_() for tensor in (poses, transform.weight.detach(), *given)]
        made = torch.func.functional_call(transform, {"weight": leaves[1]}, (leaves[0],))
        votes = NativeVotes(*leaves[:2]) if native else made
        results = readings(votes, *leaves[2:])[:-1]
        gradients = torch.autograd.grad(sum(part.square().sum() for part in results), leaves)
        return [part.detach() for part in (*results, *gradients)]

    exact = products(torch.float64, False)
    errors = [
        [float((part - true).abs().max() / true.abs().max()) for part, true in zip(found, exact, strict=True)]
        for found in (products(torch.float32, True), products(torch.float32, False))
    ]
    for own, torchs in zip(*errors, strict=True):
        assert own <= max(4 * torchs, 1e-6)


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_threads_change_nothing(threads):
    before = torch.get_num_threads()
    found = []
    for count in (1, threads):
        torch.set_num_threads(count)
        torch.manual_seed(3)
        _, native, leaves = both("full", 8, 16, (53,), children=19)
        results = readings(native, *beside(native))
        found.append([*results, *torch.autograd.grad(results[-1], leaves)])
    torch.set_num_threads(before)
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("shape", [(), (1, 1, 1), (20, 1, 1), (1, 5, 1), (20, 5, 1), (20, 1, 3)], ids=str)
def test_weights_that_are_the_same_for_some(shape):
    made, native, leaves = both("full", 4, 6, (20,))
    weights = torch.rand(shape, dtype=torch.float64, requires_grad=True)
    found = [
        [part, *torch.autograd.grad(part.sin().sum(), [weights, *leaves])]
        for part in (combine(weights.expand(20, 5, 3), votes) for votes in (made, native))
    ]
    torch.testing.assert_close(found[1], found[0], rtol=1e-10, atol=1e-12)


@pytest.mark.usefixtures("native")
def test_gradients_are_those_of_finite_differences():
    weight = torch.randn(3, 2, 2, 2, dtype=torch.float64, requires_grad=True)
    poses = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)

    def run(poses, weight, *given):
        return readings(NativeVotes(poses, weight), *given)[-1]

    assert torch.autograd.gradcheck(run, (poses, weight, *beside(NativeVotes(poses, weight))))


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("masked", [False, True])
def test_centred_votes_are_those_less_their_mean(masked):
    made, native, leaves = both("matrix", 16, 16, (9,))
    mask = torch.rand(9, 5) > 0.4 if masked else None
    shown = made if mask is None else made * mask[..., None, None]
    count = 5 if mask is None else mask.sum(-1).clamp(min=1).view(-1, 1, 1)
    mean = shown.sum(-3) / count
    moved, pivot = native.centred(mask)
    torch.testing.assert_close(pivot, mean.detach())
    assert_alike(made - mean.detach().unsqueeze(-3), moved, leaves, beside(made))


@pytest.mark.usefixtures("native")
def test_a_mean_far_away_does_not_cost_the_spread():
    """In float32, around a mean that is a thousand times the spread."""
    torch.manual_seed(4)
    weight = torch.eye(4).expand(300, 2, 4, 4).contiguous()
    poses = 1000 + torch.randn(16, 300, 16)
    votes, _ = NativeVotes(poses, weight).centred(None)
    even = torch.full((16, 300, 2), 1 / 300)
    means = combine(even, votes)
    expected = poses.double().var(1, unbiased=False).unsqueeze(1).expand(16, 2, 16)
    torch.testing.assert_close(spread(even, votes, means).double(), expected, rtol=1e-4, atol=0)


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("changed", ["weight", "poses"])
def test_what_is_changed_before_the_backward_pass_is_noticed_or_harmless(changed, frozen):
    """Matrices are read where they are; of poses a copy is read, in the order of the functions."""
    layer = tc.DenseCapsules(7, 4, 5, 6, routing="em").double()
    layer.votes.weight.requires_grad_(not frozen)
    poses = torch.randn(32, 7, 5, dtype=torch.float64)
    activations = torch.rand(32, 7, dtype=torch.float64, requires_grad=True)
    loss = layer(tc.Capsules(poses, activations)).poses.square().sum()
    (expected,) = torch.autograd.grad(loss, activations, retain_graph=True)
    with torch.no_grad():
        (layer.votes.weight if changed == "weight" else poses).add_(1)
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
    assert kinds(tc.DenseCapsules(7, 4, 5, 6, votes="shared")) == "other"
    assert kinds(tc.DenseCapsules(7, 4, 5, 65)) == "other"
    assert kinds(tc.DenseCapsules(7, 4, 5, 6, tile_bytes=0)) == "other"
    layer = tc.DenseCapsules(7, 4, 5, 6)
    with torch.autocast("cpu", torch.float16):
        assert kinds(layer) == "other"
    elsewhere = tc.Capsules(torch.randn(9, 7, 5, device="meta"), torch.rand(9, 7, device="meta"))
    assert kinds(layer.to("meta"), elsewhere) == "other"
    hooked = tc.DenseCapsules(7, 4, 5, 6)
    hooked.votes.register_forward_hook(lambda *_: None)
    assert kinds(hooked) == "other"


def test_one_example_is_computed_by_torch():
    layer = tc.DenseCapsules(7, 4, 5, 6)
    assert "fewer than 8" in layer.plan(tc.Capsules(torch.randn(1, 7, 5), torch.rand(1, 7))).refusals["native"]


@pytest.mark.usefixtures("_forgotten", "native")
@pytest.mark.parametrize("examples", [5, 40, 131])
@pytest.mark.parametrize("sizes", ["capsnet", "odd", "matrix", "odd matrix"])
@pytest.mark.parametrize("width", [16, 64])
def test_vectors_of_other_processors_give_the_same(monkeypatch, width, sizes, examples):
    """Those of processors with narrower and wider ones; the compiler makes do with what this one has."""
    flags = build.FLAGS.get(torch.backends.cpu.get_cpu_capability(), ())
    capability = torch.backends.cpu.get_cpu_capability()
    monkeypatch.setitem(build.FLAGS, capability, (*flags, f"-DMOST={width}", "-Wno-psabi"))
    monkeypatch.setitem(build.VECTORS, capability, width)
    build._built.cache_clear()
    made, native, leaves = both(*SIZES[sizes], (examples,))
    assert_alike(made, native, leaves, beside(made))


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


@pytest.mark.usefixtures("native")
def test_numbers_of_another_kind_never_reach_the_functions():
    layer, children = tc.DenseCapsules(7, 4, 5, 6, routing="em"), tc.Capsules(torch.randn(9, 7, 5), torch.rand(9, 7))
    layer.routing.double()
    assert planned(layer, children) == "dense"
    assert layer.plan(children).refusals["native"] == "tensors are of several dtypes"
    _, votes, _ = both("full", 5, 6, (9,), dtype=torch.float32)
    with pytest.raises(TypeError, match=r"expected numbers beside them of torch.float32 on the CPU, got torch.float64"):
        votes.combine(torch.rand(9, 5, 3, dtype=torch.float64))


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
def test_votes_can_be_centred_twice():
    _, votes, _ = both("full", 4, 6, (9,))
    once, first = votes.centred(None)
    twice, second = once.centred(None)
    torch.testing.assert_close(second, torch.zeros_like(first), rtol=0, atol=1e-12)
    weights, _, _ = beside(votes)
    torch.testing.assert_close(combine(weights, twice), combine(weights, once))


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
        translates = True

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
    layer.votes.register_full_backward_hook(lambda module, given, gradients: seen.append(gradients[0].shape))
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
    expected = torch.autograd.grad(losses[0], layer.votes.weight, retain_graph=True)[0]
    found = [[] for _ in losses]

    def run(place):
        for _ in range(20):
            found[place].append(torch.autograd.grad(losses[place], layer.votes.weight, retain_graph=True)[0])

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
