import math

import pytest
import torch

from torchcaps.data import affine, brightness, center_crop, contrast, crop, flip, shift
from torchcaps.data.augment import AUGMENTATIONS, linear_maps, warp, window


def moved(image, down, right):
    """One image [c h w] moved by whole pixels, one pixel at a time."""
    result = torch.zeros_like(image)
    _, height, width = image.shape
    for y in range(height):
        for x in range(width):
            if 0 <= y - down < height and 0 <= x - right < width:
                result[:, y, x] = image[:, y - down, x - right]
    return result


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


CHANGES = {
    "shift": lambda images, generator: shift(images, 3, generator=generator),
    "affine": lambda images, generator: affine(images, 30, (0.8, 1.2), 0.2, 2, generator=generator),
    "brightness": lambda images, generator: brightness(images, 0.3, generator),
    "contrast": lambda images, generator: contrast(images, 0.2, 1.8, generator),
    "flip": flip,
    "crop": lambda images, generator: crop(images, 5, generator),
}


# All of them


@pytest.mark.parametrize("name", CHANGES)
def test_a_generator_decides_all(name):
    images = torch.rand(6, 2, 9, 7)
    first = CHANGES[name](images, seeded())
    torch.rand(3)
    assert torch.equal(first, CHANGES[name](images, seeded()))
    assert not torch.equal(first, CHANGES[name](images, seeded(1)))


@pytest.mark.parametrize("name", CHANGES)
def test_each_image_has_a_change_of_its_own(name):
    same = torch.rand(1, 2, 9, 7).expand(16, -1, -1, -1)
    changed = CHANGES[name](same, seeded())
    assert len(changed.unique(dim=0)) > (1 if name == "flip" else 5)
    others = torch.cat([same[:8], torch.rand(8, 2, 9, 7)])
    torch.testing.assert_close(changed[:8], CHANGES[name](others, seeded())[:8])


@pytest.mark.parametrize("name", AUGMENTATIONS)
@pytest.mark.parametrize("shape", [(5, 1, 28, 28), (5, 3, 12, 17), (0, 1, 28, 28)])
def test_recipes_keep_shape_range_and_input(name, shape):
    images = torch.rand(shape)
    before = images.clone()
    torch.manual_seed(7)
    changed = AUGMENTATIONS[name](images)
    assert changed.shape == shape
    assert changed.dtype == images.dtype
    assert torch.equal(images, before)
    if len(images):
        assert changed.min() >= 0
        assert changed.max() <= 1
        assert torch.equal(changed, images) == (name == "none")
    torch.manual_seed(7)
    assert torch.equal(changed, AUGMENTATIONS[name](images))


# Whole pixels


def test_shift_is_one_of_all_moves_without_wrap_around():
    images = torch.rand(200, 2, 4, 5)
    met = set()
    for image, result in zip(images, shift(images, 2), strict=True):
        fits = [
            (down, right)
            for down in range(-2, 3)
            for right in range(-2, 3)
            if torch.equal(result, moved(image, down, right))
        ]
        assert len(fits) == 1
        met.update(fits)
    assert len(met) == 25


def test_shift_can_repeat_the_border():
    images = torch.rand(20, 1, 4, 4)
    assert shift(images, 3, "border").min() > 0
    assert torch.equal(shift(images, 0), images)


def test_window_is_a_slice():
    images = torch.arange(2 * 3 * 6 * 5).reshape(2, 3, 6, 5)
    chosen = window(images, torch.tensor([0, 3]), torch.tensor([2, 1]), 3, 2)
    assert torch.equal(chosen, torch.stack([images[0, :, 0:3, 2:4], images[1, :, 3:6, 1:3]]))


def test_crops_are_parts_of_the_image():
    images = torch.rand(200, 2, 6, 5)
    met = set()
    for image, result in zip(images, crop(images, (4, 3)), strict=True):
        met.update((y, x) for y in range(3) for x in range(3) if torch.equal(image[:, y : y + 4, x : x + 3], result))
    assert len(met) == 9
    assert torch.equal(center_crop(images, (4, 3)), images[:, :, 1:5, 1:4])
    assert torch.equal(center_crop(images, 3), images[:, :, 1:4, 1:4])  # the odd row is left below
    assert torch.equal(crop(images, (6, 5)), images)


