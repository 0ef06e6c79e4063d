"""Theory as tests, for routings by inner product: what the derivations in docs/routing.md say must hold to rounding."""

import math
import re
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import torchcaps as tc
from tests.oracles.common import norm
from tests.oracles.dynamic import first_step_closed_form, lagrangian, potential
from tests.routing.drawn import SIZES, assert_never_rises, votes_of
from torchcaps.routing.competition import divergence

PAGES = Path(__file__).parents[2]


def test_the_routings_with_an_objective_are_those_of_the_documents():
    rows = re.findall(
        r"^\| `(\w+)` \|[^|]*\|[^|]*\| (.*) \|$", (PAGES / "docs" / "routing.md").read_text(), re.MULTILINE
    )
    told = {name: cell for name, cell in rows if name in tc.ROUTINGS and "iterations" in tc.routing_options(name)}
    sizes = {"in_capsules": 7, "out_capsules": 3, "out_dim": 5}
    found = {}
    for name in told:
        known = {word: size for word, size in sizes.items() if word in tc.routing_options(name)}
        found[name] = tc.make_routing(name, **known).double().trace(votes_of())[0].objective is not None
    assert {name: not cell.startswith("none") for name, cell in told.items()} == found
    assert len(found) == 9
    assert sum(found.values()) == 7
    assert "seven of eleven" in " ".join((PAGES / "README.md").read_text().split())


# Algorithm 1


def test_first_agreement_has_the_closed_form_of_uniform_couplings():
    votes = votes_of()
    steps = tc.make_routing("dynamic", iterations=2).trace(votes)
    expected = first_step_closed_form(votes).softmax(-1)
    torch.testing.assert_close(steps[1].routed.couplings, expected, rtol=1e-10, atol=1e-12)


def test_first_parent_points_along_the_mean_vote():
    votes = votes_of()
    pose = tc.make_routing("dynamic", iterations=1)(votes).poses
    torch.testing.assert_close(torch.cosine_similarity(pose, votes.mean(0), dim=-1), torch.ones(3, dtype=torch.float64))


@given(**SIZES)
def test_algorithm_1_equals_the_update_of_eq_35(children, parents, dim, scale, seed):
    """c_ij proportional to c_ij^old exp(w_j <u, s_j>) with unit s_j and w_j = |s^_j|^2 / (1 + |s^_j|^2)."""
    votes = votes_of(children, parents, dim, scale, seed)
    steps = tc.make_routing("dynamic", iterations=4).trace(votes)
    for before, after in pairwise(steps):
        c_old = before.routed.couplings
        s_hat = torch.stack([sum(c_old[i, j] * votes[i, j] for i in range(children)) for j in range(parents)])
        n = torch.stack([norm(s) for s in s_hat])
        w = n**2 / (1 + n**2)
        logits = torch.stack(
            [torch.stack([w[j] * (u_ij @ s_hat[j]) / n[j] for j, u_ij in enumerate(u_i)]) for u_i in votes]
        )
        c = c_old * (logits - logits.amax(-1, keepdim=True)).exp()
        torch.testing.assert_close(after.routed.couplings, c / c.sum(-1, keepdim=True), rtol=1e-9, atol=1e-12)


def consecutive_steps(**options):
    """Votes, and for each update of Algorithm 1: its couplings, those before, and the sums that those made."""
    votes = votes_of()
    steps = tc.make_routing("dynamic", iterations=4, **options).trace(votes)
    couplings = [step.routed.couplings for step in steps]
    return votes, [(c, c_old, (c_old.unsqueeze(-1) * votes).sum(0)) for c_old, c in pairwise(couplings)]


def test_divergence_is_the_relative_entropy_of_couplings():
    """He 11-13; with a leak, whose share is what the couplings lack to one."""
    p, q = torch.rand(2, 6, 4, dtype=torch.float64).softmax(-1)
    pairs = zip(p.tolist(), q.tolist(), strict=True)
    expected = [sum(a * math.log(a / b) for a, b in zip(*rows, strict=True)) for rows in pairs]
    assert divergence(p, q).tolist() == pytest.approx(expected)
    torch.testing.assert_close(divergence(p[:, :3], q[:, :3], leaky=True), divergence(p, q))
    assert divergence(p, p).abs().max() < 1e-12


