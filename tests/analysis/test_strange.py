"""Detectors of strange images: curves against hand-made numbers and scikit-learn."""

import math

import pytest
import torch

from tests.analysis.networks import Linear
from torchcaps import create_model
from torchcaps._core.errors import InputError
from torchcaps.analysis.evaluate import Evaluation
from torchcaps.analysis.images import InMemoryImages, some
from torchcaps.analysis.strange import (
    MADE,
    area_interval,
    as_shown,
    detect,
    roc,
    strange_images,
    strange_test,
    strangeness,
)
from torchcaps.data import load_dataset


def test_curve_of_hand_made_numbers():
    curve = roc(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([3.0, 5.0]))
    # Thresholds 5, 4, 3, 2, 1.
    assert curve.found.tolist() == [0, 0.5, 0.5, 1, 1, 1]
    torch.testing.assert_close(curve.alarms, torch.tensor([0, 0, 1, 1, 2, 3]).double() / 3)
    assert curve.area == pytest.approx(5 / 6)  # five of six pairs are in order
    assert curve.found_at(0.05) == 0.5
    assert curve.found_at(0.34) == 1


def test_equal_numbers_are_a_guess():
    curve = roc(torch.ones(4), torch.ones(3))
    assert curve.area == 0.5
    assert curve.found_at(0.05) == 0


def test_area_is_the_share_of_pairs_in_order():
    known, strange = torch.randn(30), torch.randn(20) + 0.5
    pairs = (strange.unsqueeze(1) > known).double().mean()
    assert roc(known, strange).area == pytest.approx(float(pairs))


@pytest.mark.parametrize(("known", "strange", "apart"), [(30, 30, 1.0), (20, 60, 0.3), (15, 15, 2.0)])
def test_the_interval_of_an_area_holds_the_truth_as_often_as_it_says(known, strange, apart):
    truth = (1 + math.erf(apart / 2)) / 2  # of two normal distributions that far apart
    curves = [roc(torch.randn(known), torch.randn(strange) + apart) for _ in range(400)]
    hits = sum(curve.interval[0] <= truth <= curve.interval[1] for curve in curves)
    assert 0.92 <= hits / 400 <= 0.99


def test_the_ends_of_an_interval_solve_the_equation_of_hanley_and_mcneil():
    for area, known, strange in ((0.8, 50, 50), (0.6, 20, 30), (1.0, 12, 12), (0.0, 12, 12)):
        low, high = area_interval(area, known, strange)
        assert 0 <= low <= area <= high <= 1
        assert high - low > 0.05
        for end in {low, high} - {0.0, 1.0}:
            first, second = end / (2 - end) - end**2, 2 * end**2 / (1 + end) - end**2
            half = (known + strange) / 2 - 1
            deviation = math.sqrt((end * (1 - end) + half * (first + second)) / (known * strange))
            assert abs(area - end) == pytest.approx(1.959964 * deviation, rel=1e-5)


@pytest.mark.parametrize("digits", [0, 1, 5])
def test_curve_equals_that_of_scikit_learn(digits):
    metrics = pytest.importorskip("sklearn.metrics")
    known, strange = torch.randn(200).round(decimals=digits), (torch.randn(150) + 1).round(decimals=digits)
    curve = roc(known, strange)
    truth = [0] * 200 + [1] * 150
    values = torch.cat([known, strange]).double().numpy()
    alarms, found, _ = metrics.roc_curve(truth, values, drop_intermediate=False)
    torch.testing.assert_close(curve.alarms, torch.from_numpy(alarms))
    torch.testing.assert_close(curve.found, torch.from_numpy(found))
    assert curve.area == pytest.approx(metrics.roc_auc_score(truth, values))
    assert curve.found_at(0.05) == pytest.approx(found[alarms <= 0.05].max())


def evaluation(activations, reconstruction_error=None):
    activations = torch.tensor(activations)
    return Evaluation(("a", "b"), torch.zeros(len(activations), 1, dtype=torch.long), activations, reconstruction_error)