def test_flip_turns_about_half_around():
    images = torch.rand(200, 1, 3, 4)
    same = (flip(images) == images).flatten(1).all(1)
    assert 70 < same.sum() < 130
    turned = flip(images, seeded())
    assert all(torch.equal(new, old) or torch.equal(new, old.flip(-1)) for new, old in zip(turned, images, strict=True))


# Between pixels


def maps(angle=0.0, shear=0.0, scale_x=1.0, scale_y=1.0, count=3):
    return linear_maps(*(torch.full((count,), value) for value in (angle, shear, scale_x, scale_y)))


def test_affine_without_a_change_is_the_image():
    images = torch.rand(3, 2, 8, 11)
    torch.testing.assert_close(affine(images), images, atol=1e-5, rtol=0)
    torch.testing.assert_close(affine(images, fill="border"), images, atol=1e-5, rtol=0)


@pytest.mark.parametrize("side", [7, 8])
@pytest.mark.parametrize("quarters", [1, 2, 3])
def test_quarter_turns_are_clockwise(side, quarters):
    images = torch.rand(3, 2, side, side)
    turned = warp(images, maps(quarters * math.pi / 2), torch.zeros(3, 2))
    torch.testing.assert_close(turned, images.rot90(-quarters, (2, 3)), atol=1e-5, rtol=0)


def test_whole_offsets_are_shifts():
    images = torch.rand(4, 1, 7, 9)
    offsets = torch.tensor([[0, 0], [2, 0], [0, -3], [-1, 4]])
    expected = torch.stack([moved(image, int(y), int(x)) for image, (x, y) in zip(images, offsets, strict=True)])
    torch.testing.assert_close(warp(images, maps(count=4), offsets.float()), expected, atol=1e-5, rtol=0)


def test_warp_is_a_slow_loop_over_pixels():
    images = torch.rand(2, 1, 6, 9, dtype=torch.float64)
    linear = torch.tensor([[[1.1, 0.3], [-0.2, 0.9]], [[0.8, -0.1], [0.4, 1.2]]], dtype=torch.float64)
    offset = torch.tensor([[0.7, -1.2], [-2.4, 0.3]], dtype=torch.float64)
    expected = torch.zeros_like(images)
    for number in range(2):
        for row in range(6):
            for column in range(9):
                place = torch.tensor([column - 4.0, row - 2.5], dtype=torch.float64) - offset[number]
                x, y = torch.linalg.solve(linear[number], place).tolist()
                x, y = x + 4, y + 2.5
                for near_y in (math.floor(y), math.floor(y) + 1):
                    for near_x in (math.floor(x), math.floor(x) + 1):
                        if 0 <= near_y < 6 and 0 <= near_x < 9:
                            weight = (1 - abs(y - near_y)) * (1 - abs(x - near_x))
                            expected[number, 0, row, column] += weight * images[number, 0, near_y, near_x]
    torch.testing.assert_close(warp(images, linear, offset), expected)


def test_matrices_scale_then_shear_then_turn():
    angle, shear, scale_x, scale_y = 0.3, 0.2, 0.8, 1.1
    turn = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    expected = turn @ torch.tensor([[1, shear], [0, 1]]) @ torch.diag(torch.tensor([scale_x, scale_y]))
    torch.testing.assert_close(maps(angle, shear, scale_x, scale_y, 1)[0], expected)


