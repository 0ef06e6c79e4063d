import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import torchcaps as tc
from tests.oracles.conv import conv_routing, edges
from torchcaps.votes.windows import Windows

CONV = {1: tc.ConvCapsules1d, 2: tc.ConvCapsules2d, 3: tc.ConvCapsules3d}


def children_on(*grid, types=2, dim=4, batch=1, dtype=torch.float64):
    poses = torch.randn(batch, *grid, types, dim, dtype=dtype)
    return tc.Capsules(poses, 0.2 + torch.rand(poses.shape[:-1], dtype=dtype))


CONVOLUTIONS = [
    # grid, kernel, stride, padding, and dilation where there is one
    ((4, 5), (3, 3), (1, 1), (0, 0)),
    ((6, 5), (3, 2), (2, 1), (0, 0)),
    ((5, 5), (2, 2), (2, 2), (0, 0)),  # the last row and column are seen by nobody
    ((4, 4), (3, 3), (2, 2), (1, 1)),
    ((3, 6), (2, 3), (1, 2), (1, 0)),
    ((5, 5), (2, 2), (3, 3), (0, 0)),  # stride beyond the kernel: children between windows
    ((7,), (3,), (1,), (0,)),
    ((8,), (3,), (2,), (1,)),
    ((9,), (3,), (1,), (0,), (2,)),
    ((9,), (3,), (2,), (2,), (3,)),
    ((9,), (3,), (2,), (1,), (2,)),  # dilation and stride have a divisor: every other child is seen by nobody
    ((10,), (3,), (4,), (3,), (6,)),
    ((5, 6), (2, 3), (1, 2), (1, 2), (3, 2)),
    ((2, 3), (2, 2), (1, 1), (1, 2), (2, 3)),  # some windows see padding alone
    ((2, 3, 4), (2, 2, 3), (1, 1, 1), (0, 0, 1)),
    ((3, 2, 4), (2, 1, 2), (1, 2, 2), (1, 0, 0), (2, 1, 3)),
]


@pytest.mark.parametrize("competition", ["grid", "window"])
@pytest.mark.parametrize("routing", ["dynamic", "em"])
@pytest.mark.parametrize("sizes", CONVOLUTIONS, ids=str)
def test_conv_capsules_equal_plain_loops(sizes, routing, competition):
    grid, *where = sizes
    types, parent_types, dim = 2, 3, 4
    layer = CONV[len(grid)](
        types, parent_types, dim, dim, *where,
        votes="matrix", routing=routing, competition=competition, std=0.7,
        **({"beta_use": 0} if routing == "em" else {}),
    ).double()  # fmt: skip
    children = children_on(*grid, types=types, dim=dim)
    children.poses.requires_grad_()
    routed = layer.route(children)

    def vote(pose, k, i, j):
        return (pose.view(2, 2) @ layer.transform.weight[k * types + i, j]).flatten()

    all_edges = list(edges(grid, *where[:3], types, parent_types, *where[3:]))
    window = competition == "window"
    pose, act, R = conv_routing(routing, children.poses[0], children.activations[0], vote, all_edges, window)
    mine = torch.stack([routed.poses[0][p] for p in pose])
    theirs = torch.stack(list(pose.values()))
    torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(torch.stack([routed.activations[0][p] for p in act]), torch.stack(list(act.values())))
    for p, c, k in all_edges:
        torch.testing.assert_close(routed.couplings[(0, *p[:-1], k, c[-1], p[-1])], R[p, c])
    torch.testing.assert_close(routed.couplings.sum(), sum(R.values()))  # and there are no others
    direction = torch.randn_like(mine)
    gradients = [
        torch.autograd.grad((x * direction).sum(), children.poses, retain_graph=True)[0] for x in (mine, theirs)
    ]
    torch.testing.assert_close(*gradients, rtol=1e-8, atol=1e-8)


def test_windows_equal_the_true_patches():
    values = torch.arange(2 * 5 * 6 * 3).view(2, 5, 6, 3)
    seen = Windows((5, 6), (3, 2), (2, 3), (0, 0), (1, 1)).of(values)
    assert seen.shape == (2, 2, 2, 3, 2, 3)
    for y in range(2):
        for x in range(2):
            torch.testing.assert_close(seen[:, y, x], values[:, 2 * y : 2 * y + 3, 3 * x : 3 * x + 2])


def test_border_children_start_shared_among_their_own_parents():
    """3x3 windows over a 5x5 grid: a corner child has one window, the center nine; each has its types."""
    layer = tc.ConvCapsules2d(1, 4, 4, 4, 3, iterations=1)
    couplings = layer.route(children_on(5, 5, types=1, dtype=torch.float32)).couplings  # [b h w k i j]
    assert couplings[0, 0, 0, 0, 0, 0] == pytest.approx(1 / 4)
    assert couplings[0, 1, 1, 4, 0, 0] == pytest.approx(1 / 36)
    window = tc.ConvCapsules2d(1, 4, 4, 4, 3, iterations=1, competition="window")
    assert window.route(children_on(5, 5, types=1, dtype=torch.float32)).couplings.unique() == pytest.approx(1 / 4)


