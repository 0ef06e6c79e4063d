"""Transposed convolutions of capsules: plain loops, torch's own, sizes, masks, and parents that nobody reaches."""

import pytest
import torch
from torch.nn import functional

import torchcaps as tc
from tests.oracles.conv import conv_routing, edges, transposed_edges
from torchcaps.votes.transposed import TransposedWindows

CONV = {1: tc.ConvCapsules1d, 2: tc.ConvCapsules2d, 3: tc.ConvCapsules3d}
TRANSPOSED = {1: tc.ConvTransposeCapsules1d, 2: tc.ConvTransposeCapsules2d, 3: tc.ConvTransposeCapsules3d}
TORCH = {1: functional.conv_transpose1d, 2: functional.conv_transpose2d, 3: functional.conv_transpose3d}

CASES = [
    # grid, kernel, stride, padding, output padding, dilation
    ((4,), (3,), (1,), (0,), (0,), (1,)),
    ((4,), (3,), (2,), (1,), (1,), (1,)),
    ((3,), (2,), (3,), (0,), (2,), (1,)),  # gaps between kernels, and one more at the end
    ((3,), (3,), (2,), (2,), (0,), (2,)),  # children at odd places only
    ((3,), (3,), (1,), (2,), (2,), (3,)),
    ((7,), (3,), (1,), (3,), (0,), (1,)),  # padding beyond the kernel: the first and the last child reach nobody
    ((2, 3), (3, 3), (2, 2), (1, 1), (0, 1), (1, 1)),
    ((3, 2), (2, 2), (2, 3), (0, 0), (0, 0), (1, 1)),
    ((2, 2), (2, 3), (1, 2), (1, 0), (1, 0), (2, 1)),
    ((2, 2, 2), (2, 2, 2), (2, 2, 1), (0, 1, 0), (0, 0, 0), (1, 1, 1)),
]
NAMES = ["-".join("".join(map(str, part)) for part in case) for case in CASES]


def children_on(*grid, types=2, dim=4, batch=1):
    poses = torch.randn(batch, *grid, types, dim, dtype=torch.float64, requires_grad=True)
    activations = 0.2 + 0.7 * torch.rand(poses.shape[:-1], dtype=torch.float64)
    return tc.Capsules(poses, activations.requires_grad_())


def made(case, types=2, parents=3, dim=4, out_dim=None, **options):
    grid, kernel, stride, padding, more, dilation = case
    layer = TRANSPOSED[len(grid)]
    return layer(
        types, parents, dim, out_dim or dim, kernel, stride, padding, more, dilation=dilation, **options
    ).double()


def all_edges(case, types=2, parents=3):
    grid, kernel, stride, padding, more, dilation = case
    return list(transposed_edges(grid, kernel, stride, padding, more, types, parents, dilation))


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("competition", ["grid", "window"])
@pytest.mark.parametrize("routing", ["dynamic", "em"])
@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_transposed_capsules_equal_plain_loops(case, routing, competition, masked):
    grid, types = case[0], 2
    more = {"beta_use": 0} if routing == "em" else {}
    layer = made(case, votes="matrix", routing=routing, competition=competition, std=0.7, **more)
    children = children_on(*grid)
    mask = None
    if masked:  # a hole, but the last child is real, so that no parent is padding for another reason
        mask = torch.rand(1, *grid, types) > 0.3
        mask[(0, *(size - 1 for size in grid))] = True
        children = children._replace(mask=mask)
    routed = layer.route(children)

    def vote(pose, k, i, j):
        return (pose.view(2, 2) @ layer.transform.weight[k * types + i, j]).flatten()

    found = all_edges(case)
    pose, act, R = conv_routing(
        routing, children.poses[0], children.activations[0], vote, found, competition == "window",
        mask=None if mask is None else mask[0],
    )  # fmt: skip
    mine = torch.stack([routed.poses[0][p] for p in pose])
    theirs = torch.stack(list(pose.values()))
    torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-10)
    active = torch.stack([routed.activations[0][p] for p in act]), torch.stack(list(act.values()))
    torch.testing.assert_close(*active)
    for p, c, k in found:
        torch.testing.assert_close(
            routed.couplings[(0, *p[:-1], k, c[-1], p[-1])], R.get((p, c), torch.zeros(()).double())
        )
    torch.testing.assert_close(routed.couplings.sum(), sum(R.values()))  # and there are no others
    assert routed.activations.count_nonzero() == len(act)  # who sees no child is silent
    direction = torch.randn_like(mine)
    leaves = (children.poses, children.activations, layer.transform.weight)
    gradients = [
        torch.autograd.grad((x * direction).sum() + y.sum(), leaves, retain_graph=True, allow_unused=True)
        for x, y in zip((mine, theirs), active, strict=True)
    ]
    for left, right in zip(*gradients, strict=True):
        if right is not None:
            torch.testing.assert_close(left, right, rtol=1e-8, atol=1e-8)
        assert (left is None or not left.any()) == (right is None)


