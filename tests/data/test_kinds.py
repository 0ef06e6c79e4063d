"""Photographs and drawings are told apart by their pixels, and get recipes that suit them."""

import pytest
import torch

from torchcaps.data import ImageSet, load_dataset
from torchcaps.data.kinds import picture_kind, tells_left_from_right
from torchcaps.runs.config import TrainConfig
from torchcaps.runs.recipes import data_facts, resolve
from torchcaps.train.summary import recipe_summary

PHOTO = ("stem=photo", "squash=exponential")


@pytest.fixture(scope="module")
def photographs():
    """Windows of 32 x 32 pixels of the two photographs that come with scikit-learn."""
    from sklearn.datasets import load_sample_images

    photos = [torch.from_numpy(photo.copy()).movedim(-1, 0) for photo in load_sample_images().images]
    windows = [p.unfold(1, 32, 32).unfold(2, 32, 32).flatten(1, 2).movedim(1, 0) for p in photos]
    labels = torch.cat([torch.full((len(part),), number) for number, part in enumerate(windows)])
    return ImageSet(torch.cat(windows), labels, ("temple", "flower"))


def test_photographs_and_digits_are_told_apart(photographs):
    assert picture_kind(photographs) == "photographs"
    gray = ImageSet(photographs.images.float().mean(1, keepdim=True).byte(), photographs.labels, photographs.classes)
    assert picture_kind(gray) == "photographs"
    assert picture_kind(load_dataset("mnist-5k").train) == "drawings"
    assert picture_kind(load_dataset("digits").train) == "drawings"  # 8 x 8 pixels


def test_generated_examples_and_no_pictures_have_no_kind(photographs):
    assert picture_kind(photographs.take(torch.tensor([], dtype=torch.long))) is None
    assert picture_kind(load_dataset("multimnist-5k").train) is None


def test_photographs_get_their_own_recipe_and_options_override_it(photographs):
    facts = data_facts(photographs)
    chosen = resolve(TrainConfig("somewhere"), **facts)
    assert (chosen.augment, chosen.loss, chosen.option) == ("mirror", "cross-entropy", PHOTO)
    assert chosen.routing == "dynamic"
    own = resolve(TrainConfig("somewhere", augment="none", loss="margin", option=("stem=paper",)), **facts)
    assert (own.augment, own.loss, own.option) == ("none", "margin", ("stem=paper", PHOTO[1]))
    assert PHOTO[1] not in resolve(TrainConfig("somewhere", routing="em"), **facts).option  # it has none
    paper = resolve(TrainConfig("somewhere", preset="paper"), **facts)
    assert (paper.loss, paper.option) == (None, ())
    assert resolve(TrainConfig("somewhere", model="cnn-small"), **facts).augment == "mirror"
    digits = resolve(TrainConfig("somewhere"), **data_facts(load_dataset("mnist-5k").train))
    assert (digits.augment, digits.loss, digits.option) == ("affine", None, ())


def test_a_line_says_which_recipe_was_chosen(photographs):
    class Parts:
        train = photographs

    config = resolve(TrainConfig("somewhere"), **data_facts(photographs))
    line = recipe_summary(Parts, config)
    assert line.startswith(
        "the pictures look like photographs: model efficient, routing dynamic, stem=photo, squash=exponential, "
        "augment mirror, loss cross-entropy"
    )


def test_what_is_on_the_same_side_in_all_classes_may_be_mirrored():
    """Such as shoes that all point to the left. The answer needs what was learned from mirror images."""
    torch.manual_seed(0)
    images = torch.randint(0, 60, (200, 1, 32, 32)).byte()
    labels = torch.arange(200) % 2
    images[labels == 0, :, 4:10, 22:] += 150  # above, on the right
    images[labels == 1, :, 22:28, 22:] += 150
    assert not tells_left_from_right(ImageSet(images, labels, ("above", "below")))
    images[labels == 1] = images[labels == 0].flip(-1)
    assert tells_left_from_right(ImageSet(images, labels, ("right", "left")))


def test_classes_that_a_mirror_exchanges_are_not_mirrored(photographs):
    assert not tells_left_from_right(photographs)
    ramp = torch.linspace(0, 100, 32).byte()
    bright = photographs.images // 2 + torch.where(photographs.labels[:, None, None, None] == 0, ramp, ramp.flip(0))
    arrows = ImageSet(bright, photographs.labels, ("left", "right"))
    assert picture_kind(arrows) == "photographs"
    assert tells_left_from_right(arrows)
    assert resolve(TrainConfig("somewhere"), **data_facts(arrows)).augment == "affine"
    few = photographs.take(torch.tensor([0]))
    assert not tells_left_from_right(few)
