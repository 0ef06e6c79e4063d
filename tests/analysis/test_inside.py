"""What capsules draw and what their poses mean, on models made for known answers."""

import pytest
import torch

from torchcaps._core.errors import InputError
from torchcaps._core.types import Capsules
from torchcaps.analysis.overlap import presence, take_apart
from torchcaps.analysis.perturb import FACTORS, Meanings, dimension_meanings, perturb, vary, within
from torchcaps.analysis.reconstruct import draw_cases, draw_classes, draw_triples, first_answers
from torchcaps.data import ImageSet
from torchcaps.data.generated import PairSet
from torchcaps.layers import Decoder
from torchcaps.models import create_model
from torchcaps.models.base import ImageModel

SIDE = 6


class Strokes(Decoder):
    """Class y with pose d draws its number in pixel (y, d); pixels between are black."""

    def draw(self, poses):
        images = poses.new_zeros(len(poses), *self.image_shape)
        images[:, 0, : self.classes, : self.dim] = poses.unflatten(-1, (self.classes, self.dim))
        return images


class Reader(ImageModel):
    """Poses are what stands in the rows of an image, activations their first numbers."""

    def __init__(self, classes=4, dim=3):
        super().__init__((1, SIDE, SIDE), classes, Strokes(classes, dim, (1, SIDE, SIDE)))
        self.anchor = torch.nn.Parameter(torch.zeros(()))
        self.dim = dim

    def forward(self, images):
        poses = images[:, 0, : self.classes, : self.dim]
        return Capsules(poses, poses[..., 0])


def rows_of(answers, labels, classes=4):
    """Images whose brightest row is the answer, with labels of their own."""
    images = torch.zeros(len(answers), 1, SIDE, SIDE, dtype=torch.uint8)
    for index, answer in enumerate(answers):
        images[index, 0, answer, :3] = torch.tensor([255, 102, 51])
    return ImageSet(images, torch.tensor(labels), tuple("abcdefgh"[:classes]))


# Reconstruction


def test_drawings_come_from_single_capsules_in_order_of_activation():
    image = torch.zeros(1, SIDE, SIDE)
    image[0, :4, 0] = torch.tensor([0.2, 0.9, 0.1, 0.6])
    assert draw_classes(Reader(), image).labels == (1, 3, 0, 2)
    drawing = draw_classes(Reader(), image, [1, 3])
    assert drawing.labels == (1, 3)
    assert drawing.activations == pytest.approx((0.9, 0.6))
    assert drawing.drawn.shape == (2, 1, SIDE, SIDE)
    assert drawing.drawn[1].sum() == pytest.approx(0.6)
    missing = 0.2**2 + 0.1**2 + 0.6**2
    assert drawing.reconstruction_errors[0] == pytest.approx(missing / SIDE**2)


def test_triples_show_mistakes_from_the_answer_and_from_the_truth():
    data = rows_of([0, 0, 1, 3, 2, 1], [0, 0, 1, 2, 2, 3])
    cases = draw_triples(Reader(), data, right=3, wrong=2)
    triples = [tuple(row) for row in torch.cat([cases.labels, cases.answers, cases.sources], 1).tolist()]
    assert triples[:3] == [(0, 0, 0), (1, 1, 1), (2, 2, 2)]
    assert {tuple(triples[3:5]), tuple(triples[5:])} == {((2, 3, 3), (2, 3, 2)), ((3, 1, 1), (3, 1, 3))}
    ink = (1 + 0.4**2 + 0.2**2) / SIDE**2
    expected = [0, 0, 0, 0, ink, 0, ink]  # the capsule of the truth is silent, and draws nothing
    torch.testing.assert_close(cases.reconstruction_errors[:, 0], torch.tensor(expected), atol=1e-6, rtol=1e-4)
    assert cases.drawn[4].abs().sum() == 0


def test_the_search_takes_classes_in_turn_and_ends_with_the_data():
    data = rows_of([0] * 70 + [1, 1, 2], [0] * 70 + [1, 1, 3])
    right, wrong = first_answers(Reader(), data, 4, 5)
    assert [int(data.labels[row]) for row in right] == [0, 1, 0, 1]
    assert wrong == [72]