@pytest.mark.parametrize("competition", ["grid", "window"])
@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_uniform_routing_is_torchs_transposed_convolution(case, competition):
    """A share of each child, the same for all parents that it reaches, times what torch computes."""
    grid, kernel, *where, dilation = case
    layer = made(case, dim=4, out_dim=5, routing="uniform", squash="none", competition=competition)
    children = children_on(*grid, batch=2)
    share = torch.zeros(grid, dtype=torch.float64)
    for _, child, _ in all_edges(case, types=1, parents=1):
        share[child[:-1]] += 1
    share = 1 / share.clamp(min=1) if competition == "grid" else torch.ones_like(share)
    axes = len(grid)
    weight = layer.transform.weight.view(*kernel, 2, 3, 4, 5)
    weight = weight.permute(axes, axes + 2, axes + 1, axes + 3, *range(axes)).reshape(8, 15, *kernel)
    images = (children.poses * share[..., None, None]).flatten(-2).movedim(-1, 1) / 3
    stride, padding, more = where
    expected = TORCH[axes](images, weight, None, stride, padding, more, 1, dilation)
    torch.testing.assert_close(layer(children).poses, expected.movedim(1, -1).unflatten(-1, (3, 5)))


@pytest.mark.parametrize("routing", tc.ROUTINGS)
def test_gradients_of_a_transposed_layer_are_those_of_differences(routing):
    """With a gap that nobody reaches."""
    layer = made(((2,), (2,), (3,), (0,), (1,), (1,)), routing=routing, dim=3, parents=2, tile_bytes=0, std=0.8)
    children = children_on(2, dim=3)

    def run(poses, activations):
        return layer.route(tc.Capsules(poses, activations))

    assert torch.autograd.gradcheck(run, (children.poses, children.activations))


@pytest.mark.parametrize("tile_bytes", [None, 1, 0])
@pytest.mark.parametrize("routing", tc.ROUTINGS)
def test_a_parent_that_nobody_reaches_is_silent_and_masked(routing, tile_bytes):
    layer = tc.ConvTransposeCapsules2d(2, 3, 4, 4, 2, stride=3, routing=routing, tile_bytes=tile_bytes).double()
    children = children_on(3, 2, batch=2)
    parents = layer(children)
    reached = torch.tensor([True, True, False, True, True, False, True, True])
    reached = reached[:, None] & reached[None, :5]
    assert torch.equal(parents.mask, reached[None, ..., None].expand(2, -1, -1, 3))
    assert not parents.poses[~parents.mask].any()
    assert not parents.activations[~parents.mask].any()
    (parents.poses.square().sum() + parents.activations.sum()).backward()
    leaves = [children.poses, *layer.parameters()]
    assert all(leaf.grad.isfinite().all() for leaf in leaves)


@pytest.mark.parametrize("competition", ["grid", "window"])
def test_with_stride_one_it_is_a_convolution_with_the_kernel_turned_round(competition):
    kernel, padding = (3, 2), (1, 0)
    transposed = tc.ConvTransposeCapsules2d(2, 3, 4, 4, kernel, 1, padding, competition=competition).double()
    beside = tuple(k - 1 - p for k, p in zip(kernel, padding, strict=True))
    plain = tc.ConvCapsules2d(2, 3, 4, 4, kernel, 1, beside, competition=competition).double()
    turned = transposed.transform.weight.data.unflatten(0, (*kernel, 2)).flip(0, 1)
    plain.transform.weight.data = turned.flatten(0, 2)
    children = children_on(4, 5, batch=2)
    torch.testing.assert_close(transposed(children)[:2], plain(children)[:2])


