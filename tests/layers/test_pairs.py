"""Pair masks: a dense layer over the edges of a graph, for every routing and by every way to compute it."""

import functools

import pytest
import torch

import torchcaps as tc
from tests.oracles.pairs import GRAPHS

CHILDREN, PARENTS, DIM = 6, 4, 3


def some_pairs(*leading):
    """Pairs at random, but child 1 and parent 2 have none, and child 0 and parent 0 a single one."""
    found = torch.rand(*leading, CHILDREN, PARENTS, generator=torch.Generator().manual_seed(7)) > 0.35
    found[..., 0, :] = found[..., :, 0] = found[..., 1, :] = found[..., :, 2] = False
    found[..., 4, 0] = found[..., 0, 3] = found[..., 5, 1] = True
    return found


def made(routing, masked=False, batch=2, **options):
    torch.manual_seed(3)
    layer = tc.DenseCapsules(CHILDREN, PARENTS, DIM, DIM, routing=routing, std=0.8, **options).double()
    with torch.no_grad():
        for parameter in layer.routing.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    poses = torch.randn(batch, CHILDREN, DIM, dtype=torch.float64, requires_grad=True)
    activations = (0.2 + 0.7 * torch.rand(batch, CHILDREN, dtype=torch.float64)).requires_grad_()
    mask = torch.ones(batch, CHILDREN, dtype=torch.bool)
    mask[-1, 3] = False
    return layer, tc.Capsules(poses, activations, mask if masked else None)