def test_data_in_the_order_of_their_classes_are_searched_evenly():
    labels = [label for label in range(4) for _ in range(200)]
    data = rows_of([(label + row % 2) % 4 for row, label in enumerate(labels)], labels)  # every second one is wrong
    right, wrong = first_answers(Reader(), data, 8, 40)
    assert [int(data.labels[row]) for row in right] == [0, 1, 2, 3] * 2
    assert len({*right, *wrong}) == 48
    assert all(row % 2 == 0 for row in right)
    assert all(row % 2 for row in wrong)
    counts = torch.bincount(data.labels[wrong], minlength=4)
    assert counts.min() >= 4  # of ten that are expected


def test_without_a_decoder_nothing_is_drawn():
    model = create_model("cnn-small", image_shape=(1, SIDE, SIDE), classes=2)
    for look in (lambda: draw_classes(model, torch.rand(1, SIDE, SIDE)), lambda: perturb(model, torch.rand(1, 6, 6))):
        with pytest.raises(InputError, match=r"expected a model with a decoder, got none\. Train"):
            look()


def test_nothing_to_draw_is_said():
    with pytest.raises(InputError, match="draw_cases: expected at least one example, got none"):
        draw_cases(Reader(), rows_of([0], [0]), [])


# Perturbation


def test_each_row_of_a_sheet_moves_one_number():
    image = torch.full((1, SIDE, SIDE), 0.5)
    sheet = perturb(Reader(), image, label=2)
    assert sheet.drawn.shape == (3, 11, 1, SIDE, SIDE)
    torch.testing.assert_close(sheet.offsets, torch.arange(-5, 6) * 0.05)
    expected = torch.zeros(3, 11, 1, SIDE, SIDE)
    expected[..., 2, :3] = 0.5
    for d in range(3):
        for s in range(11):
            expected[d, s, 0, 2, d] += 0.05 * (s - 5)
    torch.testing.assert_close(sheet.drawn, expected)
    torch.testing.assert_close(sheet.effects, torch.full((3,), 0.5 / SIDE))
    assert sheet.label == 2


def test_the_most_active_class_is_moved_unless_another_is_named():
    image = torch.zeros(1, SIDE, SIDE)
    image[0, 1, 0] = 0.7
    sheet = perturb(Reader(), image, span=0.1, steps=3)
    assert (sheet.label, sheet.activation) == (1, pytest.approx(0.7))
    torch.testing.assert_close(sheet.offsets, torch.tensor([-0.1, 0.0, 0.1]))


def test_matrix_poses_have_sixteen_rows():
    model = create_model("matrix-small", image_shape=(1, 17, 17), classes=2, sizes=(4, 2, 2, 2), decoder=True).eval()
    assert perturb(model, torch.rand(1, 17, 17), steps=3).drawn.shape == (16, 3, 1, 17, 17)


# What dimensions mean


class Measures(ImageModel):
    """Poses are measures of the ink: where it is, which way it points, how long and how thick it is; and a constant."""

    def __init__(self):
        super().__init__((1, 40, 40), 2)
        self.anchor = torch.nn.Parameter(torch.zeros(()))

    def forward(self, images):
        ink = images[:, 0] / images[:, 0].sum((1, 2), keepdim=True)
        y, x = torch.meshgrid(torch.arange(40.0), torch.arange(40.0), indexing="ij")
        right, down = ((ink * axis).sum((1, 2)) for axis in (x, y))
        dx, dy = x - right.view(-1, 1, 1), y - down.view(-1, 1, 1)
        xx, xy, yy = ((ink * part).sum((1, 2)) for part in (dx * dx, dx * dy, dy * dy))
        root = ((xx - yy).square() + 4 * xy.square()).sqrt()
        long, thick = ((xx + yy + root) / 2).sqrt(), ((xx + yy - root) / 2).sqrt()
        angle = torch.atan2(2 * xy, xx - yy) / 2
        first = torch.stack([right, -down, angle, long, thick / long, torch.ones_like(right)], -1)
        poses = torch.stack([first, first.flip(-1)], 1)  # class 1 has the same numbers in another order
        return Capsules(poses, poses[..., 0])


def bars_of(count=4):
    images = torch.zeros(2 * count, 1, 40, 40, dtype=torch.uint8)
    for index in range(2 * count):  # of different places and sizes, which must not matter
        images[index, 0, 17 + index % 3 : 22 + index % 2, 8 + index % 4 : 30 + index % 2] = 255
    return ImageSet(images, torch.tensor([0, 1] * count), ("bar", "rod"))


