import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import torchcaps as tc
from torchcaps.votes.transforms import make_votes


def children_of(batch=2, capsules=6, dim=4, dtype=torch.float32):
    poses = torch.randn(batch, capsules, dim, dtype=dtype)
    return tc.Capsules(poses, torch.rand(batch, capsules, dtype=dtype))


def test_full_votes_are_one_matrix_per_pair():
    votes = make_votes("full", 3, 2, 4, 5, bias=True).double()
    torch.nn.init.normal_(votes.bias)
    poses = torch.randn(2, 3, 4, dtype=torch.float64)
    result = votes(poses)
    for b in range(2):
        for i in range(3):
            for j in range(2):
                expected = votes.weight[i, j].T @ poses[b, i] + votes.bias[i, j]
                torch.testing.assert_close(result[b, i, j], expected)


def test_shared_votes_are_one_matrix_per_parent():
    votes = make_votes("shared", None, 2, 4, 5, bias=True).double()
    torch.nn.init.normal_(votes.bias)
    for children in (1, 7):
        poses = torch.randn(children, 4, dtype=torch.float64)
        expected = torch.stack([torch.stack([votes.weight[j].T @ u + votes.bias[j] for j in range(2)]) for u in poses])
        torch.testing.assert_close(votes(poses), expected)


def test_factorized_votes_are_products_of_a_child_and_a_parent_matrix():
    votes = make_votes("factorized", 3, 2, 4, 5).double()
    poses = torch.randn(3, 4, dtype=torch.float64)
    for i in range(3):
        for j in range(2):
            expected = votes.parent_weight[j].T @ (votes.child_weight[i].T @ poses[i])
            torch.testing.assert_close(votes(poses)[i, j], expected)
    assert sum(p.numel() for p in votes.parameters()) == 3 * 4 * 5 + 2 * 5 * 5


def test_matrix_votes_multiply_the_pose_from_the_right():
    votes = make_votes("matrix", 3, 2, 9, 9).double()
    poses = torch.randn(3, 9, dtype=torch.float64)
    for i in range(3):
        for j in range(2):
            torch.testing.assert_close(votes(poses)[i, j].view(3, 3), poses[i].view(3, 3) @ votes.weight[i, j])


@pytest.mark.parametrize("name", tc.VOTES)
def test_normalized_votes_never_exceed_their_child(name):
    votes = make_votes(name, 5, 3, 4, 4, normalize=True, std=30.0)
    poses = torch.randn(7, 5, 4)
    assert (tc.length(votes(poses)) <= tc.length(poses).unsqueeze(-1) + 1e-5).all()


@pytest.mark.parametrize("name", tc.VOTES)
def test_normalization_divides_by_the_frobenius_norm(name):
    plain, normalized = make_votes(name, 3, 2, 4, 4).double(), make_votes(name, 3, 2, 4, 4, normalize=True).double()
    normalized.load_state_dict(plain.state_dict())
    poses = torch.randn(3, 4, dtype=torch.float64)
    for i in range(3):
        for j in range(2):
            if name == "factorized":
                matrix = plain.child_weight[i] @ plain.parent_weight[j]
            else:
                matrix = plain.weight[j] if name == "shared" else plain.weight[i, j]
            expected = plain(poses)[i, j] / matrix.square().sum().sqrt()
            torch.testing.assert_close(normalized(poses)[i, j], expected)


@given(
    batch=st.integers(1, 3),
    capsules=st.integers(1, 7),
    parents=st.integers(1, 5),
    votes=st.sampled_from(["full", "shared", "factorized"]),
    routing=st.sampled_from(sorted(tc.ROUTINGS)),
    dims=st.tuples(st.integers(1, 6), st.integers(1, 6)),
)
def test_dense_capsules_work_at_any_size(batch, capsules, parents, votes, routing, dims):
    layer = tc.DenseCapsules(capsules, parents, *dims, votes=votes, routing=routing)
    children = children_of(batch, capsules, dims[0])
    result = layer(children)
    assert result.poses.shape == (batch, parents, dims[1])
    assert result.activations.shape == (batch, parents)
    routed = layer.route(children)
    assert routed.couplings.shape == (batch, capsules, parents)
    torch.testing.assert_close(routed.poses, result.poses)
    torch.testing.assert_close(layer.trace(children)[-1].routed, routed)


def test_shared_votes_take_any_number_of_children_and_padding_changes_nothing():
    layer = tc.DenseCapsules(None, 3, 4, 5, votes="shared")
    short = children_of(2, 6)
    padded = tc.Capsules(
        torch.cat([short.poses, torch.full((2, 4, 4), 7.0)], 1),
        torch.cat([short.activations, torch.ones(2, 4)], 1),
        torch.arange(10).expand(2, -1) < 6,
    )
    torch.testing.assert_close(layer(padded)[:2], layer(short)[:2])