def outcome(results, layer, children):
    """Values, and gradients of a number that all of them enter."""
    ramps = (torch.linspace(-1, 1, part.numel(), dtype=part.dtype).view_as(part) for part in results)
    loss = sum((part * ramp).sum() for part, ramp in zip(results, ramps, strict=True))
    leaves = [children.poses, children.activations, *layer.parameters()]
    found = torch.autograd.grad(loss, leaves, allow_unused=True)
    return [*results, *(torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found, strict=True))]


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("routing", tc.ROUTINGS)
def test_routing_over_pairs_equals_plain_loops_over_edges(routing, masked):
    layer, children = made(routing, masked)
    pairs = some_pairs(2)
    routed = layer.route(children, pair_mask=pairs)
    real = pairs if children.mask is None else pairs & children.mask.unsqueeze(-1)
    votes = layer.transform(children.poses)
    examples = zip(votes, children.activations, real, strict=True)
    oracle = zip(*(GRAPHS[routing](u, a, there, layer.routing).run() for u, a, there in examples), strict=True)
    expected = outcome([torch.stack(part) for part in oracle], layer, children)
    mine = outcome(list(routed), layer, children)
    torch.testing.assert_close(mine[:3], expected[:3], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(mine[3:], expected[3:], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("tile_bytes", [1, 2**40], ids=["tiles", "one tile"])
@pytest.mark.parametrize("routing", tc.ROUTINGS)
def test_every_way_to_compute_gives_the_same_over_pairs(routing, tile_bytes):
    """Against votes and competition of torch alone; native and lazy votes are refused in words."""
    layer, children = made(routing, masked=True, batch=9)
    pairs = some_pairs(9)
    layer.tile_bytes = 0
    expected = outcome(list(layer.route(children, pair_mask=pairs)), layer, children)
    layer.tile_bytes = tile_bytes
    mine = outcome(list(layer.route(children, pair_mask=pairs)), layer, children)
    torch.testing.assert_close(mine, expected, rtol=1e-9, atol=1e-11)
    parents = layer(children, pairs)
    torch.testing.assert_close(parents[:2], tuple(expected[:2]), rtol=1e-12, atol=1e-13)
    last = layer.trace(children, pair_mask=pairs)[-1]
    torch.testing.assert_close(list(last.routed), expected[:3], rtol=1e-9, atol=1e-11)
    assert last.objective is None
    plan = layer.plan(children, pairs)
    assert plan.backend == "dense"
    assert set(plan.refusals.values()) == {"not all pairs are there"}


@pytest.mark.parametrize("options", [{}, {"hard": True}, {"leaky": True}, {"gradients": "last"}], ids=str)
@pytest.mark.parametrize("routing", tc.ROUTINGS)
def test_absent_pairs_count_for_nothing(routing, options):
    """Whatever stands in a child without pairs; absent couplings are zero, the others share what there is."""
    if not set(options) <= set(tc.routing_options(routing)):
        options = {}
    layer, children = made(routing, **options)
    pairs = some_pairs()
    routed = layer.route(children, pair_mask=pairs)
    assert not routed.couplings[:, ~pairs].any()
    if layer.routing.normalized:
        expected = pairs.any(-1).double().expand(2, -1)
        torch.testing.assert_close(routed.couplings.sum(-1), expected)
    rubbish = children.poses.detach().clone()
    rubbish[:, 1] = float("nan")
    torch.testing.assert_close(layer.route(children._replace(poses=rubbish), pair_mask=pairs), routed)
    parents = layer(children, pairs)
    assert parents.mask.tolist() == [[True, True, False, True]] * 2
    assert not parents.poses[:, 2].any()
    assert not parents.activations[:, 2].any()
    values = outcome(list(routed), layer, children)
    assert all(value.isfinite().all() for value in values)
    assert not values[3][:, 1].any()


@pytest.mark.parametrize("routing", tc.ROUTINGS)
def test_all_pairs_are_the_ordinary_layer(routing):
    layer, children = made(routing)
    every = torch.ones(CHILDREN, PARENTS, dtype=torch.bool)
    plain, mine = layer.route(children), layer.route(children, pair_mask=every)
    torch.testing.assert_close(mine, plain, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(outcome(list(mine), layer, children), outcome(list(plain), layer, children))


@pytest.mark.parametrize("routing", tc.ROUTINGS)
def test_no_pair_at_all_gives_silence_and_no_gradient(routing):
    layer, children = made(routing)
    nothing = torch.zeros(CHILDREN, PARENTS, dtype=torch.bool)
    values = outcome(list(layer.route(children, pair_mask=nothing)), layer, children)
    assert not any(value.any() for value in values)


@pytest.mark.parametrize("routing", tc.ROUTINGS)
def test_gradients_over_pairs_are_those_of_differences(routing):
    layer, children = made(routing, batch=1, tile_bytes=0)

    def run(poses, activations):
        return layer.route(tc.Capsules(poses, activations), pair_mask=some_pairs())

    assert torch.autograd.gradcheck(run, (children.poses, children.activations))


def test_pairs_of_blocks_are_layers_of_their_own():
    """Two graphs in one: what is connected with nothing of the other routes as if it were alone."""
    layer, children = made("dynamic")
    pairs = torch.zeros(CHILDREN, PARENTS, dtype=torch.bool)
    pairs[:4, :1] = pairs[4:, 1:] = True
    parents = layer(children, pairs)
    alone = tc.DenseCapsules(2, 3, DIM, DIM).double()
    alone.transform.weight.data = layer.transform.weight.data[4:, 1:].clone()
    torch.testing.assert_close(
        parents.poses[:, 1:], alone(tc.Capsules(children.poses[:, 4:], children.activations[:, 4:])).poses
    )


def test_given_couplings_of_absent_pairs_are_dropped():
    layer, children = made("dynamic", iterations=1)
    pairs, given = some_pairs(), torch.rand(2, CHILDREN, PARENTS, dtype=torch.float64)
    assert torch.equal(layer.route(children, given, pairs).couplings, given * pairs)


def test_a_layer_over_pairs_compiles():
    layer, children = made("em", iterations=2)
    children = tc.Capsules(children.poses.detach(), children.activations.detach())
    torch.compiler.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(children, some_pairs()), layer(children, some_pairs()))


@pytest.mark.parametrize(
    ("pairs", "sentence"),
    [
        (torch.ones(CHILDREN, PARENTS), "a boolean pair_mask, got torch.float32"),
        ([[True]], "a boolean pair_mask, got a list"),
        (torch.ones(CHILDREN, 1).bool(), r"pair_mask \[i j\] = \(6, 4\) or \[b i j\] = \(2, 6, 4\), got \(6, 1\)"),
    ],
)
def test_wrong_pairs_get_one_sentence(pairs, sentence):
    layer, children = made("dynamic")
    with pytest.raises(ValueError, match=sentence):
        layer(children, pairs)


def test_a_parent_without_a_pair_stays_silent_beside_a_skip():
    layer = tc.DenseCapsules(4, 4, 8, 8, skip=True)
    pairs = torch.ones(4, 4, dtype=torch.bool)
    pairs[:, 2] = False
    parents = layer(tc.Capsules(torch.randn(2, 4, 8), torch.rand(2, 4)), pairs)
    assert parents.mask[:, 2].logical_not().all()
    assert parents.poses[:, 2].abs().max() == 0
    assert parents.activations[:, 2].abs().max() == 0


def test_a_decorated_routing_is_told_who_competes():
    """A wrapper takes any arguments: what it wraps says which ones."""

    def decorated(function):
        @functools.wraps(function)
        def wrapped(*arguments, **options):
            return function(*arguments, **options)

        return wrapped

    class Decorated(tc.ROUTINGS["heinsen"]):
        update = decorated(tc.ROUTINGS["heinsen"].update)

    layer, children = made("heinsen", masked=True)
    pairs = some_pairs(len(children.poses))
    expected = layer(children, pairs)
    layer.routing.__class__ = Decorated
    torch.testing.assert_close(layer(children, pairs)[:2], expected[:2])