def test_meanings_of_known_measures_are_found():
    meanings = dimension_meanings(Measures(), bars_of(), per_class=3, variations=64)
    assert meanings.factors == FACTORS
    assert meanings.correlations.shape == (2, 6, 5)
    bar = meanings.correlations[0]
    for place, sign in enumerate((1, -1, 1, 1, 1)):
        assert sign * float(bar[place, place]) > 0.9, FACTORS[place]
    away = bar[:5].abs()[~torch.eye(5, dtype=torch.bool)].view(5, 4)
    assert away[:3].max() < 0.3
    assert bar[5].isnan().all()  # a number that never moves follows nothing
    assert meanings.correlations[1, 5, 0] > 0.9
    assert (meanings.best > 0.9).all()
    assert meanings.chance < 0.3


def test_strengths_average_absolute_values_over_classes():
    correlations = torch.tensor([[[0.5, -0.2]], [[-0.1, 0.4]], [[torch.nan, torch.nan]]])
    meanings = Meanings(("a", "b", "c"), ("x", "y"), correlations, correlations / 2)
    torch.testing.assert_close(meanings.strength, torch.tensor([[0.3, 0.3]]))
    torch.testing.assert_close(meanings.best, torch.tensor([0.3, 0.3]))
    assert meanings.chance == pytest.approx(0.15)


class Noise(ImageModel):
    """Poses are drawn anew for every image: they follow nothing."""

    def __init__(self):
        super().__init__((1, 40, 40), 2)
        self.anchor = torch.nn.Parameter(torch.zeros(()))

    def forward(self, images):
        return Capsules(torch.randn(len(images), 2, 16), torch.rand(len(images), 2))


def test_the_best_of_many_dimensions_that_follow_nothing_is_what_chance_gives():
    meanings = dimension_meanings(Noise(), bars_of(), per_class=4, variations=32)
    # Correlations of what is independent have a deviation of one over the root of 4 x 31.
    expected = float((torch.randn(10_000, 16) / (4 * 31) ** 0.5).abs().amax(1).mean())
    assert meanings.chance == pytest.approx(expected, rel=0.15)
    assert float(meanings.best.mean()) == pytest.approx(expected, rel=0.15)


def test_correlation_within_things_ignores_their_own_means():
    factors = torch.tensor([[[0.0], [1.0], [2.0]], [[0.0], [1.0], [2.0]]], dtype=torch.float64)
    values = torch.cat(
        [2 * factors + torch.tensor([[[0.0]], [[100.0]]]), -factors, factors * 0 + 3, 3 + 1e-9 * factors], -1
    )
    found = within(values, factors)
    torch.testing.assert_close(found[:2, 0], torch.tensor([1.0, -1.0], dtype=torch.float64))
    assert found[2:].isnan().all()  # what moves by rounding alone does not move


def test_variations_do_what_their_factors_say():
    image = torch.zeros(1, 1, 29, 29)
    image[..., 11:18, 11:18] = 1
    varied, factors = vary(image.repeat(200, 1, 1, 1), torch.Generator().manual_seed(0))
    assert factors.shape == (200, 5)
    assert factors.amin(0)[3] >= 0.8
    assert factors.amax(0)[2] <= 20
    axis = torch.arange(29.0) - 14
    mass = varied.sum((1, 2, 3))
    torch.testing.assert_close((varied.sum((1, 2)) * axis).sum(-1) / mass, factors[:, 0], atol=0.1, rtol=0)
    torch.testing.assert_close((varied.sum((1, 3)) * axis).sum(-1) / mass, factors[:, 1], atol=0.1, rtol=0)
    # A square of 7 becomes one of 5 or 9, faded in, and is scaled.
    thickness = factors[:, 4]
    whole = 49 + torch.where(thickness > 0, thickness * (81 - 49), thickness * (49 - 25))
    torch.testing.assert_close(mass, whole * factors[:, 3].square(), rtol=0.03, atol=0)


# Overlapping things


def corners():
    """Two images of each of four classes, a square in a corner that is the class's own."""
    images = torch.zeros(8, 1, SIDE, SIDE, dtype=torch.uint8)
    for index in range(8):
        top, left = divmod(index % 4, 2)
        images[index, 0, 3 * top : 3 * top + 2, 3 * left : 3 * left + 2] = 255 if index < 4 else 204
    return ImageSet(images, torch.arange(8) % 4, tuple("abcd"))