def test_layer_passes_options_to_its_routing():
    layer = tc.DenseCapsules(6, 3, 4, 5, routing="em", iterations=2, beta_per_dimension=True)
    assert layer.routing.iterations == 2
    assert layer.routing.beta_use.shape == (3, 5)


def test_default_weights_leave_squash_unsaturated_and_learn_from_the_first_step():
    """The softmax over parents divides by their number: the scale of W must make up for it."""
    layer = tc.DenseCapsules(1152, 10, 8, 16)
    poses = torch.nn.functional.normalize(torch.randn(16, 1152, 8), dim=-1)  # children at their longest
    children = tc.Capsules(poses, torch.ones(16, 1152))
    labels = torch.randint(10, (16,))
    lengths = layer(children).activations
    assert lengths.mean() < 0.92
    usual = tc.Capsules(0.7 * poses, 0.7 * children.activations)  # the length that the scale is made for
    assert 0.2 < layer(usual).activations.mean() < 0.8
    optimizer = torch.optim.Adam(layer.parameters(), 1e-3)
    losses = []
    for _ in range(8):
        loss = tc.margin_loss(layer(children).activations, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] > losses[1] > losses[7]
    assert losses[7] < losses[0] / 2


LAYERS = {
    "dense": (tc.DenseCapsules, {}),
    "conv": (tc.ConvCapsules2d, {"kernel_size": 3}),
    "classes": (tc.ClassCapsules, {"coordinates": None}),
}


def grid_of(types=6, dim=4):
    poses = torch.randn(2, 5, 5, types, dim)
    return tc.Capsules(poses, torch.rand(2, 5, 5, types))


@pytest.mark.parametrize("kind", LAYERS)
def test_every_layer_uses_its_vote_options(kind):
    make, options = LAYERS[kind]
    layer = make(6, 3, 4, 4, votes="full", routing="uniform", vote_bias=True, normalize=True, std=0.01, **options)
    assert layer.transform.weight.std().item() == pytest.approx(0.01, rel=0.3)
    assert layer.transform.normalize
    children = children_of() if kind == "dense" else grid_of()
    before = layer(children).poses
    with torch.no_grad():
        layer.transform.weight.mul_(7)  # normalized away
    torch.testing.assert_close(layer(children).poses, before)
    with torch.no_grad():
        layer.transform.bias.add_(1)
    assert not torch.allclose(layer(children).poses, before)


@pytest.mark.parametrize("name", tc.VOTES)
def test_normalization_survives_a_matrix_of_zeros(name):
    votes = make_votes(name, 3, 2, 4, 4, normalize=True)
    with torch.no_grad():
        for parameter in votes.parameters():
            parameter[0] = 0
    votes(torch.randn(3, 4)).square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in votes.parameters())


def test_default_scale_of_votes_is_that_of_their_poses():
    for name, fan_in in (("full", 16), ("shared", 16), ("matrix", 4)):
        assert make_votes(name, 3, 2, 16, 16).std == pytest.approx(fan_in**-0.5)


STARTS = {
    "full": (lambda: tc.DenseCapsules(1152, 10, 8, 16), (1152,)),
    "shared": (lambda: tc.DenseCapsules(None, 10, 8, 16, votes="shared"), (600,)),
    "factorized": (lambda: tc.DenseCapsules(1152, 10, 8, 16, votes="factorized"), (1152,)),
    "classes": (
        lambda: tc.ClassCapsules(32, 10, 8, 16, votes="full", routing="dynamic", coordinates=None),
        (6, 6, 32),
    ),
    "conv-grid": (lambda: tc.ConvCapsules2d(16, 8, 8, 16, 3), (8, 8, 16)),
    "conv-window": (lambda: tc.ConvCapsules2d(16, 8, 8, 16, 3, stride=2, competition="window"), (9, 9, 16)),
    "em": (lambda: tc.DenseCapsules(1152, 10, 8, 16, routing="em"), (1152,)),
    "em-matrix": (lambda: tc.ConvCapsules2d(16, 8, 16, 16, 3, votes="matrix", routing="em"), (6, 6, 16)),
}


@pytest.mark.parametrize("case", STARTS)
def test_layers_start_neither_silent_nor_saturated(case):
    make, shape = STARTS[case]
    layer = make()
    poses = torch.randn(2, *shape, layer.transform.in_dim)
    if not case.endswith("matrix"):
        poses = 0.7 * torch.nn.functional.normalize(poses, dim=-1)
    activations = layer(tc.Capsules(poses, torch.ones(2, *shape))).activations
    assert 0.15 < activations.mean() < 0.85