@given(
    grid=st.tuples(st.integers(2, 7), st.integers(2, 7)),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    pad=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    dilation=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    name=st.sampled_from(sorted(set(tc.ROUTINGS) - {"attention"})),
    scale=st.sampled_from([1.0, 1e4]),
)
def test_every_seen_child_spreads_exactly_one_vote(grid, kernel, stride, pad, dilation, name, scale):
    dilation = tuple(d if d * (k - 1) < g else 1 for d, k, g in zip(dilation, kernel, grid, strict=True))
    kernel = tuple(min(k, g) for k, g in zip(kernel, grid, strict=True))
    pad = tuple(min(p, k - 1) for p, k in zip(pad, kernel, strict=True))
    layer = tc.ConvCapsules2d(2, 3, 4, 4, kernel, stride, pad, dilation, routing=name).double()
    with torch.no_grad():
        children = children_on(*grid)
        routed = layer.route(children._replace(poses=scale * children.poses))
    given_out = {}
    total = dict.fromkeys([(y, x, i) for y in range(grid[0]) for x in range(grid[1]) for i in range(2)], 0.0)
    for p, c, k in edges(grid, kernel, stride, pad, 2, 3, dilation):
        given_out[c] = total[c] = total[c] + float(routed.couplings[(0, *p[:-1], k, c[-1], p[-1])])
    assert all(share == pytest.approx(1) for share in given_out.values())
    assert routed.couplings.sum() == pytest.approx(len(given_out))  # nothing goes to children outside the grid


def test_parents_at_different_positions_compete():
    """Votes that agree in one window draw a shared child away from the other window."""
    layer = tc.ConvCapsules1d(1, 1, 2, 2, (2,), votes="shared", iterations=5).double()
    with torch.no_grad():
        layer.transform.weight.copy_(5 * torch.eye(2).unsqueeze(0))
    poses = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64).view(1, 3, 1, 2)
    children = tc.Capsules(poses, torch.ones(1, 3, 1, dtype=torch.float64))
    couplings = layer.route(children).couplings  # child 1 is offset 1 of window 0 and offset 0 of window 1
    assert couplings[0, 0, 1, 0, 0] > 0.9
    assert couplings[0, 1, 0, 0, 0] < 0.1


def test_objective_of_algorithm_1_holds_over_the_whole_grid():
    """Cross-position competition is mirror descent too: minus the sum of all parents' potentials never rises."""
    layer = tc.ConvCapsules2d(2, 3, 4, 4, 3, stride=2, padding=1, iterations=8, std=0.8).double()
    values = []
    for step in layer.trace(children_on(6, 6, batch=3)):
        v = step.routed.activations  # squashed length v = n^2 / (1 + n^2)
        lengths = (v / (1 - v)).sqrt()
        values.append(-(lengths - lengths.arctan()).sum((1, 2, 3)))
        assert step.objective is None
    values = torch.stack(values)
    assert (values[1:] <= values[:-1] + 1e-9).all()
    assert (values[-1] < values[0] - 1e-3).all()


@pytest.mark.parametrize("competition", ["grid", "window"])
@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation"),
    [(3, 1, 0, 1), (3, 1, 1, 1), (3, 2, 1, 1), (4, 2, 2, 1), (3, 1, 2, 2), (3, 2, 3, 3)],
)
def test_padding_with_masked_children_changes_nothing(kernel, stride, padding, dilation, competition):
    layer = tc.ConvCapsules1d(2, 3, 4, 4, kernel, stride, padding, dilation, competition=competition).double()
    short = children_on(8, batch=2)
    long = tc.Capsules(*(torch.cat([part, 9 * torch.ones_like(part)], 1) for part in short[:2]))
    mask = torch.zeros(2, 16, 2, dtype=torch.bool)
    mask[:, :8] = True
    expected = layer(short)
    parents = layer(long._replace(mask=mask))
    count = expected.poses.shape[1]
    assert parents.mask[:, :count].all()
    assert not parents.mask[:, count:].any()
    torch.testing.assert_close(parents.poses[:, :count], expected.poses)
    torch.testing.assert_close(parents.activations[:, :count], expected.activations)


def test_a_hole_in_the_grid_silences_only_its_own_children():
    layer = tc.ConvCapsules2d(2, 3, 4, 4, 3).double()
    children = children_on(6, 6)
    mask = torch.ones(1, 6, 6, 2, dtype=torch.bool)
    mask[:, 2, 3] = False
    parents = layer(children._replace(mask=mask))
    assert parents.mask.all()
    rubbish = children.poses.clone()
    rubbish[:, 2, 3] = 1e6
    torch.testing.assert_close(layer(tc.Capsules(rubbish, children.activations, mask)).poses, parents.poses)


