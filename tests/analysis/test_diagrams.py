"""What the diagrams are drawn from: numbers of weights, shapes of a text, views of a thing."""

import pytest
import torch

import torchcaps as tc
from torchcaps._core.errors import InputError
from torchcaps.analysis.textshapes import text_shapes
from torchcaps.analysis.views import view_grid
from torchcaps.analysis.weights import weight_counts
from torchcaps.data import ImageSet


def test_weights_are_one_matrix_for_each_pair_or_for_each_parent():
    full, shared = weight_counts(1152, 10, 8, 16)
    assert (full.votes, full.matrices, full.parameters) == ("full", 11_520, 1_474_560)
    assert (shared.votes, shared.matrices, shared.parameters) == ("shared", 10, 1_280)


def test_shapes_of_a_text():
    model = tc.create_model("text-b", vocabulary=20, classes=2).train()
    found = text_shapes(model, torch.arange(1, 11).unsqueeze(0), tuple("abcdefghij"))
    assert model.training
    assert found.noise
    assert found.vectors.shape == (10, 50)
    assert found.answer.shape == (2, 16)
    assert [[layer.name for layer in branch] for branch in found.branches] == [
        [f"{n}-grams", "primary capsules", "convolutional capsules", "class capsules"] for n in (3, 4, 5)
    ]
    # n-grams of 10 words, windows of three of them, two classes and one for noise
    assert [[layer.shape for layer in branch] for branch in found.branches] == [
        [(11 - n, 32), (11 - n, 32, 16), (9 - n, 16, 16), (3, 16)] for n in (3, 4, 5)
    ]


def test_shapes_without_a_window():
    model = tc.create_model("text-a", vocabulary=20, classes=4, window=0, noise=False)
    (branch,) = text_shapes(model, torch.arange(1, 6).unsqueeze(0), tuple("abcde")).branches
    assert [layer.shape for layer in branch] == [(3, 32), (3, 32, 16), (4, 16)]


def test_shapes_are_of_capsules_only():
    model = tc.create_model("textcnn", vocabulary=20, classes=2)
    sentence = "text_shapes: expected a network of capsules for texts, got TextCNN. Choose text, text-a or text-b."
    with pytest.raises(InputError, match=sentence):
        text_shapes(model, torch.ones(1, 5, dtype=torch.long), tuple("abcde"))


def seen_from(views):
    """Images of one gray each, by (class, instance, elevation, azimuth)."""
    count = len(views)
    images = (torch.arange(count) * 10).byte().view(count, 1, 1, 1).expand(count, 1, 4, 4).contiguous()
    kinds, instance, elevation, azimuth = torch.tensor(views).T
    known = {"instance": instance, "elevation": elevation, "azimuth": azimuth}
    return ImageSet(images, kinds, ("cube", "cone"), known)


VIEWS = seen_from(
    [(0, 5, 30, 0), (1, 5, 30, 0), (1, 5, 30, 180), (1, 5, 50, 0), (1, 5, 50, 0), (1, 6, 50, 90), (1, 6, 50, 340)]
)


def test_views_are_laid_out_by_angle():
    grid = view_grid(VIEWS, "cone")
    assert grid.name == "cone 5"
    assert grid.elevations == (30, 50)
    assert grid.azimuths == (0, 180)
    assert grid.seen.tolist() == [[True, True], [True, False]]
    assert grid.familiar.tolist() == [[True, False], [True, False]]  # within 60 degrees of the front
    # The grays tell which image went where; of two from one place, the first.
    assert torch.allclose(grid.images[:, :, 0, 0, 0] * 255, torch.tensor([[10.0, 20.0], [30.0, 0.0]]))


def test_views_of_another_instance_and_split():
    grid = view_grid(VIEWS, "cone", 6)
    assert grid.azimuths == (90, 340)
    assert grid.familiar.tolist() == [[False, True]]
    lowest = view_grid(VIEWS, "cone", 5, by="elevation")
    assert lowest.familiar.tolist() == [[True, True], [False, False]]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: view_grid(VIEWS, "ball"), "view_grid: expected class to be one of 'cube', 'cone', got 'ball'"),
        (lambda: view_grid(VIEWS, "cone", 1), "view_grid: expected instance to be one of 5, 6, got 1"),
        (
            lambda: view_grid(ImageSet(VIEWS.images, VIEWS.labels, VIEWS.classes)),
            "view_grid: expected the instance, elevation and azimuth of each image, got data without views. Use data ",
        ),
    ],
)
def test_mistakes(call, said):
    with pytest.raises(InputError, match=said):
        call()