class Corners(ImageModel):
    """Sees how bright each corner is, and draws it there; `blind` to the last, it sees half of it in the first."""

    class Brush(Decoder):
        def draw(self, poses):
            images = poses.new_zeros(len(poses), 1, SIDE, SIDE)
            for label in range(4):
                top, left = divmod(label, 2)
                images[:, 0, 3 * top : 3 * top + 2, 3 * left : 3 * left + 2] += poses[:, label, None, None]
            return images

    def __init__(self, blind=False):
        super().__init__((1, SIDE, SIDE), 4, self.Brush(4, 1, (1, SIDE, SIDE)))
        self.anchor = torch.nn.Parameter(torch.zeros(()))
        self.blind = blind

    def forward(self, images):
        bright = torch.stack([images[:, 0, 0, 0], images[:, 0, 0, 3], images[:, 0, 3, 0], images[:, 0, 3, 3]], -1)
        if self.blind:
            bright = torch.cat([bright[:, :1] + 0.5 * bright[:, 3:], bright[:, 1:3], 0 * bright[:, :1]], -1)
        return Capsules(bright[..., None], bright)


def test_things_that_are_there_are_drawn_and_others_stay_dark():
    pairs = PairSet(corners(), length=40, shift=0)
    found = presence(Corners(), pairs, count=30)
    assert found.count == 30
    assert found.error == pytest.approx(0, abs=1e-10)
    assert found.absent == 0
    assert found.present == pytest.approx(found.parts)
    assert found.parts == pytest.approx(float(pairs.batch(torch.arange(30)).parts.mean()), abs=1e-6)
    assert found.blank == pytest.approx(float(pairs.batch(torch.arange(30)).parts.square().mean()), abs=1e-6)


def test_absent_classes_that_are_drawn_are_counted():
    pairs = PairSet(corners(), length=40, shift=0)
    batch = pairs.batch(torch.arange(40))
    dark = bright = 0.0
    for labels, parts in zip(batch.labels.tolist(), batch.parts, strict=True):
        if 3 in labels:
            lost = float(parts[labels.index(3)].sum())
            if 0 not in labels:
                bright += lost / 2
            dark += lost
    found = presence(Corners(blind=True), pairs, count=40)
    assert found.absent == pytest.approx(bright / (40 * 2 * SIDE**2), rel=1e-4)
    assert found.present < found.parts
    assert found.error > 0
    assert dark > 0


def test_pairs_are_taken_apart():
    pairs = PairSet(corners(), length=40, shift=0)
    cases = take_apart(Corners(), pairs, right=3, wrong=2, absent=2)
    assert len(cases.images) == 5  # there are no mistakes
    assert torch.equal(cases.sources[:3], cases.labels[:3])
    torch.testing.assert_close(cases.drawn[:3], cases.parts[:3])
    torch.testing.assert_close(cases.drawn[:3].sum(1), cases.images[:3])
    for row in (3, 4):
        assert cases.sources[row, 0] == cases.labels[row, 0]
        assert int(cases.sources[row, 1]) not in cases.labels[row].tolist()
        assert cases.parts[row, 1].sum() == 0
        assert cases.drawn[row, 1].sum() == 0


def test_mistaken_pairs_are_drawn_from_the_answer_and_from_the_labels():
    pairs = PairSet(corners(), length=40, shift=0)
    cases = take_apart(Corners(blind=True), pairs, right=1, wrong=1, absent=0)
    assert len(cases.images) == 3
    assert cases.sources[1].tolist() == cases.answers[1].tolist()
    assert torch.equal(cases.sources[2], cases.labels[2])
    assert 3 in cases.labels[2].tolist()
    assert 3 not in cases.answers[2].tolist()
    assert torch.equal(cases.images[1], cases.images[2])


def test_kinds_of_data_are_not_confused():
    pairs, singles = PairSet(corners(), length=8, shift=0), corners()
    with pytest.raises(InputError, match="draw_triples: expected images of one object each, got several in each"):
        draw_triples(Corners(), pairs)
    with pytest.raises(InputError, match="dimension_meanings: expected images of one object each, got pairs"):
        dimension_meanings(Corners(), pairs)
    with pytest.raises(
        InputError, match="take_apart: expected images of several objects, each known alone, got others"
    ):
        take_apart(Corners(), singles)