def test_padding_in_two_dimensions_changes_nothing():
    layer = tc.ConvCapsules2d(2, 3, 4, 4, 3, stride=2, padding=1).double()
    small = children_on(5, 7)
    large = tc.Capsules(
        torch.full((1, 9, 9, 2, 4), 7.0).double(), torch.ones(1, 9, 9, 2).double(), torch.zeros(1, 9, 9, 2).bool()
    )
    large.poses[:, :5, :7], large.activations[:, :5, :7], large.mask[:, :5, :7] = small.poses, small.activations, True
    expected, parents = layer(small), layer(large)
    height, width = expected.poses.shape[1:3]
    torch.testing.assert_close(parents.poses[:, :height, :width], expected.poses)
    assert parents.mask[:, :height, :width].all()
    assert parents.mask.sum() == height * width * 3


def test_leaky_routing_over_a_grid_goes_on_from_its_couplings():
    children = children_on(5, 5)
    long, short = (tc.ConvCapsules2d(2, 3, 4, 4, 3, leaky=True, iterations=r, std=0.5).double() for r in (4, 3))
    short.load_state_dict(long.state_dict())
    steps = long.trace(children)
    rest = short.trace(children, steps[1].routed.couplings)
    torch.testing.assert_close(rest[-1].routed, steps[-1].routed)


def test_given_couplings_freeze_a_conv_layer():
    layer = tc.ConvCapsules2d(2, 3, 4, 4, 3, iterations=1).double()
    children = children_on(5, 5)
    random = torch.rand_like(layer.route(children).couplings)
    torch.testing.assert_close(layer.route(children, random).couplings, random)


@pytest.mark.parametrize("votes", tc.VOTES)
@pytest.mark.parametrize("routing", tc.ROUTINGS)
def test_every_vote_transform_meets_every_routing(votes, routing):
    layer = tc.ConvCapsules2d(2, 3, 4, 4, 3, stride=2, votes=votes, routing=routing)
    parents = layer(children_on(7, 7, batch=1, dtype=torch.float32))
    assert parents.poses.shape == (1, 3, 3, 3, 4)
    (parents.poses.sum() + parents.activations.sum()).backward()
    assert all(parameter.grad.isfinite().all() for parameter in layer.parameters())


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: tc.ConvCapsules2d(2, 3, 4, 4, (3,)), r"kernel_size with 2 numbers, got \(3,\)"),
        (lambda: tc.ConvCapsules2d(2, 3, 4, 4, 3, padding=3), "padding below kernel_size"),
        (lambda: tc.ConvCapsules2d(2, 3, 4, 4, 0), "kernel_size to be a whole number from 1"),
        (lambda: tc.ConvCapsules2d(2, 3, 4, 4, 3, competition="type"), "competition to be one of 'grid', 'window'"),
        (lambda: tc.ConvCapsules1d(2, 3, 4, 4, 3, dimensions=1), "an option of 'dynamic'.*got dimensions"),
        (
            lambda: tc.ConvCapsules2d(2, 3, 4, 4, 9)(children_on(5, 5)),
            r"a kernel of \(9, 9\) fits into, got a grid of \(5, 5\)",
        ),
        (
            lambda: tc.ConvCapsules2d(3, 3, 4, 4, 3)(children_on(5, 5)),
            r"poses \[b h w i e\] = \(\*, \*, \*, 3, 4\).*Set in_capsules=2",
        ),
        (lambda: tc.ConvCapsules2d(2, 3, 4, 4, 3, dilation=(1, 0)), "dilation to be a whole number from 1"),
        (lambda: tc.ConvCapsules1d(2, 3, 4, 4, 3, padding=5, dilation=2), r"padding below .* and dilation=\(2,\)"),
        (
            lambda: tc.ConvCapsules2d(2, 3, 4, 4, 3, dilation=3)(children_on(5, 5)),
            r"ConvCapsules2d: expected a grid that a kernel of \(7, 7\) fits into",
        ),
        (
            lambda: tc.ConvCapsules3d(2, 3, 4, 4, 3)(children_on(5, 5)),
            r"ConvCapsules3d: expected poses \[b z h w i e\] = \(\*, \*, \*, \*, 2, 4\)",
        ),
    ],
)
def test_wrong_arguments_get_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch itself uses it for these
def test_forward_derivatives_pass_through_competition_across_windows():
    layer = tc.ConvCapsules2d(2, 3, 4, 4, 2, tile_bytes=0).double()
    poses, change = torch.randn(2, 1, 3, 3, 2, 4, dtype=torch.float64)
    activations = torch.rand(1, 3, 3, 2, dtype=torch.float64)

    def run(poses):
        return layer(tc.Capsules(poses, activations)).poses

    with torch.autograd.forward_ad.dual_level():
        found = torch.autograd.forward_ad.unpack_dual(run(torch.autograd.forward_ad.make_dual(poses, change))).tangent
    step = 1e-6
    expected = (run(poses + step * change) - run(poses - step * change)) / (2 * step)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)
