import pytest
import torch
from torch.nn.functional import pad

from torchcaps.data import ImageSet, PairSet, Splits, generated, load_dataset
from torchcaps.data.augment import warp
from torchcaps.data.generated import affnist_maps, draws


@pytest.fixture(scope="module", autouse=True)
def mnist_5k():
    """The digits, read once: it takes seconds."""
    parts = load_dataset("mnist-5k")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generated, "mnist_5k", lambda folder: parts)
        yield parts


def dots(labels, side=5):
    """Images with pixels of their own, so that each can be told from all others, and no empty edge."""
    labels = torch.as_tensor(labels)
    generator = torch.Generator().manual_seed(1)
    pixels = torch.randint(1, 256, (len(labels), 1, side, side), generator=generator).byte()
    return ImageSet(pixels, labels, tuple("abcdef"[: int(labels.max()) + 1]))


# Random numbers


def splitmix(state):
    """Steele, Lea and Flood (2014) in Python's whole numbers: the state's next number."""
    state = (state + 0x9E3779B97F4A7C15) % 2**64
    value = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) % 2**64
    return state, value ^ (value >> 31)


def test_draws_are_the_published_sequence():
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]
    state, values = 0, []
    for _ in range(200):
        state, value = splitmix(state)
        values.append(value)
    assert values[:4] == published
    found = draws(0, torch.arange(40), 5)
    assert found.flatten().tolist() == [value >> 11 for value in values]


def test_draws_depend_on_key_and_seed_alone():
    keys = torch.randint(60_000_000, (1000,))
    found = draws(3, keys, 5)
    assert torch.equal(found.flip(0), draws(3, keys.flip(0), 5))
    assert torch.equal(found[7:8], draws(3, keys[7:8], 5))
    assert not (found == draws(4, keys, 5)).any()
    assert found.min() >= 0


@pytest.mark.parametrize("sides", [7, 9, 10])
def test_draws_are_even(sides):
    counts = torch.stack(
        [torch.bincount(column % sides, minlength=sides) for column in draws(1, torch.arange(20_000), 5).T]
    )
    expected = 20_000 / sides
    chi_square = ((counts - expected) ** 2 / expected).sum(1)
    assert chi_square.max() < 35  # of at most 9 degrees of freedom: one in 17,000


# Pairs


def test_a_pair_is_two_digits_moved_added_and_clipped(mnist_5k):
    digits = mnist_5k.test
    pairs = PairSet(digits, 300, seed=5)
    indices = torch.arange(300)
    images, labels, parts = pairs.batch(indices)
    members, shifts = pairs.members(indices)
    assert images.shape == (300, 1, 36, 36)
    assert pairs.image_shape == (1, 36, 36)
    assert labels.shape == (300, 2)
    assert parts.shape == (300, 2, 1, 36, 36)
    for number in range(300):
        for side in range(2):
            down, right = (4 + shifts[number, side]).tolist()
            expected = torch.zeros(36, 36)
            source = digits.images[members[number, side], 0].float() / 255
            expected[down : down + 28, right : right + 28] = source
            assert torch.equal(parts[number, side, 0], expected)
    assert torch.equal(images, (parts[:, 0] + parts[:, 1]).clamp(max=1))
    assert torch.equal(labels, digits.labels[members])
    assert images.max() == 1


def test_a_pair_is_the_same_in_every_batch_and_order():
    pairs = PairSet(dots([0, 1, 2] * 4), 60, pairs_per_digit=7)
    everything = pairs.batch(torch.arange(60))
    order = torch.randperm(60)
    for whole, shuffled in zip(everything, pairs.batch(order), strict=True):
        assert torch.equal(whole[order], shuffled)
    for number in (0, 17, 59):
        assert torch.equal(pairs.batch(torch.tensor([number])).inputs[0], everything.inputs[number])
    again = PairSet(dots([0, 1, 2] * 4), 60, pairs_per_digit=7)
    assert torch.equal(again.batch(order).inputs, everything.inputs[order])
    other = PairSet(dots([0, 1, 2] * 4), 60, pairs_per_digit=7, seed=1)
    assert not torch.equal(other.batch(order).inputs, everything.inputs[order])


