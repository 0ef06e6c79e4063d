"""Jumbled parts: where pixels go is known by hand."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.analysis.networks import Linear
from torchcaps import create_model
from torchcaps._core.errors import InputError
from torchcaps.analysis.evaluate import Evaluation, wilson_interval
from torchcaps.analysis.images import InMemoryImages, some, varied
from torchcaps.analysis.jumble import (
    JUMBLES,
    SHUFFLES,
    JumbleResult,
    jumble,
    jumble_test,
    jumbled_sets,
    mirror_parts,
    no_pairs,
    other_partners,
    shuffle_parts,
    side_by_side,
    stand_alone,
    sureness,
)
from torchcaps.data import PairSet, load_dataset


def numbered(height, width, count=1):
    """Images whose pixels are 0, 1, 2, ... divided by their number."""
    return (torch.arange(float(height * width)) / (height * width)).view(1, 1, height, width).repeat(count, 1, 1, 1)


# Parts


def test_two_halves_change_places():
    image = torch.tensor([[[[1.0, 2.0, 3.0, 4.0]]]])
    assert shuffle_parts(image, 1, 2).flatten().tolist() == [3, 4, 1, 2]


def test_what_cannot_be_divided_stays_at_the_edges():
    image = torch.arange(1.0, 6.0).view(1, 1, 1, 5)
    assert shuffle_parts(image, 1, 2).flatten().tolist() == [3, 4, 1, 2, 5]
    image = torch.arange(1.0, 9.0).view(1, 1, 1, 8)
    assert shuffle_parts(image, 1, 3)[0, 0, 0, [0, 7]].tolist() == [1, 8]


def test_parts_of_a_grid_are_mirrored_in_their_places():
    image = torch.tensor([[[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]]])
    assert mirror_parts(image, 2, 2).flatten().tolist() == [2, 1, 4, 3, 6, 5, 8, 7]
    assert torch.equal(mirror_parts(image, 1, 1), image.flip(-1))


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 5))
def test_shuffled_parts_are_all_there_whole_and_none_where_it_was(rows, columns, seed):
    if rows * columns < 2:
        return
    high, wide = 3, 2
    images = numbered(rows * high, columns * wide, 3)
    moved = shuffle_parts(images, rows, columns, seed)
    places = [(row * high, column * wide) for row in range(rows) for column in range(columns)]
    for image, changed in zip(images, moved, strict=True):
        before, after = (
            [picture[0, y : y + high, x : x + wide].flatten().tolist() for y, x in places]
            for picture in (image, changed)
        )
        assert sorted(before) == sorted(after)
        assert all(old != new for old, new in zip(before, after, strict=True))


def test_the_seed_decides_and_images_differ():
    images = numbered(12, 12, 8)
    first, again, other = (jumble(images, "3x3", seed) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first[0], first[1])


@pytest.mark.parametrize("kind", JUMBLES)
def test_every_way_keeps_the_pixels_and_moves_some(kind):
    images = torch.rand(2, 3, 14, 13)
    changed = jumble(images, kind)
    assert not torch.equal(changed, images)
    assert torch.equal(changed.flatten(2).sort().values, images.flatten(2).sort().values)


# Two things side by side


def test_things_are_cut_out_and_stand_in_their_halves():
    left, right = torch.zeros(1, 1, 6, 8), torch.zeros(1, 1, 6, 8)
    left[0, 0, 0:2, 5:7] = 1.0  # two by two pixels, fits a half
    right[0, 0, 1:3, 1:3] = 0.5
    both = side_by_side(left, right)[0, 0]
    expected = torch.zeros(6, 8)
    expected[2:4, 1:3] = 1.0
    expected[2:4, 5:7] = 0.5
    assert torch.equal(both, expected)


def test_wide_things_shrink_to_their_half_and_keep_their_shape():
    wide = torch.zeros(1, 1, 10, 10)
    wide[0, 0, 3:7, 1:9] = 1.0  # 4 by 8, must become 2 or 3 by 5
    both = side_by_side(wide, wide)[0, 0]
    ink = both > 0.5
    assert ink.any(0).tolist() == [True] * 10
    assert int(ink.any(1).sum()) == 2


def test_a_bright_background_stays_bright_and_an_empty_image_empty():
    paper = torch.ones(1, 1, 8, 8)
    drawn = paper.clone()
    drawn[0, 0, 3:5, 3:5] = 0
    both = side_by_side(drawn, drawn)
    assert int((both == 0).sum()) == 8
    assert torch.equal(side_by_side(torch.zeros(1, 1, 4, 4), torch.zeros(1, 1, 4, 4)), torch.zeros(1, 1, 4, 4))


def test_things_stand_out_as_they_did_before_another_background():
    dark, light = torch.full((1, 1, 4, 8), 0.2), torch.full((1, 1, 4, 8), 0.6)
    dark[0, 0, 1:3, 1:3] += 0.3
    light[0, 0, 1:3, 1:3] -= 0.3
    both = side_by_side(dark, light)[0, 0]
    expected = torch.full((4, 8), 0.4)
    expected[1:3, 1:3] = 0.7
    expected[1:3, 5:7] = 0.1
    torch.testing.assert_close(both, expected)


def test_things_stand_alone_where_the_border_is_even():
    paper = torch.ones(4, 3, 12, 12)
    paper[:, :, 3:9, 3:9] = torch.rand(4, 3, 6, 6)
    photos = torch.rand(4, 3, 12, 12)
    assert stand_alone(paper)
    assert not stand_alone(photos)
    assert stand_alone(torch.cat([paper, photos[:3]]))  # most of them
    classes = ("a", "b", "c")
    for images, why in ((paper, ""), (photos, "the objects have no uniform background")):
        data = InMemoryImages(images, torch.tensor([0, 1, 2, 0]), classes)
        assert no_pairs(data) == why
        assert ("side by side" in jumbled_sets(data)) == (not why)
    assert (
        no_pairs(InMemoryImages(paper, torch.tensor([0, 1, 0, 1]), classes[:2]))
        == "with two classes, naming both is trivial"
    )


def test_partners_are_of_other_classes():
    labels = torch.arange(4).repeat(10)
    partners = other_partners(labels, seed=2)
    assert not (labels[partners] == labels).any()
    assert len(set(partners.tolist())) > 10
    assert torch.equal(partners, other_partners(labels, seed=2))
    with pytest.raises(InputError, match="side by side: expected images of two classes or more, got one"):
        other_partners(torch.zeros(5, dtype=torch.long))


def test_all_images_of_other_classes_are_as_likely_partners():
    labels = torch.tensor([2, 0, 2, 0, 0, 4])  # of unequal classes, some of them empty
    drawn = torch.stack([other_partners(labels, seed) for seed in range(2000)])
    for row, label in enumerate(labels.tolist()):
        counts = torch.bincount(drawn[:, row], minlength=6)
        others = labels != label
        assert counts[~others].sum() == 0
        expected = 2000 / int(others.sum())
        assert (counts[others] - expected).abs().max() < 5 * expected**0.5


def test_partners_are_found_for_many_images():
    labels = torch.arange(200_000) % 7  # all pairs of these would not fit in memory
    assert not (labels[other_partners(labels)] == labels).any()


# What a network says


def test_results_are_those_of_hand_made_activations():
    single = JumbleResult(
        "2x2", Evaluation(("a", "b"), torch.tensor([[0], [0]]), torch.tensor([[0.9, 0.2], [0.3, 0.6]]), None)
    )
    torch.testing.assert_close(single.confidence, torch.tensor([0.9, 0.6]))
    torch.testing.assert_close(single.true_confidence, torch.tensor([0.9, 0.3]))
    assert single.accuracy == 0.5
    assert single.interval == wilson_interval(1, 2)
    pair = Evaluation(
        ("a", "b", "c"), torch.tensor([[0, 1], [2, 0]]), torch.tensor([[0.9, 0.5, 0.1], [0.8, 0.4, 0.3]]), None
    )
    both = JumbleResult("side by side", pair)
    torch.testing.assert_close(both.confidence, torch.tensor([0.5, 0.4]))
    torch.testing.assert_close(both.true_confidence, torch.tensor([0.5, 0.3]))
    assert both.accuracy == 0.5


def test_a_network_that_counts_ink_stays_as_sure():
    """Its answer is the sum of all pixels, wherever they are; one that looks at the left half does not."""
    images = torch.zeros(6, 1, 4, 4)
    images[:, :, :, :2] = 1.0
    data = InMemoryImages(images, torch.tensor([0, 0, 0, 1, 1, 1]), ("a", "b"))
    counts = Linear(torch.stack([torch.ones(16), -torch.ones(16)]), (1, 4, 4), "length")
    sets = jumbled_sets(data)
    assert sureness(jumble_test(counts, sets)).share == pytest.approx(1)
    half = torch.cat([torch.ones(4, 2), -torch.ones(4, 2)], 1).flatten()
    looks = Linear(torch.stack([half, half]), (1, 4, 4), "length", bias=torch.tensor([-4.0, -4.0]))
    results = jumble_test(looks, sets)
    assert float(results["whole"].confidence.mean()) > 0.98
    assert sureness(results).share < 0.6
    shuffled = torch.cat([results[kind].confidence for kind in SHUFFLES]).mean()
    assert sureness(results).share == pytest.approx(float(shuffled / results["whole"].confidence.mean()))


def confident(values, kind="whole"):
    active = torch.stack([values, torch.zeros_like(values)], -1)
    return JumbleResult(kind, Evaluation(("a", "b"), torch.zeros(len(values), 1, dtype=torch.long), active, None))


def test_the_interval_of_sureness_holds_the_truth_as_often_as_it_says():
    hits = 0
    for _ in range(400):
        whole = 0.5 + 0.4 * torch.rand(40)
        shuffled = {kind: whole * (0.5 + 0.4 * torch.rand(40)) for kind in SHUFFLES}  # seven tenths on average
        found = sureness({"whole": confident(whole), **{kind: confident(v, kind) for kind, v in shuffled.items()}})
        hits += found.interval[0] <= 0.7 <= found.interval[1]
    assert 0.91 <= hits / 400 <= 0.98
    one = {kind: confident(torch.tensor([0.5]), kind) for kind in ("whole", *SHUFFLES)}
    assert (sureness(one).share, sureness(one).interval) == (1, None)


def test_digits_are_jumbled_in_every_way():
    data = some(load_dataset("digits").test, 12)
    sets = jumbled_sets(data, seed=1)
    assert list(sets) == ["whole", *JUMBLES, "side by side"]
    assert sets["side by side"].labels.shape == (12, 2)
    assert all(shown.images.shape == data.images.shape for shown in sets.values())
    torch.manual_seed(0)
    results = jumble_test(create_model("efficient", image_shape=(1, 8, 8), classes=10, capsules=8), sets)
    assert [result.evaluation.count for result in results.values()] == [12] * 6


def test_examples_of_all_classes_in_turn():
    data = InMemoryImages(torch.arange(6.0).view(6, 1, 1, 1), torch.tensor([0, 0, 0, 1, 2, 1]), ("a", "b", "c"))
    assert varied(data, 5).tolist() == [0, 3, 4, 1, 5]
    assert data.take(varied(data, 5)).labels.tolist() == [0, 1, 2, 0, 1]


# Mistakes


def test_pairs_are_refused():
    pairs = some(PairSet(load_dataset("digits").test), 4)
    with pytest.raises(InputError, match="jumble: expected images that show one object, got pairs"):
        jumbled_sets(pairs)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (
            lambda images: jumble(images, "5x5"),
            "expected kind to be one of '2x2', '3x3', 'rows', 'mirrored', got '5x5'",
        ),
        (lambda images: shuffle_parts(images, 1, 1), "expected two parts or more, got 1 x 1"),
        (lambda images: shuffle_parts(images, 9, 1), "expected at most 4 x 4 parts, got 9 x 1"),
    ],
)
def test_mistakes_are_told(call, expected):
    with pytest.raises(InputError, match=expected):
        call(torch.rand(1, 1, 4, 4))
