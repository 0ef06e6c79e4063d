"""Native functions give the same numbers as plain loops and as torch, for any size, layout and number of threads."""

import itertools

import pytest
import torch

import torchcaps as tc
from tests.support.readers import NativeVotes, planned
from torchcaps.functional import agree, combine, distances, spread
from torchcaps.votes.native import build
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
def test_centered_votes_are_those_less_their_mean(masked):
    made, native, leaves = both("matrix", 16, 16, (9,))
    mask = torch.rand(9, 5) > 0.4 if masked else None
    shown = made if mask is None else made * mask[..., None, None]
    count = 5 if mask is None else mask.sum(-1).clamp(min=1).view(-1, 1, 1)
    mean = shown.sum(-3) / count
    moved, pivot = native.centered(mask)
    torch.testing.assert_close(pivot, mean.detach())
    assert_alike(made - mean.detach().unsqueeze(-3), moved, leaves, beside(made))


@pytest.mark.usefixtures("native")
def test_a_mean_far_away_does_not_cost_the_spread():
    """In float32, around a mean that is a thousand times the spread."""
    torch.manual_seed(4)
    weight = torch.eye(4).expand(300, 2, 4, 4).contiguous()
    poses = 1000 + torch.randn(16, 300, 16)
    votes, _ = NativeVotes(poses, weight).centered(None)
    even = torch.full((16, 300, 2), 1 / 300)
    means = combine(even, votes)
    expected = poses.double().var(1, unbiased=False).unsqueeze(1).expand(16, 2, 16)
    torch.testing.assert_close(spread(even, votes, means).double(), expected, rtol=1e-4, atol=0)


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


@pytest.mark.usefixtures("native")
def test_numbers_of_another_kind_never_reach_the_functions():
    layer, children = tc.DenseCapsules(7, 4, 5, 6, routing="em"), tc.Capsules(torch.randn(9, 7, 5), torch.rand(9, 7))
    layer.routing.double()
    assert planned(layer, children) == "dense"
    assert layer.plan(children).refusals["native"] == "tensors are of several dtypes"
    _, votes, _ = both("full", 5, 6, (9,), dtype=torch.float32)
    with pytest.raises(TypeError, match=r"expected numbers beside them of torch.float32 on the CPU, got torch.float64"):
        votes.combine(torch.rand(9, 5, 3, dtype=torch.float64))


@pytest.mark.usefixtures("native")
def test_votes_can_be_centered_twice():
    _, votes, _ = both("full", 4, 6, (9,))
    once, first = votes.centered(None)
    twice, second = once.centered(None)
    torch.testing.assert_close(second, torch.zeros_like(first), rtol=0, atol=1e-12)
    weights, _, _ = beside(votes)
    torch.testing.assert_close(combine(weights, twice), combine(weights, once))