@pytest.mark.parametrize(
    ("limits", "least", "most"),
    [
        ({"rotate": 40}, {"angle": -40, "scale": 1}, {"angle": 40, "scale": 1}),
        ({"scale": (0.5, 1.5)}, {"angle": 0, "scale": 0.5}, {"angle": 0, "scale": 1.5}),
    ],
)
def test_affine_stays_within_its_limits(limits, least, most):
    # A dot is far enough from the center to tell how the image was turned and scaled.
    images = torch.zeros(300, 1, 61, 61)
    images[:, :, 29:32, 44:47] = 1  # 15 to the right of the center
    changed = affine(images, **limits)[:, 0]
    steps = torch.arange(61.0) - 30
    mass = changed.sum((1, 2))
    x, y = (changed.sum(1) @ steps) / mass, (changed.sum(2) @ steps) / mass
    angle, scale = torch.rad2deg(torch.atan2(y, x)), (x**2 + y**2).sqrt() / 15
    for name, found, slack in (("angle", angle, 0.5), ("scale", scale, 0.02)):
        span = most[name] - least[name]
        assert found.min() >= least[name] - slack
        assert found.max() <= most[name] + slack
        assert found.max() - found.min() >= 0.9 * span - slack


def test_affine_shears_and_moves_within_its_limits():
    images = torch.zeros(300, 1, 61, 61)
    images[:, :, 44:47, 29:32] = 1  # 15 below the center
    steps = torch.arange(61.0) - 30
    sheared, shifted = affine(images, shear=0.4)[:, 0], affine(images, translate=5)[:, 0]
    x = (sheared.sum(1) @ steps) / sheared.sum((1, 2))
    assert 5.4 < x.max() <= 6.05
    assert -6.05 <= x.min() < -5.4
    for axis, middle in ((1, 0), (2, 15)):
        place = (shifted.sum(axis) @ steps) / shifted.sum((1, 2)) - middle
        assert 4.6 < place.max() <= 5.05
        assert -5.05 <= place.min() < -4.6


# Light


def test_brightness_adds_one_number_to_an_image():
    images = 0.4 + 0.2 * torch.rand(200, 2, 3, 3)
    added = brightness(images, 0.3) - images
    torch.testing.assert_close(added, added[:, :1, :1, :1].expand_as(added))
    assert 0.28 < added.max() <= 0.3001
    assert -0.3001 <= added.min() < -0.28
    assert brightness(torch.ones(50, 1, 2, 2), 0.5).max() == 1
    assert brightness(torch.zeros(50, 1, 2, 2), 0.5).min() == 0


def test_contrast_is_about_the_mean_of_the_image():
    images = 0.4 + 0.2 * torch.rand(200, 2, 3, 3)
    changed = contrast(images, 0.2, 1.8)
    factors = []
    for image, result in zip(images, changed, strict=True):
        ratio = (result - image.mean()) / (image - image.mean())
        factors.append(float(ratio.median()))
        torch.testing.assert_close(result, image.mean() + factors[-1] * (image - image.mean()))
    assert 0.19 < min(factors) < 0.25
    assert 1.75 < max(factors) < 1.81


# Mistakes


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: shift(torch.rand(2, 8, 8), 2), r"images \[b c h w\] from 0 to 1, got \(2, 8, 8\)"),
        (lambda: brightness(torch.zeros(2, 1, 8, 8, dtype=torch.uint8), 0.1), "of torch.uint8"),
        (lambda: shift(torch.rand(2, 1, 8, 8), 1.5), "pixels to be a whole number"),
        (lambda: shift(torch.rand(2, 1, 8, 8), 1, "wrap"), "fill to be one of 'zeros', 'border'"),
        (lambda: affine(torch.rand(2, 1, 8, 8), scale=(1.2, 0.8)), "the lower first"),
        (lambda: affine(torch.rand(2, 1, 8, 8), scale=(0, 1)), "scale from 0.01 on"),
        (lambda: affine(torch.rand(2, 1, 8, 8), rotate=-5), "rotate between 0 and inf"),
        (lambda: crop(torch.rand(2, 1, 8, 8), 9), "a size from 1 x 1 to 8 x 8, got 9 x 9"),
        (lambda: center_crop(torch.rand(2, 1, 8, 8), (8, 0)), "got 8 x 0"),
    ],
)
def test_wrong_arguments_get_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