@pytest.mark.parametrize("sharpness", [1.0, 0.3])
def test_objective_given_the_couplings_before_is_eq_15(sharpness):
    votes, steps = consecutive_steps(sharpness=sharpness)
    routing = tc.make_routing("dynamic", sharpness=sharpness)
    for c, c_old, s_hat in steps:
        n = s_hat.norm(dim=-1)
        s, w = s_hat / n.unsqueeze(-1), n**2 / (1 + n**2)
        none = torch.zeros(7, 3, dtype=torch.float64)
        expected = lagrangian(c, s, sharpness * votes, w, c_old, none[:, 0], none[0], none) / sharpness
        ones = torch.ones(7, dtype=torch.float64)
        torch.testing.assert_close(routing.objective(votes, c, ones, s_hat, 0, before=c_old), expected)


@pytest.mark.parametrize("mode", [{}, {"leaky": True}, {"sharpness": 0.3}, {"squash": "half"}, {"amendment": True}])
def test_couplings_of_algorithm_1_minimize_eq_15(mode):
    votes, activations = votes_of(), torch.rand(7, dtype=torch.float64)
    routing = tc.make_routing("dynamic", iterations=4, **mode)
    weights = activations if routing.uses_activations else torch.ones_like(activations)
    for before, after in pairwise(routing.trace(votes, activations)):
        c_old = before.routed.couplings
        s_hat = ((weights.unsqueeze(-1) * c_old).unsqueeze(-1) * votes).sum(0)

        def value(c, c_old=c_old, s_hat=s_hat):
            return float(routing.objective(votes, c, weights, s_hat, 0, before=c_old))

        found = after.routed.couplings
        others = [c_old, *torch.randn(50, 7, 4, dtype=torch.float64).softmax(-1)[..., :3]]
        others = others if routing.leaky else [c / c.sum(-1, keepdim=True) for c in others]
        assert all(value(found) <= value((1 - far) * found + far * c) for c in others for far in (0.01, 1.0))


def test_algorithm_1_is_where_the_lagrangian_of_eq_16_is_stationary():
    """Eqs. 17-19: the gradient in s vanishes at the unit sums of c_old, then that in c at the next couplings."""
    votes, steps = consecutive_steps()
    for c, c_old, s_hat in steps:
        n = s_hat.norm(dim=-1)
        w = n**2 / (1 + n**2)
        s = (s_hat / n.unsqueeze(-1)).requires_grad_()
        free = torch.zeros_like(c)
        (gradient,) = torch.autograd.grad(lagrangian(c_old, s, votes, w, c_old, free[:, 0], w * n, free), s)
        assert gradient.abs().max() < 1e-12
        lam = (c_old * (w * (votes * s.detach()).sum(-1)).exp()).sum(-1).log() - 1  # eq. 33
        c = c.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(lagrangian(c, s.detach(), votes, w, c_old, lam, w * n, free), c)
        assert gradient.abs().max() < 1e-12


@pytest.mark.parametrize("kind", tc.SQUASHES)
def test_squash_is_the_gradient_of_its_potential(kind):
    vectors = (2 * torch.randn(20, 4, dtype=torch.float64)).requires_grad_()
    (gradient,) = torch.autograd.grad(tc.squash_potential(tc.length(vectors), kind).sum(), vectors)
    torch.testing.assert_close(gradient, tc.squash(vectors, kind))


@pytest.mark.parametrize("kind", tc.SQUASHES)
def test_squash_potential_is_convex_along_lines(kind):
    a, b = torch.randn(2, 200, 4, dtype=torch.float64)
    middle = tc.squash_potential(tc.length((a + b) / 2), kind)
    ends = (tc.squash_potential(tc.length(a), kind) + tc.squash_potential(tc.length(b), kind)) / 2
    assert (middle <= ends + 1e-12).all()


MODES = [{"amendment": amendment, "leaky": leaky} for amendment in (False, True) for leaky in (False, True)]


