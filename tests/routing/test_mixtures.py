"""Theory as tests, for routings by distance and density; see docs/routing.md."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import torchcaps as tc
from tests.oracles.variational import negative_bound
from tests.routing.drawn import SIZES, assert_never_rises, votes_of

# k-means and mixtures


@given(
    **SIZES,
    distance=st.sampled_from(["euclidean", "inner"]),
    hard=st.booleans(),
    sharpness=st.sampled_from([0.1, 1.0, 30.0]),
)
def test_objective_of_kmeans_never_rises(children, parents, dim, scale, seed, distance, hard, sharpness):
    votes = votes_of(children, parents, dim, scale, seed, leading=(3,))
    start = torch.rand(votes.shape[:-1], dtype=torch.float64).softmax(-1)
    sharp = {} if hard else {"sharpness": sharpness}
    routing = tc.make_routing("kmeans", iterations=10, distance=distance, hard=hard, **sharp)
    assert_never_rises(routing.trace(votes, couplings=start))


def loss_of_kmeans(votes, clusters, **options):
    """The objective at these clusters and the couplings that are best for them."""
    routing = tc.make_routing("kmeans", **options)
    scores = routing.assign(votes, clusters, None, 0)
    couplings = routing.compete(scores, None, None, tc.routing.over_own_parents)
    return routing.objective(votes, couplings, torch.ones(len(votes), dtype=torch.float64), clusters, 0)


@pytest.mark.parametrize("distance", ["euclidean", "inner"])
def test_softened_kmeans_loss_bounds_the_hard_one(distance):
    """min_j d_ij - log(k)/K <= -1/K log Sum_j exp(-K d_ij) <= min_j d_ij, so both meet as K grows."""
    votes = votes_of(children=50, parents=4)
    clusters = tc.make_routing("kmeans").update(votes, torch.rand(50, 4, dtype=torch.float64), None, 0)
    hard = loss_of_kmeans(votes, clusters, distance=distance, hard=True)
    centers = clusters.means if distance == "euclidean" else tc.functional.unit(clusters.means)
    pairs = (votes - centers) ** 2 if distance == "euclidean" else -votes * centers
    torch.testing.assert_close(hard, pairs.sum(-1).amin(-1).sum())
    for sharpness in (1.0, 10.0, 1000.0):
        soft = loss_of_kmeans(votes, clusters, distance=distance, sharpness=sharpness)
        torch.testing.assert_close(soft, -(-sharpness * pairs.sum(-1)).logsumexp(-1).sum() / sharpness)
        assert hard - 50 * math.log(4) / sharpness - 1e-9 <= soft <= hard + 1e-9


@pytest.mark.parametrize("covariance", ["full", "diagonal", "spherical", "fixed"])
@pytest.mark.parametrize("leaky", [False, True])
def test_log_likelihood_never_falls(covariance, leaky):
    votes = votes_of(children=80, parents=3, dim=3, leading=(4,))
    start = torch.rand(votes.shape[:-1], dtype=torch.float64).softmax(-1)
    activations = torch.rand(votes.shape[:2], dtype=torch.float64)
    routing = tc.make_routing(
        "gaussian",
        iterations=4 if leaky else 20,  # a cluster that leaks its far children collapses in the end
        covariance=covariance,
        variance_floor=0,
        mass_floor=0,
        leaky=leaky,
    )
    steps = routing.trace(votes, activations, couplings=start)
    assert_never_rises(steps, slack=1e-9)
    assert (steps[-1].objective < steps[0].objective).all()


@pytest.mark.parametrize("name", ["dynamic", "kmeans", "gaussian", "entropy"])
def test_equal_votes_for_all_parents_keep_parents_equal(name):
    points = torch.randn(9, 1, 4, dtype=torch.float64)
    routed = tc.make_routing(name, iterations=6)(points.expand(-1, 3, -1))
    torch.testing.assert_close(routed.poses, routed.poses[:1].expand_as(routed.poses))


# Entropy and activation of EM routing (Su Jianlin, kexue.fm 5155, eqs. 13-15)


def test_cluster_entropy_agrees_with_its_definition():
    """Eq. 13, -Sum_i r_ij log p_ij with r normalized, equals eq. 14 with Sum_i r_ij = 1."""
    votes, d = votes_of(children=20), 5
    routing = tc.make_routing("gaussian", variance_floor=0, mass_floor=0)
    couplings = routing(votes).couplings
    clusters = routing.update(votes, couplings, None, 0)
    r = couplings / couplings.sum(0)
    by_definition = -(r * routing.log_density(votes, clusters)).sum(0)
    by_formula = d / 2 + clusters.covariances.log().sum(-1) / 2 + d / 2 * math.log(2 * math.pi)
    torch.testing.assert_close(by_definition, by_formula)
    # With the paper's unnormalized r both terms carry the mass; mixing the conventions (mass on one term) is wrong.
    mass = couplings.sum(0)
    unnormalized = -(couplings * routing.log_density(votes, clusters)).sum(0)
    torch.testing.assert_close(unnormalized, mass * by_formula)
    assert not torch.allclose(unnormalized, d / 2 + mass * (by_formula - d / 2))


def test_em_activation_is_the_logistic_of_entropy_and_mass():
    """Eq. 15 from eq. 14: the cost is the mass times the entropy, up to constants that beta_use takes in."""
    votes, d = votes_of(children=20), 5
    activations = torch.rand(20, dtype=torch.float64)
    routing = tc.make_routing("em", out_capsules=3, inverse_temperature=0.5, variance_floor=0, mass_floor=0).double()
    routed = routing(votes, activations)
    weights = activations.unsqueeze(-1) * routed.couplings
    density = torch.distributions.Normal(
        routed.poses, ((weights.unsqueeze(-1) * (votes - routed.poses) ** 2).sum(0) / weights.sum(0)[:, None]).sqrt()
    )
    entropy_times_mass = -(weights * density.log_prob(votes).sum(-1)).sum(0)
    constant = weights.sum(0) * (d / 2) * (1 + math.log(2 * math.pi))
    expected = torch.sigmoid(-0.5 * (1 - 0.95**3) * (entropy_times_mass - constant))
    torch.testing.assert_close(routed.activations, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("variant", [2, 3])
def test_em_variants_without_mass_ignore_how_many_children_agree(variant):
    """With Sum_i r_ij = 1 the cost sees agreement only; variant 4 sees numbers too."""
    votes, activations = votes_of(children=8), torch.rand(8, dtype=torch.float64)
    twice = torch.cat([votes, votes]), torch.cat([activations, activations])
    options = {"out_capsules": 3, "inverse_temperature": 1.0, "mass_floor": 0}
    few = tc.make_routing("em", variant=variant, **options).double()
    torch.testing.assert_close(few(votes, activations).activations, few(*twice).activations)
    paper = tc.make_routing("em", variant=4, **options).double()
    assert (paper(votes, activations).activations - paper(*twice).activations).abs().max() > 1e-3


def test_beta_use_per_capsule_is_the_same_number_in_every_dimension():
    votes, activations = votes_of(), torch.rand(7, dtype=torch.float64)
    capsule = tc.make_routing("em", out_capsules=3, beta_use=0.4).double()
    dimension = tc.make_routing("em", out_capsules=3, out_dim=5, beta_use=0.4, beta_per_dimension=True).double()
    torch.testing.assert_close(capsule(votes, activations), dimension(votes, activations))
    assert capsule.beta_use.numel() == 3
    assert dimension.beta_use.numel() == 15


# Kernel density estimation


@given(
    **SIZES,
    kernel=st.sampled_from(["gaussian", "epanechnikov"]),
    bandwidth=st.sampled_from([0.3, 1.0, 5.0]),
    sharpness=st.sampled_from([0.1, 2.0, 50.0]),
    tolerance=st.sampled_from([0.0, 0.05]),
    leaky=st.booleans(),
)
def test_density_never_falls(children, parents, dim, scale, seed, kernel, bandwidth, sharpness, tolerance, leaky):
    votes = votes_of(children, parents, dim, scale, seed, leading=(3,))
    options = {"kernel": kernel, "bandwidth": bandwidth, "sharpness": sharpness, "tolerance": tolerance}
    routing = tc.make_routing("kde", iterations=10, leaky=leaky, **options)
    activations = torch.rand(votes.shape[:2], dtype=torch.float64)
    assert_never_rises(routing.trace(votes, activations))


def test_objective_of_kde_is_minus_the_weighted_density():
    votes, activations = votes_of(), torch.rand(7, dtype=torch.float64)
    for step in tc.make_routing("kde", bandwidth=2.0).trace(votes, activations):
        squares = [[float(((votes[i, j] - step.routed.poses[j]) ** 2).sum()) for j in range(3)] for i in range(7)]
        kernels = torch.tensor([[math.exp(-square / 8) for square in row] for row in squares], dtype=torch.float64)
        density = activations.unsqueeze(-1) * step.routed.couplings * kernels
        torch.testing.assert_close(step.objective, -density.sum())
        torch.testing.assert_close(step.routed.activations, density.sum(0) / activations.sum())


def test_mean_shift_ends_at_modes_of_the_density():
    """At a mode, the mean of the votes under couplings times kernels is the mode itself."""
    votes = votes_of(children=30)
    routed = tc.make_routing("kde", iterations=500, bandwidth=2.0, tolerance=0.0)(votes)
    weights = routed.couplings * (-((votes - routed.poses) ** 2).sum(-1) / 8).exp()
    means = (weights.unsqueeze(-1) * votes).sum(0) / weights.sum(0).unsqueeze(-1)
    torch.testing.assert_close(means, routed.poses, rtol=1e-3, atol=1e-3)


class Counted(tc.ROUTINGS["kde"]):
    """KDE routing that counts its updates."""

    updates = 0

    def update(self, *arguments, **options):
        self.updates += 1
        return super().update(*arguments, **options)


def test_kde_stops_early_and_a_settled_example_is_left_as_it_is():
    quick = 0.01 * votes_of(children=9, leading=(1,))  # all within the bandwidth: the density is full from the start
    slow = votes_of(children=9, seed=1, leading=(1,))
    counts = []
    for votes in (quick, slow, torch.cat([quick, slow])):
        routing = Counted(iterations=30)
        together = routing(votes)
        counts.append(routing.updates)
        steps = routing.trace(votes)
        assert len(steps) == 30
        torch.testing.assert_close(together, steps[-1].routed, rtol=0, atol=0)
    assert counts[0] == 3  # the second update settles it; that of the loop's end makes it once more
    assert 3 < counts[1] == counts[2] < 30
    torch.testing.assert_close(together.poses[:1], Counted(iterations=30)(quick).poses, rtol=1e-12, atol=0)
    torch.testing.assert_close(steps[1].routed.poses[:1], steps[-1].routed.poses[:1], rtol=0, atol=0)
    assert (steps[1].routed.poses[1:] - steps[-1].routed.poses[1:]).abs().max() > 1e-3


def test_kde_silences_masked_children_where_it_stops_early():
    votes = 0.01 * votes_of(children=9, leading=(2,))
    mask = torch.arange(9).expand(2, -1) < 6
    routing = Counted(iterations=30)
    routed = routing(votes, mask=mask)
    assert routing.updates < 30
    assert (routed.couplings[:, 6:] == 0).all()
    torch.testing.assert_close(routed.poses, Counted(iterations=30)(votes[:, :6]).poses)


def test_gradients_of_a_settled_example_are_those_of_the_iterations_it_took():
    votes = votes_of(children=9, seed=1).requires_grad_()
    routing = Counted(iterations=30, tolerance=0.1)
    (early,) = torch.autograd.grad(routing(votes).poses.sin().sum(), votes)
    plain = Counted(iterations=routing.updates - 1, tolerance=0.1)
    (same,) = torch.autograd.grad(plain(votes).poses.sin().sum(), votes)
    assert 3 < routing.updates < 30
    torch.testing.assert_close(early, same)


# Variational Bayes


@given(
    **SIZES,
    hard=st.booleans(),
    leaky=st.booleans(),
    priors=st.sampled_from(
        [{}, {"concentration": 0.01, "mean_strength": 0.1, "degrees": 0.3, "prior_variance": 0.01}, {"degrees": 20.0}]
    ),
)
def test_evidence_bound_never_falls(children, parents, dim, scale, seed, hard, leaky, priors):
    votes = votes_of(children, parents, dim, scale, seed, leading=(3,))
    start = torch.rand(votes.shape[:-1], dtype=torch.float64).softmax(-1)
    activations = torch.rand(votes.shape[:2], dtype=torch.float64)
    routing = tc.make_routing("variational", iterations=10, out_capsules=parents, hard=hard, leaky=leaky, **priors)
    for given_couplings in (None, start):
        assert_never_rises(routing.double().trace(votes, activations, couplings=given_couplings))


@pytest.mark.parametrize("place", [0.0, 3.0])
def test_objective_of_variational_routing_is_minus_the_evidence_bound(place):
    votes, activations = votes_of() + place, torch.rand(7, dtype=torch.float64)
    options = {"concentration": 0.7, "mean_strength": 0.3, "degrees": 1.5, "prior_variance": 0.4}
    routing = tc.make_routing("variational", out_capsules=3, **options).double()
    for step in routing.trace(votes, activations):
        expected = negative_bound(votes, step.routed.couplings, activations, 0.7, 0.3, 1.5, 0.4)
        torch.testing.assert_close(step.objective, expected)


def test_variational_routing_with_weak_priors_tends_to_a_mixture_of_many_children():
    votes = votes_of(children=4000, parents=3, dim=2)
    start = torch.rand(4000, 3, dtype=torch.float64).softmax(-1)
    mixture = tc.make_routing("gaussian", variance_floor=0, mass_floor=0, iterations=4)(votes, couplings=start)
    weak = {"concentration": 1e-3, "mean_strength": 1e-3, "degrees": 1e-3}
    mine = tc.make_routing("variational", iterations=4, out_capsules=3, **weak).double()(votes, couplings=start)
    torch.testing.assert_close(mine.poses, mixture.poses, rtol=0, atol=2e-3)
    torch.testing.assert_close(mine.couplings, mixture.couplings, rtol=0, atol=5e-3)


def test_variational_priors_keep_a_lone_child_from_collapse():
    """One child for each parent: the variance of a mixture is its floor, that of a posterior stays near its prior."""
    votes, alone = votes_of(children=3, parents=3, dim=2), torch.eye(3, dtype=torch.float64)
    clusters = tc.make_routing("variational", out_capsules=3).double().update(votes, alone, None, 0)
    assert (clusters.covariances > 0.5).all()


def test_variational_parents_are_active_where_votes_agree():
    votes = votes_of(children=20, parents=2, dim=4)
    votes[:, 0] *= 0.05
    routed = tc.make_routing("variational", out_capsules=2).double()(votes)
    assert routed.activations[0] > 0.9 > 0.6 > routed.activations[1]


# Heinsen's net benefit


@pytest.mark.parametrize("competition", ["dense", "leaky", "grid"])
def test_heinsen_activation_is_the_logistic_of_what_is_used_less_what_is_ignored(competition):
    if competition == "grid":
        layer = tc.ConvCapsules2d(2, 3, 4, 4, 2, routing="heinsen").double()
        children = tc.Capsules(torch.randn(2, 4, 4, 2, 4).double(), torch.rand(2, 4, 4, 2).double())
    else:
        layer = tc.DenseCapsules(6, 3, 4, 4, routing="heinsen", leaky=competition == "leaky").double()
        children = tc.Capsules(torch.randn(2, 6, 4).double(), torch.rand(2, 6).double())
    for beta in layer.routing.parameters():
        torch.nn.init.normal_(beta)
    routed = layer.route(children)
    gathered = layer.gather(children)
    own = gathered.activations.unsqueeze(-1)
    used = own * gathered.flat(routed.couplings)
    assert (used.sum(-1) - own.squeeze(-1)).abs().max() > 1e-3 or competition == "dense"
    benefit = (layer.routing.beta_use * used).sum(-2) - (layer.routing.beta_ignore * (own - used)).sum(-2)
    torch.testing.assert_close(routed.activations, torch.sigmoid(benefit))


def test_heinsen_betas_are_for_pairs_or_for_parents():
    pairs = tc.DenseCapsules(6, 3, 4, 4, routing="heinsen").routing
    parents = tc.DenseCapsules(None, 3, 4, 4, votes="shared", routing="heinsen").routing
    assert pairs.beta_use.shape == pairs.beta_ignore.shape == (6, 3)
    assert parents.beta_use.shape == parents.beta_ignore.shape == (1, 3)


def test_heinsen_parents_with_an_even_share_start_half_active():
    steps = tc.make_routing("heinsen", out_capsules=3).double().trace(votes_of(), torch.rand(7, dtype=torch.float64))
    torch.testing.assert_close(steps[0].routed.activations, torch.full((3,), 0.5, dtype=torch.float64))
    more = steps[-1].routed.couplings.sum(0) > 7 / 3
    assert more.any()
    assert ((steps[-1].routed.activations > 0.5) == more).all()
    assert all(step.objective is None for step in steps)
