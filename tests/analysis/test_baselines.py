"""Classifiers that take seconds: what a network must beat."""

import math
from types import SimpleNamespace

import pytest
import torch

from torchcaps.analysis.baselines import ANGLES, baselines, picture_features, random_forest, support_vectors
from torchcaps.data import ImageSet, Splits, load_dataset
from torchcaps.train import summary
from torchcaps.train.summary import baseline_lines


def stripes(degrees, count=1):
    """Pictures whose brightness changes along this direction."""
    y, x = torch.meshgrid(torch.arange(32.0), torch.arange(32.0), indexing="ij")
    along = x * math.cos(math.radians(degrees)) + y * math.sin(math.radians(degrees))
    return (127 + 120 * (along / 3).sin()).byte().expand(count, 1, 32, 32)


@pytest.mark.parametrize(("degrees", "place"), [(10, 0), (50, 2), (90, 4), (150, 7)])
def test_gradients_find_the_direction_of_edges(degrees, place):
    images = ImageSet(stripes(degrees), torch.zeros(1, dtype=torch.long), ("a",))
    gradients = picture_features(images)[0, : 9 * 4 * ANGLES].view(9, ANGLES, 4).sum((0, 2))
    assert gradients.argmax() == place


def test_colors_are_shares_of_each_quarter():
    image = torch.zeros(1, 3, 32, 32, dtype=torch.uint8)
    image[:, 0, :16, :16] = 255  # red at the upper left
    colors = picture_features(ImageSet(image, torch.zeros(1, dtype=torch.long), ("a",)))[0, 9 * 4 * ANGLES :]
    red, green, blue = colors.view(3, 8, 2, 2)
    assert red[7, 0, 0] == 1
    assert red[0].sum() == 3
    assert green[0].sum() == blue[0].sum() == 4


def test_baselines_learn_real_digits():
    parts = load_dataset("mnist-5k")
    few = parts.train.take(torch.arange(1000))
    assert support_vectors(few, parts.validation).accuracy > 0.93
    assert random_forest(few, parts.validation).accuracy > 0.9
    assert baselines(load_dataset("multimnist-5k").train, parts.validation) == {}  # two digits in each


def test_training_ends_with_a_sentence_only_if_a_baseline_is_as_good(monkeypatch):
    parts = load_dataset("mnist-5k")
    few = Splits(parts.train.take(torch.arange(300)), parts.validation, None)
    run = SimpleNamespace(load_model=lambda: None, folder="runs/mine")
    monkeypatch.setattr(summary, "evaluate", lambda model, data: SimpleNamespace(accuracy=0.5))
    _, line = baseline_lines(run, few)
    assert line.startswith("a support vector machine on edges and colors, which takes seconds, is right about 9")
    assert line.endswith("this network about 50.0%: compare them with torchcaps evaluate runs/mine --baseline")
    monkeypatch.setattr(summary, "evaluate", lambda model, data: SimpleNamespace(accuracy=0.999))
    assert baseline_lines(run, few) == []
    assert baseline_lines(run, Splits(few.train, parts.validation.take(torch.arange(3)), None)) == []