def test_objective_of_algorithm_1_is_minus_the_sum_of_potentials():
    votes = votes_of()
    for step in tc.make_routing("dynamic").trace(votes):
        sums = (step.routed.couplings.unsqueeze(-1) * votes).sum(0)
        assert float(step.objective) == pytest.approx(-sum(potential(s) for s in sums.tolist()))


@given(**SIZES, kind=st.sampled_from(list(tc.SQUASHES)), soft=st.floats(0.05, 4), mode=st.sampled_from(MODES))
def test_objective_of_accumulated_logits_never_rises(children, parents, dim, scale, seed, kind, soft, mode):
    votes = votes_of(children, parents, dim, scale, seed, leading=(3,))
    activations = torch.rand(votes.shape[:2], dtype=torch.float64)
    routing = tc.make_routing("dynamic", iterations=10, squash=kind, sharpness=soft, **mode)
    assert_never_rises(routing.trace(votes, activations))


@given(**SIZES, kind=st.sampled_from(list(tc.SQUASHES)), soft=st.floats(0.05, 4), mode=st.sampled_from(MODES))
def test_objective_of_overwritten_logits_never_rises(children, parents, dim, scale, seed, kind, soft, mode):
    votes = votes_of(children, parents, dim, scale, seed, leading=(3,))
    activations = torch.rand(votes.shape[:2], dtype=torch.float64)
    routing = tc.make_routing("dynamic", iterations=10, accumulate=False, squash=kind, sharpness=soft, **mode)
    assert_never_rises(routing.trace(votes, activations))


def test_accumulated_logits_harden_and_overwritten_ones_do_not():
    votes = votes_of(children=30, parents=4, seed=1)
    accumulated = tc.make_routing("dynamic", iterations=300)(votes).couplings.amax(-1)
    overwritten = [tc.make_routing("dynamic", iterations=r, accumulate=False)(votes).couplings for r in (150, 300)]
    assert accumulated.min() > 0.99
    torch.testing.assert_close(*overwritten)
    assert overwritten[1].amax(-1).mean() < 0.9


def test_without_bias_a_routing_cannot_tell_votes_from_their_negatives():
    votes = votes_of()
    plain = tc.make_routing("dynamic")
    torch.testing.assert_close(plain(votes).activations, plain(-votes).activations, rtol=0, atol=0)
    biased = tc.make_routing("dynamic", bias=True, out_capsules=3, out_dim=5).double()
    assert (biased(votes).activations - biased(-votes).activations).abs().max() > 1e-3


# Algorithm 2


@given(**SIZES, weight=st.sampled_from([0.05, 0.5, 1.0, 5.0]), leaky=st.booleans())
def test_objective_of_algorithm_2_never_rises_at_a_fixed_entropy_weight(
    children, parents, dim, scale, seed, weight, leaky
):
    votes = votes_of(children, parents, dim, scale, seed, leading=(3,))
    assert_never_rises(tc.make_routing("entropy", iterations=10, entropy_weight=weight, leaky=leaky).trace(votes))


def test_objective_of_algorithm_2_is_eq_38():
    votes = votes_of()
    for step in tc.make_routing("entropy", entropy_weight=0.7).trace(votes):
        c = step.routed.couplings
        s = (c.unsqueeze(-1) * votes).sum(0)
        s = s / s.norm(dim=-1, keepdim=True)
        terms = [-c[i, j] * (votes[i, j] @ s[j]) + 0.7 * c[i, j] * c[i, j].log() for i in range(7) for j in range(3)]
        torch.testing.assert_close(step.objective, sum(terms))


def test_read_out_of_algorithm_2_shares_one_denominator():
    votes = votes_of()
    routed = tc.make_routing("entropy")(votes)
    lengths = (routed.couplings.unsqueeze(-1) * votes).sum(0).norm(dim=-1)
    torch.testing.assert_close(routed.activations, lengths / (1 + lengths.max()))
    torch.testing.assert_close(routed.poses.norm(dim=-1), routed.activations)


# Inverted attention: the argument of overwritten logits, with a layer norm in place of a squash


