"""The base's own promises: competition, sampling, masks, autocast, names and messages."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import torchcaps as tc
from tests.support.routings import sized


def votes_of(*shape, dtype=torch.float32):
    return torch.randn(*shape, dtype=dtype)


@given(
    name=st.sampled_from(sorted(tc.ROUTINGS)),
    leading=st.lists(st.integers(1, 3), max_size=3),
    children=st.integers(1, 9),
    parents=st.integers(1, 5),
    dim=st.integers(1, 6),
    scale=st.sampled_from([0.0, 1e-8, 1e-3, 1.0, 1e2, 1e4]),
)
def test_any_size_and_scale_gives_finite_parents(name, leading, children, parents, dim, scale):
    options = sized(name, parents, dim)
    votes = (scale * torch.randn(*leading, children, parents, dim)).requires_grad_()
    routed = tc.make_routing(name, **options)(votes, torch.rand(*leading, children))
    assert routed.poses.shape == (*leading, parents, dim)
    assert all(part.isfinite().all() for part in routed)
    torch.testing.assert_close(routed.couplings.sum(-1), torch.ones(*leading, children))
    (routed.poses.sum() + routed.activations.sum()).backward()
    assert votes.grad.isfinite().all()


def test_leaky_couplings_leave_the_share_of_the_zero_logit():
    votes = torch.zeros(4, 3, 2)
    couplings = tc.make_routing("dynamic", iterations=1, leaky=True)(votes).couplings
    torch.testing.assert_close(couplings, torch.full((4, 3), 1 / 4))


def test_hard_couplings_go_to_one_parent():
    couplings = tc.make_routing("kmeans", hard=True)(votes_of(20, 3, 4)).couplings
    assert ((couplings == 0) | (couplings == 1)).all()
    assert (couplings.sum(-1) == 1).all()


def test_sampling_leaves_out_parents_while_training_only():
    routing = tc.make_routing("dynamic", sampling=0.4)
    votes = votes_of(64, 6, 5, 4)
    routed = routing(votes)
    used = (routed.couplings > 0).any(-2)
    assert (used.sum(-1) == 2).all()  # 0.4 x 5 parents
    assert len(used.unique(dim=0)) > 1  # drawn for each example
    torch.testing.assert_close(routed.couplings.sum(-1), torch.ones(64, 6))
    assert (routed.activations[~used] == 0).all()
    plain = tc.make_routing("dynamic")
    torch.testing.assert_close(routing.eval()(votes), plain(votes))


def test_sampling_equals_softmax_over_the_sampled_parents():
    """He 2018 eq. 41: zero outside the sample, the softmax over it inside."""
    routing = tc.make_routing("dynamic", sampling=0.5)
    votes = votes_of(6, 4, 3, dtype=torch.float64)
    routed = routing(votes)
    kept = (routed.couplings > 0).any(0)
    inside = tc.make_routing("dynamic")(votes[:, kept])
    torch.testing.assert_close(routed.couplings[:, kept], inside.couplings)
    torch.testing.assert_close(routed.poses[kept], inside.poses)


def test_sampling_keeps_at_least_one_parent():
    couplings = tc.make_routing("dynamic", sampling=0.01)(votes_of(8, 3, 4, 2)).couplings
    assert ((couplings > 0).any(-2).sum(-1) == 1).all()


@pytest.mark.parametrize("leaky", [False, True])
@pytest.mark.parametrize("name", ["dynamic", "entropy"])
def test_one_iteration_uses_given_couplings_as_they_are(name, leaky):
    votes = votes_of(2, 5, 3, 4)
    couplings = torch.rand(2, 5, 3)
    options = {"entropy_weight": []} if name == "entropy" else {}
    routed = tc.make_routing(name, iterations=1, leaky=leaky, **options)(votes, couplings=couplings)
    torch.testing.assert_close(routed.couplings, couplings)


def test_given_couplings_continue_an_interrupted_routing():
    """Two iterations from the couplings of the second equal the third and fourth of one run, leaky or not."""
    votes = votes_of(5, 3, 4, dtype=torch.float64)
    for leaky in (False, True):
        whole = tc.make_routing("dynamic", iterations=4, leaky=leaky).trace(votes)
        rest = tc.make_routing("dynamic", iterations=3, leaky=leaky)(votes, couplings=whole[1].routed.couplings)
        torch.testing.assert_close(rest, whole[3].routed)


def test_zero_couplings_stay_zero_when_logits_accumulate():
    start = torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    couplings = tc.make_routing("dynamic")(votes_of(3, 2, 4), couplings=start).couplings
    assert couplings[0, 1] == 0
    assert couplings[2, 0] == 0
    assert couplings.isfinite().all()


@pytest.mark.parametrize("name", tc.ROUTINGS)
def test_all_children_masked_gives_finite_silence(name):
    votes = votes_of(2, 4, 3, 4).requires_grad_()
    routed = tc.make_routing(name, **sized(name))(votes, torch.ones(2, 4), mask=torch.zeros(2, 4, dtype=torch.bool))
    assert (routed.couplings == 0).all()
    assert all(part.isfinite().all() for part in routed)
    (routed.poses.sum() + routed.activations.sum()).backward()
    assert votes.grad.isfinite().all()


@pytest.mark.parametrize("name", tc.ROUTINGS)
def test_under_autocast_routing_computes_in_float32(name):
    routing = tc.make_routing(name, **sized(name))
    votes = votes_of(2, 6, 3, 4).half()
    activations = torch.rand(2, 6).half()
    with torch.autocast("cpu", dtype=torch.float16):
        routed = routing(votes, activations)
    assert all(part.dtype == torch.float32 for part in routed)
    torch.testing.assert_close(routed, routing(votes.float(), activations.float()))
    assert all(part.dtype == torch.float16 for part in routing(votes, activations))


def test_make_routing_takes_every_listed_option():
    for name in tc.ROUTINGS:
        assert tc.routing_options(name)
    assert set(tc.routing_options("kmeans")) == {
        "iterations",
        "distance",
        "sharpness",
        "mass_floor",
        "gradients",
        "hard",
        "leaky",
        "sampling",
    }
    assert "covariance" not in tc.routing_options("em")
    assert "gradients" not in tc.routing_options("attention")


def test_argument_names_are_words():
    for name in tc.ROUTINGS:
        for option in tc.routing_options(name):
            assert len(option) > 3
            assert option not in {"alpha", "lambda", "lam", "beta_u", "beta_a", "sigma"}


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: tc.make_routing("dinamic"), "name to be one of 'dynamic', 'kmeans'.*got 'dinamic'"),
        (
            lambda: tc.make_routing("dynamic", iteration=3),
            r"make_routing\('dynamic'\): expected options among iterations.*got iteration\. ",
        ),
        (lambda: tc.make_routing("dynamic", iterations=0), "dynamic: expected iterations to be a whole number from 1"),
        (lambda: tc.make_routing("dynamic", gradients="none"), "gradients to be one of 'all', 'last'"),
        (lambda: tc.make_routing("dynamic", sampling=1.5), "sampling between 0 and 1"),
        (lambda: tc.make_routing("dynamic", squash="cubic"), "squash to be one of"),
        (lambda: tc.make_routing("dynamic", bias=True), "expected out_capsules and out_dim for its bias"),
        (lambda: tc.make_routing("kmeans", distance="cosine"), "distance to be one of 'euclidean', 'inner'"),
        (lambda: tc.make_routing("kmeans", sharpness=0), "sharpness above 0, got 0"),
        (
            lambda: tc.make_routing("entropy", entropy_weight=[1.0]),
            "expected iterations - 1 = 2 entropy weights, got 1",
        ),
        (lambda: tc.make_routing("entropy", entropy_weight=-1.0), "above 0, got -1"),
        (lambda: tc.make_routing("gaussian", covariance="tied"), "covariance to be one of 'full'"),
        (lambda: tc.make_routing("gaussian", variance_floor=-1), "variance_floor between 0"),
        (lambda: tc.make_routing("em"), "em: expected out_capsules for its learned betas, got out_capsules=None"),
        (lambda: tc.make_routing("em", out_capsules=3, variant=5), "variant to be one of 1, 2, 3, 4"),
        (lambda: tc.make_routing("em", out_capsules=3, preset="keras"), "preset to be one of 'paper'"),
        (
            lambda: tc.make_routing("heinsen"),
            "heinsen: expected out_capsules for its learned betas, got out_",
        ),
        (lambda: tc.make_routing("variational"), "variational: expected out_capsules for its learned betas, got out_"),
        (lambda: tc.make_routing("variational", out_capsules=3, degrees=0), "degrees above 0, got 0"),
        (lambda: tc.make_routing("variational", out_capsules=3, prior_variance=-1), "prior_variance above 0, got -1"),
        (lambda: tc.make_routing("kde", kernel="cosine"), "kernel to be one of 'gaussian', 'epanechnikov'"),
        (lambda: tc.make_routing("kde", bandwidth=0), "bandwidth above 0, got 0"),
        (lambda: tc.make_routing("kde", tolerance=-1), "tolerance between 0 and inf, got -1"),
        (lambda: tc.make_routing("inverted"), "inverted: expected out_dim for its layer norm, got out_dim=None"),
        (lambda: tc.make_routing("inverted", out_dim=4)(torch.ones(3, 4, 5)), "Make the routing with out_dim=5"),
        (lambda: tc.make_routing("attention"), "in_capsules and out_capsules for its learned prior"),
        (
            lambda: tc.make_routing("dynamic")(torch.ones(3, 4)),
            r"dynamic: expected floating-point votes \[\*b i j d\], got \(3, 4\)",
        ),
        (lambda: tc.make_routing("dynamic")(torch.ones(3, 4, 5, dtype=torch.long)), "torch.int64"),
        (
            lambda: tc.make_routing("dynamic")(torch.ones(3, 4, 5), torch.ones(4)),
            r"activations \[\*b i\] = \(3\), got \(4\)",
        ),
        (
            lambda: tc.make_routing("dynamic")(torch.ones(3, 4, 5), mask=torch.ones(3)),
            "a boolean mask, got torch.float32",
        ),
        (
            lambda: tc.make_routing("dynamic")(torch.ones(3, 4, 5), couplings=torch.ones(3)),
            r"couplings \[\*b i j\] = \(3, 4\)",
        ),
        (lambda: tc.make_routing("em", out_capsules=3)(torch.ones(3, 4, 5)), "Make the routing with out_capsules=4"),
    ],
)
def test_wrong_arguments_get_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


def test_repr_names_what_is_not_plain():
    assert repr(tc.make_routing("dynamic", leaky=True)) == "Dynamic(iterations=3, leaky=True)"


def test_em_takes_whole_numbers_for_its_betas():
    routing = tc.make_routing("em", out_capsules=2, beta_use=1, beta_active=-10, inverse_temperature=1)
    assert routing.beta_active.dtype == routing.inverse_temperature.dtype == torch.float32


# Every option has its effect in every routing that offers it.


def with_option(option):
    return [name for name in tc.ROUTINGS if option in tc.routing_options(name)]


def routed_with(name, **options):
    return tc.make_routing(name, **sized(name), **options)(votes_of(16, 8, 3, 4), torch.rand(16, 8))


@pytest.mark.parametrize("name", with_option("leaky"))
def test_leaky_option_lets_children_leak(name):
    assert (routed_with(name, leaky=True).couplings.sum(-1) < 1 - 1e-6).any()


@pytest.mark.parametrize("name", with_option("hard"))
def test_hard_option_gives_whole_children(name):
    couplings = routed_with(name, hard=True).couplings
    assert ((couplings == 0) | (couplings == 1)).all()


@pytest.mark.parametrize("name", with_option("sampling"))
def test_sampling_option_leaves_out_parents(name):
    couplings = routed_with(name, sampling=0.34).couplings
    assert ((couplings > 0).any(-2).sum(-1) == 1).all()


@pytest.mark.parametrize("name", with_option("gradients"))
def test_last_gradients_option_stops_gradients_of_couplings(name):
    votes = votes_of(2, 5, 3, 4).requires_grad_()
    assert not tc.make_routing(name, gradients="last", **sized(name))(votes).couplings.requires_grad
    assert tc.make_routing(name, **sized(name))(votes).couplings.requires_grad


@pytest.mark.parametrize("name", tc.ROUTINGS)
def test_trace_obeys_mask_and_start_like_a_call(name):
    routing = tc.make_routing(name, **sized(name))
    votes, activations = votes_of(2, 5, 3, 4), torch.rand(2, 5)
    mask, start = torch.rand(2, 5) > 0.4, torch.rand(2, 5, 3).softmax(-1)
    for words in ({"mask": mask}, {"couplings": start}, {"mask": mask, "couplings": start}):
        torch.testing.assert_close(
            routing.trace(votes, activations, **words)[-1].routed, routing(votes, activations, **words)
        )


@pytest.mark.parametrize("name", tc.ROUTINGS)
def test_masked_children_may_hold_anything(name):
    routing = tc.make_routing(name, **sized(name))
    votes, mask = votes_of(2, 5, 3, 4), torch.arange(5).expand(2, -1) < 3
    expected = routing(votes, mask=mask)
    for rubbish in (float("nan"), float("inf"), 1e20):
        votes[:, 3:] = rubbish
        torch.testing.assert_close(routing(votes, mask=mask), expected)


def test_mask_and_sampling_silence_given_couplings():
    votes, start = votes_of(4, 5, 3, 4), torch.full((4, 5, 3), 1 / 3)
    mask = torch.arange(5).expand(4, -1) < 4
    routed = tc.make_routing("dynamic", iterations=1, sampling=0.34)(votes, mask=mask, couplings=start)
    assert (routed.couplings[:, 4] == 0).all()
    assert ((routed.couplings > 0).any(-2).sum(-1) == 1).all()


def test_attention_prior_does_not_revive_silenced_capsules():
    routing = tc.make_routing("attention", in_capsules=6, out_capsules=4, sampling=0.5)
    torch.nn.init.normal_(routing.prior)
    routed = routing(votes_of(8, 6, 4, 3), mask=torch.arange(6).expand(8, -1) < 5)
    assert ((routed.couplings != 0).any(-2).sum(-1) == 2).all()
    assert (routed.couplings[:, 5] == 0).all()


def test_hard_and_leaky_children_go_to_nobody_when_no_score_is_positive():
    routed = tc.make_routing("kmeans", hard=True, leaky=True)(votes_of(6, 3, 4))  # scores are minus squared distances
    assert (routed.couplings == 0).all()


def test_kmeans_shares_count_what_leaks():
    routed = tc.make_routing("kmeans", leaky=True)(2 * votes_of(6, 3, 4))
    torch.testing.assert_close(routed.activations, routed.couplings.mean(-2))
    assert routed.activations.sum() < 0.9


def test_kmeans_center_without_children_stays():
    points = torch.tensor([[0.0], [10.0]]).unsqueeze(1).expand(2, 3, 1)
    start = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    routed = tc.make_routing("kmeans", hard=True)(points, couplings=start)
    assert routed.poses.flatten().tolist() == [0.0, 10.0, 5.0]
    assert routed.activations.tolist() == [0.5, 0.5, 0.0]


@pytest.mark.parametrize("scale", [1.0, 3.0, 10.0, 30.0])
@pytest.mark.parametrize("leaky", [False, True])
def test_kmeans_gradients_are_finite_for_nearly_empty_clusters(scale, leaky):
    votes = (scale * votes_of(400, 3, 2, 2)).requires_grad_()
    tc.make_routing("kmeans", leaky=leaky)(votes).poses.sum().backward()
    assert votes.grad.isfinite().all()


def test_trace_and_call_of_half_votes_give_halves():
    votes = votes_of(5, 3, 4).half()
    routing = tc.make_routing("dynamic")
    assert routing.trace(votes)[-1].routed.poses.dtype == routing(votes).poses.dtype == torch.float16


def test_objective_of_hard_mixture_is_the_likelihood_of_the_best_cluster():
    votes = votes_of(9, 3, 2, dtype=torch.float64)
    routing = tc.make_routing("gaussian", hard=True, variance_floor=0.1)
    step = routing.trace(votes)[-1]
    clusters = routing.update(votes, step.routed.couplings, None, 0)
    best = (routing.log_density(votes, clusters) + clusters.log_prior).amax(-1)
    torch.testing.assert_close(step.objective, -best.sum())


def test_em_has_no_objective_but_as_a_plain_mixture():
    votes = votes_of(9, 3, 2)
    assert tc.make_routing("em", variant=1).trace(votes)[0].objective is not None
    assert tc.make_routing("em", variant=1, damping=0.1).trace(votes)[0].objective is None
    assert tc.make_routing("em", out_capsules=3).trace(votes)[0].objective is None


def test_repr_shows_what_was_chosen():
    assert (
        repr(tc.make_routing("kmeans", distance="inner", sharpness=9.0))
        == "KMeans(iterations=3, distance='inner', sharpness=9.0)"
    )
    assert "variant=2" in repr(tc.make_routing("em", out_capsules=3, variant=2))
    assert "preset='official'" in repr(tc.make_routing("em", out_capsules=3, preset="official"))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: tc.make_routing("dynamic", iterations=2.5), r"whole number from 1 on, got 2\.5"),
        (lambda: tc.make_routing("dynamic", iterations="3"), "whole number from 1 on, got '3'"),
        (lambda: tc.make_routing("kmeans", sharpness=None), "sharpness above 0, got None"),
        (lambda: tc.make_routing("entropy", entropy_weight=-3, iterations=1), "entropy_weight above 0, got -3"),
        (lambda: tc.make_routing("entropy", entropy_weight=[1, 1], entropy_decay=0.5), "Drop entropy_decay"),
        (lambda: tc.make_routing("em", out_capsules=3, inverse_temperature=-1), "inverse_temperature between 0"),
        (lambda: tc.check_routing("dynamic"), "check_routing: expected a Routing, got 'dynamic'"),
    ],
)
def test_odd_arguments_get_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
