"""The Gaussian mixture and hard k-means against scikit-learn, from the same start."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

import torchcaps as tc

CLUSTERS, POINTS, DIM = 3, 90, 4
SKLEARN_COVARIANCE = {"full": "full", "diagonal": "diag", "spherical": "spherical"}


def points_and_start(seed=0):
    rng = np.random.default_rng(seed)
    centers = rng.normal(scale=2.0, size=(CLUSTERS, DIM))
    points = np.concatenate(
        [rng.normal(center, rng.uniform(0.5, 1.5, DIM), (POINTS // CLUSTERS, DIM)) for center in centers]
    )
    return points, rng.dirichlet(np.ones(CLUSTERS), POINTS)


def as_votes(points):
    """The same points for every parent, [i j d]: plain clustering."""
    return torch.from_numpy(points).unsqueeze(1).expand(-1, CLUSTERS, -1)


def parameters_of(points, responsibilities, covariance):
    """The M-step by numpy: weights, means and precisions from which scikit-learn starts with its E-step."""
    mass = responsibilities.sum(0)
    means = responsibilities.T @ points / mass[:, None]
    covariances = [np.cov(points.T, aweights=responsibilities[:, j], bias=True) for j in range(CLUSTERS)]
    if covariance == "full":
        precisions = np.linalg.inv(covariances)
    elif covariance == "diagonal":
        precisions = np.array([1 / np.diag(c) for c in covariances])
    else:
        precisions = np.array([DIM / np.trace(c) for c in covariances])
    return mass / POINTS, means, precisions


@pytest.mark.parametrize("covariance", SKLEARN_COVARIANCE)
@pytest.mark.parametrize("iterations", [2, 6])
def test_gaussian_equals_sklearn_mixture(covariance, iterations):
    points, start = points_and_start()
    weights, means, precisions = parameters_of(points, start, covariance)
    theirs = GaussianMixture(
        CLUSTERS,
        covariance_type=SKLEARN_COVARIANCE[covariance],
        tol=0,
        reg_covar=0,
        max_iter=iterations - 1,
        weights_init=weights,
        means_init=means,
        precisions_init=precisions,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        theirs.fit(points)

    routing = tc.make_routing("gaussian", iterations=iterations, covariance=covariance, variance_floor=0, mass_floor=0)
    votes, couplings = as_votes(points), torch.from_numpy(start)
    steps = routing.trace(votes, couplings=couplings)
    routed = steps[-1].routed
    np.testing.assert_allclose(routed.poses, theirs.means_, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(routed.activations, theirs.weights_, rtol=1e-8)
    np.testing.assert_allclose(-steps[-1].objective, theirs.score(points) * POINTS, rtol=1e-8)
    # One more E-step of ours against scikit-learn's responsibilities at its final parameters.
    longer = tc.make_routing(
        "gaussian", iterations=iterations + 1, covariance=covariance, variance_floor=0, mass_floor=0
    )
    np.testing.assert_allclose(
        longer(votes, couplings=couplings).couplings, theirs.predict_proba(points), rtol=1e-8, atol=1e-8
    )
    clusters = routing.update(votes, routed.couplings, None, 0)
    ours = clusters.covariances.numpy()
    expected = theirs.covariances_ if covariance != "spherical" else np.repeat(theirs.covariances_[:, None], DIM, 1)
    np.testing.assert_allclose(ours, expected, rtol=1e-8, atol=1e-10)


def test_gaussian_activations_weigh_children_as_repeated_samples():
    points, start = points_and_start()
    counts = torch.randint(1, 4, (POINTS,))
    repeated = np.repeat(points, counts, axis=0)
    routing = tc.make_routing("gaussian", iterations=4, variance_floor=0, mass_floor=0)
    weighted = routing(as_votes(points), counts.double(), couplings=torch.from_numpy(start))
    plain = routing(as_votes(repeated), couplings=torch.from_numpy(np.repeat(start, counts, axis=0)))
    torch.testing.assert_close(weighted[:2], plain[:2])


@pytest.mark.parametrize("seed", range(3))
def test_hard_kmeans_equals_sklearn_kmeans(seed):
    points, _ = points_and_start(seed)
    first = points[:: POINTS // CLUSTERS][:CLUSTERS]
    nearest = ((points[:, None] - first) ** 2).sum(-1).argmin(1)
    theirs = KMeans(CLUSTERS, init=first, n_init=1, algorithm="lloyd", max_iter=100).fit(points)
    start = torch.nn.functional.one_hot(torch.from_numpy(nearest), CLUSTERS).double()
    steps = tc.make_routing("kmeans", hard=True, iterations=60).trace(as_votes(points), couplings=start)
    np.testing.assert_allclose(steps[-1].routed.poses, theirs.cluster_centers_, rtol=1e-8, atol=1e-8)
    np.testing.assert_array_equal(steps[-1].routed.couplings.argmax(-1), theirs.labels_)
    np.testing.assert_allclose(steps[-1].objective, theirs.inertia_, rtol=1e-8)


def test_gaussian_with_vanishing_variance_tends_to_hard_kmeans():
    points, start = points_and_start()
    votes, couplings = as_votes(points), torch.from_numpy(start)
    hard = tc.make_routing("kmeans", hard=True, iterations=8)(votes, couplings=couplings)
    distances = []
    for variance in (1.0, 0.1, 0.001):
        soft = tc.make_routing("gaussian", covariance="fixed", variance=variance, iterations=8)(
            votes, couplings=couplings
        )
        distances.append(float((soft.poses - hard.poses).abs().max()))
    assert distances[0] > distances[1] > distances[2]
    assert distances[2] < 1e-6


def test_soft_kmeans_sharpened_tends_to_hard_kmeans():
    points, start = points_and_start()
    votes, couplings = as_votes(points), torch.from_numpy(start)
    hard = tc.make_routing("kmeans", hard=True, iterations=8)(votes, couplings=couplings)
    soft = tc.make_routing("kmeans", sharpness=1e3, iterations=8)(votes, couplings=couplings)
    torch.testing.assert_close(soft.poses, hard.poses)