@pytest.mark.parametrize("gain", [1.0, 2.5])
def test_layer_norm_is_the_gradient_of_a_convex_potential(gain):
    """The objective of one parent and one child is minus the potential of its vote."""
    routing = tc.make_routing("inverted", out_dim=5, iterations=1).double()
    torch.nn.init.constant_(routing.gain, gain)
    torch.nn.init.normal_(routing.shift)
    votes = votes_of(children=1, parents=1, leading=(20,)).requires_grad_()
    (gradient,) = torch.autograd.grad(-routing.trace(votes)[0].objective.sum(), votes)
    torch.testing.assert_close(gradient.squeeze(1), routing(votes).poses)
    left, right = votes_of(children=1, parents=1, leading=(2, 200), seed=1)
    middle, *ends = (-routing.trace(part)[0].objective for part in ((left + right) / 2, left, right))
    assert (middle <= (ends[0] + ends[1]) / 2 + 1e-12).all()


@given(**SIZES, hard=st.booleans(), leaky=st.booleans(), gain=st.sampled_from([0.0, 1.0, 3.0]))
def test_objective_of_inverted_attention_never_rises(children, parents, dim, scale, seed, hard, leaky, gain):
    votes = votes_of(children, parents, dim, scale, seed, leading=(3,))
    routing = tc.make_routing("inverted", iterations=10, out_dim=dim, hard=hard, leaky=leaky).double()
    torch.nn.init.constant_(routing.gain, gain)
    torch.nn.init.normal_(routing.shift)
    assert_never_rises(routing.trace(votes))


@pytest.mark.parametrize("gain", [[1.0, 2.0], [-1.0, -1.0]])
def test_inverted_attention_has_no_objective_where_its_layer_norm_has_no_convex_potential(gain):
    routing = tc.make_routing("inverted", out_dim=2).double()
    routing.gain.data.copy_(torch.tensor(gain))
    assert all(step.objective is None for step in routing.trace(votes_of(dim=2)))


def test_inverted_poses_have_one_length_whatever_the_votes():
    routing = tc.make_routing("inverted", out_dim=5).double()
    lengths = torch.cat([routing(scale * votes_of()).poses.norm(dim=-1) for scale in (1.0, 10.0, 1000.0)])
    torch.testing.assert_close(lengths, torch.full_like(lengths, 5**0.5), rtol=1e-3, atol=0)


# Identities


def test_em_variant_1_is_gaussian_with_diagonal_covariance_of_children_that_count_alike():
    votes, activations = votes_of(leading=(2,)), torch.rand(2, 7, dtype=torch.float64)
    torch.testing.assert_close(tc.make_routing("em", variant=1)(votes, activations), tc.make_routing("gaussian")(votes))


@pytest.mark.parametrize("sharpness", [0.5, 3.0])
def test_kmeans_by_inner_product_is_entropy_routing_up_to_read_out(sharpness):
    votes = votes_of()
    mine = tc.make_routing("kmeans", distance="inner", sharpness=sharpness, iterations=5)(votes)
    other = tc.make_routing("entropy", entropy_weight=1 / sharpness, iterations=5)(votes)
    torch.testing.assert_close(mine.couplings, other.couplings)
    torch.testing.assert_close(tc.functional.unit(mine.poses), tc.functional.unit(other.poses))


def test_uniform_is_dynamic_with_one_iteration():
    votes = votes_of()
    torch.testing.assert_close(tc.make_routing("uniform")(votes), tc.make_routing("dynamic", iterations=1)(votes))


# Pooling


def test_self_pooling_reaches_its_fixed_point():
    points = torch.randn(3, 12, 4, dtype=torch.float64)
    x = tc.self_pooling(points, iterations=500)
    for example, pooled in zip(points, x, strict=True):
        weights = torch.tensor([math.exp(float(pooled @ point)) for point in example], dtype=torch.float64)
        torch.testing.assert_close(pooled, (weights / weights.sum()) @ example)


def test_self_pooling_starts_at_the_mean():
    points = torch.randn(5, 3)
    torch.testing.assert_close(tc.self_pooling(points, iterations=0), points.mean(0))