def test_batch_of_one_equals_its_part_of_a_batch():
    layer = tc.DenseCapsules(6, 3, 4, 5, routing="em").double()
    children = children_of(3, dtype=torch.float64)
    whole = layer(children)
    alone = layer(tc.Capsules(children.poses[1:2], children.activations[1:2]))
    torch.testing.assert_close(alone.poses, whole.poses[1:2])


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: tc.DenseCapsules(1152, 10, 8, 16)(children_of(32, 1152, 16)),
            r"^DenseCapsules: expected poses \[b i e\] = \(\*, 1152, 8\), got \(32, 1152, 16\)\. Set in_dim=16\.$",
        ),
        (lambda: tc.DenseCapsules(5, 3, 4, 5)(children_of()), "Set in_capsules=6"),
        (
            lambda: tc.DenseCapsules(6, 3, 4, 5)(tc.Capsules(torch.ones(1, 2, 2, 6, 4), torch.ones(1, 2, 2, 6))),
            r"Call \.flatten\(\) on a grid first",
        ),
        (
            lambda: tc.DenseCapsules(6, 3, 4, 5)(tc.Capsules(torch.ones(1, 6, 4), torch.ones(1, 5))),
            r"activations \(1, 6\)",
        ),
        (
            lambda: tc.DenseCapsules(6, 3, 4, 5)(tc.Capsules(torch.ones(1, 6, 4), torch.ones(1, 6), torch.ones(6) > 0)),
            r"expected mask \(1, 6\)",
        ),
        (
            lambda: tc.DenseCapsules(6, 3, 4, 5, votes="tied"),
            "votes to be one of 'full', 'shared', 'factorized', 'matrix'",
        ),
        (lambda: tc.DenseCapsules(6, 3, 4, 5, routing="rba"), "DenseCapsules: expected routing to be one of"),
        (lambda: tc.DenseCapsules(6, 3, 4, 5, iteration=2), "DenseCapsules: expected votes, routing.*got iteration"),
        (
            lambda: tc.DenseCapsules(None, 3, 4, 5),
            'FullVotes: expected in_capsules, got None. Set in_capsules, or use votes="shared"',
        ),
        (lambda: tc.DenseCapsules(6, 3, 4, 5, votes="matrix"), "in_dim = out_dim = a square number"),
        (lambda: tc.DenseCapsules(6, 0, 4, 5), "out_capsules to be a whole number from 1 on, got 0"),
        (
            lambda: tc.DenseCapsules(6, 3, 4, 5, routing=tc.make_routing("em", out_capsules=4)),
            "expected routing with out_capsules=3, got out_capsules=4",
        ),
        (
            lambda: tc.DenseCapsules(6, 3, 4, 5, routing=tc.make_routing("dynamic"), iterations=2),
            r"Give them to Dynamic\(\.\.\.\)",
        ),
        (lambda: tc.DenseCapsules(6, 3, 4, 5)(torch.ones(2, 6, 4)), "DenseCapsules: expected Capsules, got a Tensor"),
        (
            lambda: tc.DenseCapsules(6, 3, 4, 5)(tc.Capsules(torch.ones(2, 6, 4), None)),
            r"activations \(2, 6\).*got None",
        ),
        (lambda: tc.DenseCapsules(6, 3, 4, 5, vote="shared"), "DenseCapsules: expected votes, routing.*got vote"),
        (lambda: tc.DenseCapsules(6, 3, 4, 5, routing=tc.ROUTINGS["dynamic"]), r"the class Dynamic\. Pass Dynamic\(\)"),
        (lambda: tc.DenseCapsules(6.0, 3, 4, 5), "in_capsules to be a whole number"),
        (lambda: tc.DenseCapsules(6, 3, 4, 5, std=-1), "std above 0"),
        (
            lambda: tc.DenseCapsules(6, 3, 4, 5, votes=make_votes("full", 5, 3, 4, 5)),
            "votes with in_capsules=6, got in_capsules=5",
        ),
    ],
)
def test_wrong_arguments_get_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


def test_a_layer_takes_a_ready_made_vote_transform():
    votes = make_votes("full", 6, 3, 4, 5)
    assert tc.DenseCapsules(6, 3, 4, 5, votes=votes).transform is votes


def test_a_routing_with_a_prior_for_one_grid_fits_class_capsules_on_it():
    routing = tc.make_routing("attention", in_capsules=2 * 2 * 6, out_capsules=3)
    layer = tc.ClassCapsules(6, 3, 4, 4, routing=routing)
    poses = torch.randn(1, 2, 2, 6, 4)
    assert layer(tc.Capsules(poses, tc.length(poses))).poses.shape == (1, 3, 4)
