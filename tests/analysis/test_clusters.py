"""Routing on points in the plane: what is kept of every iteration, and what each set of points is drawn to show."""

import json
import re

import numpy as np
import pytest
import torch

import torchcaps as tc
from tests.support.routings import sized
from torchcaps._core.errors import InputError
from torchcaps.analysis.clusters import iterative, leaning_couplings, purity, trace_clusters
from torchcaps.analysis.points import POINTS, make_points
from torchcaps.routing.gaussian import Gaussian

# Two pairs of points, and a start that sends each pair mostly to a parent of its own.
SQUARE = torch.tensor([[-3.0, 0.0], [-1.0, 0.0], [1.0, 0.0], [3.0, 0.0]])
LEAN = torch.tensor([[0.75, 0.25], [0.75, 0.25], [0.25, 0.75], [0.25, 0.75]])


def ended(points, routing, seed=0, iterations=10, **options):
    drawn = make_points(points)
    trace = trace_clusters(drawn.points, routing, drawn.parents, iterations, seed=seed, **options)
    return purity(trace.steps[-1].couplings, drawn.groups)


def test_first_centers_are_the_means_under_the_start():
    trace = trace_clusters(SQUARE, "kmeans", 2, 1, start=LEAN)
    # 0.75 of -3 and -1, 0.25 of 1 and 3, over a mass of 2
    assert torch.allclose(trace.steps[0].centers, torch.tensor([[-1.0, 0.0], [1.0, 0.0]]).double())
    assert torch.equal(trace.steps[0].couplings, LEAN.double())
    assert trace.steps[0].activations.tolist() == [0.5, 0.5]
    assert not trace.directional


@pytest.mark.parametrize("routing", iterative())
def test_trace_is_that_of_the_routing(routing):
    points = make_points("blobs").points
    start = leaning_couplings(points.double(), 3)
    votes = points.double().unsqueeze(1).expand(-1, 3, -1)
    plain = tc.make_routing(routing, iterations=4, **sized(routing, 3, 2)).double().trace(votes, couplings=start)
    trace = trace_clusters(points, routing, 3, 4)
    assert len(trace.steps) == 4
    for mine, step in zip(trace.steps, plain, strict=True):
        assert torch.allclose(mine.centers, step.routed.poses)
        assert torch.allclose(mine.couplings, step.routed.couplings)
        assert torch.allclose(mine.activations, step.routed.activations)
        assert mine.objective == (None if step.objective is None else pytest.approx(step.objective.item()))


@pytest.mark.parametrize("options", [{"covariance": word} for word in ("full", "diagonal", "spherical", "fixed")])
def test_covariances_are_those_that_the_gaussian_fitted(monkeypatch, options):
    fitted = []
    update = Gaussian.update

    def spy(self, *given, origin=None):
        clusters = update(self, *given, origin=origin)
        if origin is not None:  # of the loop itself
            fitted.append(clusters.covariances)
        return clusters

    monkeypatch.setattr(Gaussian, "update", spy)
    trace = trace_clusters(make_points("ellipses").points, "gaussian", 3, 4, **options)
    assert len(fitted) == 4
    for step, own in zip(trace.steps, fitted, strict=True):
        assert torch.allclose(step.covariances, own if own.ndim == 3 else torch.diag_embed(own), atol=1e-6)


def test_covariances_are_weighted_moments_with_the_weights_of_the_points():
    drawn = make_points("ellipses")
    weights = torch.rand(len(drawn.points))
    floors = {"variance_floor": 0.0, "mass_floor": 0.0}
    trace = trace_clusters(drawn.points, "gaussian", 3, 3, activations=weights, covariance="full", **floors)
    for step in trace.steps:
        for parent in range(3):
            shares = (step.couplings[:, parent] * weights).numpy()
            expected = np.cov(drawn.points.double().T, aweights=shares, bias=True)
            np.testing.assert_allclose(step.covariances[parent], expected, rtol=1e-6)


def test_em_keeps_damped_means_in_its_covariances():
    points = make_points("overlap").points + 5  # the mean before the first is zero, wherever the points are
    trace = trace_clusters(points, "em", 2, 3, damping=0.5, mass_floor=0.0, variance_floor=0.0)
    first = (trace.steps[0].couplings.T @ trace.points) / trace.steps[0].couplings.sum(0)[:, None]
    assert torch.allclose(trace.steps[0].centers, first / 2)
    for step in trace.steps:
        for parent in range(2):
            share = step.couplings[:, parent] / step.couplings[:, parent].sum()
            around = (share * (trace.points[:, 0] - step.centers[parent, 0]).square()).sum()
            assert step.covariances[parent, 0, 0] == pytest.approx(around.item(), rel=1e-6)