def test_classes_differ_and_every_other_digit_is_as_likely():
    labels = [0] * 2 + [1] * 5 + [2] + [3] * 4  # classes of different sizes, not in order
    digits = dots([labels[place] for place in (3, 0, 11, 5, 7, 1, 9, 2, 4, 10, 6, 8)])
    pairs = PairSet(digits, 12_000, pairs_per_digit=1000)
    members, _ = pairs.members(torch.arange(12_000))
    assert (digits.labels[members[:, 0]] != digits.labels[members[:, 1]]).all()
    for base in range(12):
        counts = torch.bincount(members[members[:, 0] == base, 1], minlength=12).float()
        others = digits.labels != digits.labels[base]
        assert (counts[~others] == 0).all()
        expected = 1000 / others.sum()
        assert ((counts[others] - expected) ** 2 / expected).sum() < 40  # at most 10 degrees of freedom


def test_every_shift_is_met_and_none_beyond():
    pairs = PairSet(dots([0, 1] * 10), 20_000)
    _, shifts = pairs.members(torch.arange(20_000))
    for column in shifts.flatten(1).T:
        counts = torch.bincount(column + 4)
        assert len(counts) == 9
        assert counts.min() > 20_000 / 9 * 0.9
    related = torch.corrcoef(shifts.flatten(1).T.float()) - torch.eye(4)
    assert related.abs().max() < 0.04


def test_every_digit_is_the_base_of_as_many_pairs():
    digits = dots([0, 1, 2] * 4)
    for length, repeats in ((12, 1), (120, 10), (12_000, 1000)):
        members, _ = PairSet(digits, length).members(torch.arange(length))
        assert torch.equal(members[:, 0], torch.arange(12).repeat_interleave(repeats))
    members, _ = PairSet(digits, 5).members(torch.arange(5))
    assert members[:, 0].tolist() == [0, 2, 4, 7, 9]  # spread over all
    assert len(PairSet(digits)) == 12
    whole = PairSet(digits, 12_000).members(torch.arange(0, 12_000, 100))
    part = PairSet(digits, 120).members(torch.arange(120))
    assert torch.equal(whole[1], part[1])  # fewer of the same pairs


def test_sixty_million_pairs_are_never_made():
    digits = ImageSet(torch.zeros(60_000, 1, 2, 2, dtype=torch.uint8), torch.arange(60_000) % 10, tuple("0123456789"))
    pairs = PairSet(digits, 60_000_000)
    assert len(pairs) == 60_000_000
    members, _ = pairs.members(torch.tensor([0, 999, 1000, 59_999_999]))
    assert members[:, 0].tolist() == [0, 0, 1, 59_999]


def test_multimnist_5k_pairs_digits_of_the_same_part(mnist_5k):
    parts = load_dataset("multimnist-5k")
    assert [len(part) for part in parts[:3]] == [17_500, 500, 1000]
    for part, source in zip(parts[:3], mnist_5k[:3], strict=True):
        assert torch.equal(part.digits.images, source.images)
        labels = part.batch(torch.arange(500)).labels
        assert len(set(map(tuple, labels.tolist()))) > 80  # nearly all of 90 kinds of pairs
        assert part.classes == source.classes
        assert part.labels_per_image == 2


def box(image):
    rows, columns = image.amax(1).nonzero().squeeze(-1), image.amax(0).nonzero().squeeze(-1)
    return int(rows[0]), int(rows[-1]) + 1, int(columns[0]), int(columns[-1]) + 1


def test_digits_overlap_about_as_much_as_in_the_paper():
    # The paper speaks of 80 % on average for boxes of 20 x 20; shifts of up to 4 give 85 % along an axis, 73 % in area.
    pairs = load_dataset("multimnist-5k").test
    _, shifts = pairs.members(torch.arange(1000))
    sides = 1 - (shifts[:, 0] - shifts[:, 1]).abs() / 20
    assert 0.82 < sides.mean() < 0.88
    assert 0.70 < sides.prod(-1).mean() < 0.76
    # With the ink's own boxes, the share of the smaller one.
    shares = []
    for first, second in pairs.batch(torch.arange(300)).parts[:, :, 0]:
        top, bottom, left, right = zip(box(first), box(second), strict=True)
        common = max(0, min(bottom) - max(top)) * max(0, min(right) - max(left))
        shares.append(common / min((b - t) * (r - m) for t, b, m, r in (box(first), box(second))))
    assert 0.70 < sum(shares) / 300 < 0.90


# Moved and deformed


def in_frame(images):
    return pad(images, [6] * 4)


@pytest.mark.parametrize("name", ["translated-5k", "affnist-5k"])
def test_sets_in_a_larger_frame_keep_all_but_the_pixels(name, mnist_5k):
    parts, again = load_dataset(name), load_dataset(name)
    for part, source, twin in zip(parts[:3], mnist_5k[:3], again[:3], strict=True):
        assert part.image_shape == (1, 40, 40)
        assert part.images.dtype == torch.uint8
        assert torch.equal(part.labels, source.labels)
        assert part.names == source.names
        assert part.classes == source.classes
        assert torch.equal(part.images, twin.images)
        assert not torch.equal(part.images, in_frame(source.images))