def test_detectors_are_the_reconstruction_error_and_missing_confidence():
    known = evaluation([[0.9, 0.1], [0.8, 0.3]], torch.tensor([0.1, 0.2]))
    strange = evaluation([[0.85, 0.1], [0.2, 0.3]], torch.tensor([0.3, 0.4]))
    torch.testing.assert_close(strangeness(strange)["confidence"], torch.tensor([0.15, 0.7]))
    found = detect(known, strange)
    assert list(found) == ["reconstruction", "confidence"]
    assert (found["reconstruction"].area, found["confidence"].area) == (1, 0.75)
    assert list(detect(evaluation([[0.9, 0.1]]), evaluation([[0.2, 0.1]]))) == ["confidence"]


def test_a_network_notices_what_it_cannot_draw():
    """The decoder draws gray, so that what is further from gray is stranger."""
    torch.manual_seed(0)
    model = create_model("efficient", image_shape=(1, 16, 16), classes=2)
    for weight in model.decoder.parameters():
        torch.nn.init.zeros_(weight)
    gray = InMemoryImages(torch.full((4, 1, 16, 16), 0.5), torch.tensor([0, 1, 0, 1]), ("a", "b"))
    white = InMemoryImages(torch.ones(3, 1, 16, 16), torch.tensor([0, 1, 0]), ("a", "b"))
    assert strange_test(model, gray, {"white": white})["white"]["reconstruction"].area == 1


@pytest.mark.parametrize("kind", MADE)
def test_strange_images_are_made_from_known_ones(kind):
    data = some(load_dataset("digits").test, 60)
    model = Linear(torch.randn(10, 64), (1, 8, 8))
    strange = strange_images(model, data, kind, seed=1)
    assert strange.images.shape == data.images.shape
    assert 0 <= float(strange.images.min()) <= float(strange.images.max()) <= 1
    assert not torch.equal(strange.images, data.images)
    assert torch.equal(strange.images, strange_images(model, data, kind, seed=1).images)
    if kind == "attacked":
        assert float((strange.images - data.images).abs().max()) == pytest.approx(0.2)


def test_scattered_changes_are_those_of_the_attack_at_other_pixels():
    data = InMemoryImages(
        torch.full((5, 1, 8, 8), 0.5), torch.tensor([0, 1, 0, 1, 0]), ("a", "b")
    )  # nothing is cut off at 0 or 1
    model = Linear(torch.randn(2, 64), (1, 8, 8))
    attacked, scattered = (
        (strange_images(model, data, kind).images - data.images).flatten(1) for kind in ("attacked", "scattered")
    )
    torch.testing.assert_close(attacked.sort().values, scattered.sort().values)
    assert not torch.equal(attacked, scattered)


def test_scattered_changes_are_as_large_as_those_of_the_attack_at_the_ends_too():
    data = some(load_dataset("digits").test, 20)  # most pixels are 0 or 1
    model = Linear(torch.randn(10, 64), (1, 8, 8))
    attacked, scattered = (strange_images(model, data, kind).images for kind in ("attacked", "scattered"))
    sizes = [(images - data.images).abs().flatten(1).sort().values for images in (attacked, scattered)]
    torch.testing.assert_close(*sizes)
    assert 0 <= float(scattered.min()) <= float(scattered.max()) <= 1


def test_other_images_take_the_shape_of_the_known_ones():
    data = InMemoryImages(torch.rand(2, 3, 6, 5), torch.tensor([[0, 1], [1, 0]]), ("a", "b"))
    gray = torch.rand(4, 1, 12, 12)
    shown = as_shown(gray, data)
    assert shown.images.shape == (4, 3, 6, 5)
    assert torch.equal(shown.images[:, 0], shown.images[:, 2])
    assert shown.labels.shape == (4, 2)
    back = as_shown(torch.rand(1, 3, 12, 12), InMemoryImages(gray, torch.zeros(4, dtype=torch.long), ("a", "b")))
    assert back.images.shape == (1, 1, 12, 12)


def test_mistakes_are_told():
    with pytest.raises(InputError, match="roc: expected known and strange images, got 0 and 2"):
        roc(torch.empty(0), torch.ones(2))
    with pytest.raises(
        InputError, match="expected kind to be one of 'noise', 'jumbled', 'attacked', 'scattered', got 'odd'"
    ):
        strange_images(
            Linear(torch.ones(2, 4), (1, 2, 2)),
            InMemoryImages(torch.rand(1, 1, 2, 2), torch.tensor([0]), ("a", "b")),
            "odd",
        )
    with pytest.raises(InputError, match="expected alarms between 0 and 1, got 2"):
        roc(torch.ones(2), torch.ones(2)).found_at(2)