def test_routings_that_are_no_mixtures_have_no_covariances():
    trace = trace_clusters(SQUARE, "dynamic", 2)
    assert all(step.covariances is None for step in trace.steps)
    assert trace.directional


def test_even_start_keeps_all_parents_equal_and_a_leaning_one_does_not():
    points = make_points("blobs").points
    even = trace_clusters(points, "kmeans", 3, 6, start=torch.full((len(points), 3), 1 / 3))
    centers = even.steps[-1].centers
    assert torch.allclose(centers, centers[:1].expand(3, -1))
    assert trace_clusters(points, "kmeans", 3, 6).steps[-1].centers.std(0).min() > 1


def test_leaning_couplings_sum_to_one_and_follow_the_seed():
    points = make_points("blobs").points
    couplings = leaning_couplings(points, 3, seed=1)
    assert torch.allclose(couplings.sum(1), torch.ones(len(points)))
    assert torch.equal(couplings, leaning_couplings(points, 3, seed=1))
    assert not torch.equal(couplings, leaning_couplings(points, 3, seed=2))
    # Some points are nearest to themselves: those that it leans towards, a different one for each parent.
    assert len(set(couplings.argmax(0).tolist())) == 3


def test_leaning_couplings_of_equal_points_are_even():
    assert torch.allclose(leaning_couplings(torch.ones(5, 2), 2), torch.full((5, 2), 0.5))


def test_purity_counts_the_largest_group_of_each_cluster():
    couplings = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7], [0.0, 1.0]])
    assert purity(couplings, torch.tensor([0, 0, 1, 1, 1])) == pytest.approx(4 / 5)
    assert purity(torch.ones(5, 1), torch.tensor([0, 0, 1, 1, 1])) == pytest.approx(3 / 5)


def test_trace_survives_json():
    trace = trace_clusters(SQUARE, "gaussian", 2, 3, start=LEAN, covariance="full")
    read = json.loads(json.dumps(trace.as_dict()))
    assert read["routing"] == "gaussian"
    assert read["options"] == {"covariance": "full"}
    assert read["points"] == SQUARE.tolist()
    assert read["steps"][0]["couplings"] == LEAN.tolist()
    assert np.shape(read["steps"][2]["covariances"]) == (2, 2, 2)


@pytest.mark.parametrize("name", POINTS)
def test_points_are_the_same_for_the_same_seed(name):
    drawn = make_points(name, 3)
    assert torch.equal(drawn.points, make_points(name, 3).points)
    assert not torch.equal(drawn.points, make_points(name, 4).points)
    assert len(drawn.points) == len(drawn.groups)
    assert drawn.parents == (2 if name == "overlap" else 3)


@pytest.mark.parametrize("seed", [0, 1, 4])
def test_full_covariance_finds_the_ellipses_and_distance_does_not(seed):
    assert ended("ellipses", "gaussian", seed, covariance="full") > 0.95
    assert ended("ellipses", "kmeans", seed) < 0.9
    assert ended("ellipses", "gaussian", seed, covariance="spherical") < 0.9


@pytest.mark.parametrize("seed", [0, 1, 4])
def test_inner_products_find_the_directions_and_distance_does_not(seed):
    for routing, options in (("dynamic", {}), ("entropy", {}), ("kmeans", {"distance": "inner"})):
        assert ended("directions", routing, seed, **options) > 0.95
    assert ended("directions", "kmeans", seed) < 0.95


def test_overlapping_groups_are_shared():
    drawn = make_points("overlap")
    trace = trace_clusters(drawn.points, "gaussian", 2, 10, covariance="spherical")
    between = drawn.points[:, 0].abs() < 0.4
    surest = trace.steps[-1].couplings.amax(1)
    assert surest[between].mean() < 0.75
    assert surest[~between].mean() > 0.85


ITERATES = "a routing that iterates (dynamic, kmeans, entropy, gaussian, em, heinsen, variational, kde, inverted)"


@pytest.mark.parametrize(
    ("given", "expected", "got"),
    [
        ({"routing": "attention"}, ITERATES, "'attention', which does not iterate. Choose one of these as "),
        ({"routing": "kmean"}, ITERATES, "'kmean'. Choose one of these as routing."),
        ({"parents": 5}, "at least 5 points [i 2], one for each parent", "(4, 2). Give more points, or fewer parents."),
        ({"start": torch.ones(4, 3)}, "start [i j] = (4, 2)", "(4, 3). Give a coupling for each pair."),
    ],
)
def test_mistakes(given, expected, got):
    sentence = re.escape(f"trace_clusters: expected {expected}, got {got}")
    with pytest.raises(InputError, match=sentence):
        trace_clusters(**{"points": SQUARE, "routing": "kmeans", "parents": 2, **given})