def test_translated_digits_are_whole_and_everywhere(mnist_5k):
    part, source = load_dataset("translated-5k").train, mnist_5k.train
    assert torch.equal(part.images.sum((1, 2, 3)), source.images.sum((1, 2, 3)))
    met = set()
    for image, digit in zip(part.images[:, 0], source.images[:, 0], strict=True):
        (top, _, left, _), (row, _, column, _) = box(image), box(digit)
        down, right = top - row, left - column
        assert torch.equal(image[down : down + 28, right : right + 28], digit)
        met.add((down, right))
    assert met == {(down, right) for down in range(13) for right in range(13)}


def test_affnist_loses_no_ink(mnist_5k):
    images = in_frame(mnist_5k.train.images[:1000]).float()
    linear, offset = affnist_maps(images, torch.Generator().manual_seed(0))
    inside = warp(images, linear, offset)
    # The same in a frame so large that nothing can leave it.
    outside = warp(pad(images[:300], [20] * 4), linear[:300], offset[:300])
    torch.testing.assert_close(inside[:300].sum((1, 2, 3)), outside.sum((1, 2, 3)), rtol=1e-4, atol=0.1)
    assert torch.equal(load_dataset("affnist-5k").train.images[:1000], inside.round().clamp(0, 255).byte())
    # They come right up to every edge, too.
    rows, columns = inside.amax((0, 1, 3)), inside.amax((0, 1, 2))
    assert min(rows[0], rows[-1], columns[0], columns[-1]) > 50


def test_affnist_maps_are_in_the_published_ranges(mnist_5k):
    images = in_frame(mnist_5k.train.images).float()
    linear, _ = affnist_maps(images, torch.Generator().manual_seed(0))
    # linear = turn @ [[sx, k * sy], [0, sy]]: its first column tells the turn and sx.
    angle = torch.rad2deg(torch.atan2(linear[:, 1, 0], linear[:, 0, 0]))
    scale_x = linear[:, :, 0].norm(dim=-1)
    scale_y = torch.linalg.det(linear) / scale_x
    shear = (linear[:, :, 0] * linear[:, :, 1]).sum(-1) / (scale_x * scale_y)
    for values, low, high in ((angle, -20, 20), (shear, -0.2, 0.2), (scale_x, 0.8, 1.2), (scale_y, 0.8, 1.2)):
        span = high - low
        assert low - 1e-3 * span < values.min() < low + 0.01 * span
        assert high - 0.01 * span < values.max() < high + 1e-3 * span


def test_affnist_maps_leave_odd_images_in_peace():
    blank, full = torch.zeros(2, 1, 40, 40), torch.ones(2, 1, 40, 40)
    _, offset = affnist_maps(torch.cat([blank, full]), torch.Generator().manual_seed(0))
    torch.testing.assert_close(offset, torch.zeros(4, 2), atol=1e-4, rtol=0)


def test_the_large_sets_are_made_from_mnist(monkeypatch, mnist_5k, tmp_path):
    few = Splits(*(part.take(torch.arange(20)) for part in mnist_5k[:3]))
    monkeypatch.setattr("torchcaps.data.mnist.mnist", lambda folder: few if folder == tmp_path else None)
    assert load_dataset("multimnist", tmp_path).train.image_shape == (1, 36, 36)
    for name in ("translated", "affnist"):
        parts = load_dataset(name, tmp_path)
        assert [len(part) for part in parts[:3]] == [20] * 3
        assert parts.test.image_shape == (1, 40, 40)


@pytest.mark.parametrize(
    "name", ["multimnist", "multimnist_5k", "translated", "translated_5k", "affnist", "affnist_5k"]
)
def test_loaders_introduce_themselves_in_a_line(name):
    assert len(getattr(generated, name).__doc__.splitlines()) == 1


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: PairSet(dots([0, 0, 0])), "digits of at least two classes, got 1"),
        (lambda: PairSet(dots([0, 1]), 2001), "a length from 1 to 2000, got 2001"),
        (lambda: PairSet(dots([0, 1]), 0), "a length from 1 to 2000, got 0"),
        (lambda: PairSet(dots([0, 1]), pairs_per_digit=0), "pairs_per_digit to be a whole number"),
        (lambda: PairSet(dots([0, 1]), shift=-1), "shift to be a whole number"),
    ],
)
def test_wrong_arguments_get_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