@pytest.mark.parametrize("case", [case for case in CASES if case[3] != case[1]], ids=str)  # of a convolution's padding
def test_it_connects_whom_a_convolution_connects_the_other_way(case):
    """The pairs of a convolution from the larger grid to the smaller, with parents and children exchanged."""
    grid, kernel, stride, padding, _, dilation = case
    windows = TransposedWindows(*case)
    seen = windows.seen(torch.device("cpu")).view(*windows.out, *kernel)
    mine = {
        (tuple(where[: len(grid)]), int(seen[tuple(where)]), _flat(where[len(grid) :], kernel))
        for where in (seen < windows.places).nonzero().tolist()
    }
    back = edges(windows.out, kernel, stride, padding, 1, 1, dilation)
    theirs = {(c[:-1], _flat(p[:-1], grid), k) for p, c, k in back if all(x < g for x, g in zip(p, grid, strict=False))}
    assert mine == theirs


def _flat(place, sizes):
    number = 0
    for x, size in zip(place, sizes, strict=True):
        number = number * size + x
    return number


@pytest.mark.parametrize("competition", ["grid", "window"])
@pytest.mark.parametrize("case", [(3, 2, 1, 1), (2, 2, 0, 0), (2, 3, 0, 2), (4, 2, 1, 0)], ids=str)
def test_padding_of_transposed_layers_with_masked_children_changes_nothing(case, competition):
    layer = tc.ConvTransposeCapsules1d(2, 3, 4, 4, *case, competition=competition).double()
    short = children_on(4, batch=2)
    long = tc.Capsules(*(torch.cat([part, 9 * torch.ones_like(part)], 1) for part in short[:2]))
    mask = torch.zeros(2, 8, 2, dtype=torch.bool)
    mask[:, :4] = True
    expected, parents = layer(short), layer(long._replace(mask=mask))
    count = expected.poses.shape[1]
    torch.testing.assert_close(parents.poses[:, :count], expected.poses)
    torch.testing.assert_close(parents.activations[:, :count], expected.activations)
    real = torch.ones(2, count, 3, dtype=torch.bool) if expected.mask is None else expected.mask
    assert torch.equal(parents.mask[:, :count], real)
    assert not parents.mask[:, count:].any()
    assert not parents.poses[:, count:].any()


def test_it_undoes_the_size_of_a_strided_convolution():
    children = children_on(9, 7)
    down = tc.ConvCapsules2d(2, 3, 4, 4, 3, stride=2, padding=1).double()
    up = tc.ConvTransposeCapsules2d(3, 2, 4, 4, 3, stride=2, padding=1).double()
    assert up(down(children)).poses.shape == children.poses.shape


@pytest.mark.parametrize("votes", tc.VOTES)
@pytest.mark.parametrize("routing", tc.ROUTINGS)
def test_every_vote_transform_meets_every_routing(votes, routing):
    layer = tc.ConvTransposeCapsules2d(2, 3, 4, 4, 4, stride=2, padding=1, votes=votes, routing=routing).double()
    parents = layer(children_on(3, 4))
    assert parents.poses.shape == (1, 6, 8, 3, 4)
    assert parents.mask is None
    (parents.poses.sum() + parents.activations.sum()).backward()
    assert all(parameter.grad.isfinite().all() for parameter in layer.parameters())


def test_parents_start_neither_silent_nor_saturated():
    layer = tc.ConvTransposeCapsules2d(16, 8, 8, 16, 4, stride=2, padding=1)
    poses = functional.normalize(torch.randn(4, 6, 6, 16, 8), dim=-1) * 0.7
    assert 0.15 < layer(tc.Capsules(poses, torch.full((4, 6, 6, 16), 0.7))).activations.mean() < 0.85


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: tc.ConvTransposeCapsules2d(2, 3, 4, 4, 3, output_padding=1),
            "output_padding below stride or dilation",
        ),
        (lambda: tc.ConvTransposeCapsules2d(2, 3, 4, 4, 3, 2, output_padding=(1,)), "output_padding with 2 numbers"),
        (lambda: tc.ConvTransposeCapsules1d(2, 2, 4, 4, 3, skip=True), "ConvTransposeCapsules1d: expected no skip"),
        (
            lambda: tc.ConvTransposeCapsules1d(2, 3, 4, 4, 3, padding=3)(children_on(3)),
            r"a grid of which padding=\(3,\) leaves parents, got a grid of \(3,\)",
        ),
    ],
)
def test_wrong_arguments_get_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
