import math
import random

import numpy as np
import pytest
import torch

from torchcaps.data import DATASETS, render, solids, toys
from torchcaps.data.render import Lamp, Solid, Views, blade, part, rod

SKY = Lamp(0, 90, power=1.0, glow=0.0)


def draw(
    parts, elevation=90.0, azimuth=0.0, lamp=SKY, right=0.0, up=0.0, span=2.0, table=0.0, gray=1.0, side=64, samples=2
):
    values = [elevation, azimuth, 0, right, up, span, table]
    views = Views(*(torch.tensor([value]) for value in values))
    return render.render(Solid(parts), gray, [lamp], views, side, samples)[0]


def area(image, span=2.0):
    """Of what is not the black table."""
    return float((image > 0).float().mean()) * (2 * span) ** 2


# Geometry


@pytest.mark.parametrize("elevation", [30.0, 50.0, 70.0, 90.0])
@pytest.mark.parametrize(
    ("shape", "sizes", "top", "front"),
    [
        ("ball", (0.8, 0.8, 0.8), None, None),
        ("cube", (0.5, 0.9, 0.6), 4 * 0.5 * 0.9, 4 * 0.9 * 0.6),
        ("tube", (0.7, 0.7, 0.5), math.pi * 0.49, 4 * 0.7 * 0.5),
    ],
)
def test_silhouettes_have_the_area_that_geometry_gives(shape, sizes, top, front, elevation):
    glow = Lamp(0, 90, power=0.0, glow=1.0)
    image = draw([part(shape, (0.0, 0.0, sizes[2]), sizes)], elevation, lamp=glow, side=160, samples=1)
    rise = math.radians(elevation)
    expected = math.pi * 0.64 if shape == "ball" else top * math.sin(rise) + front * math.cos(rise)
    assert area(image) == pytest.approx(expected, rel=0.02)


def test_a_ball_from_above_is_a_disc_shaded_by_its_slope():
    image = draw([part("ball", (0.0, 0.0, 1.0), (1.0, 1.0, 1.0))], span=1.25, gray=0.8)
    steps = (torch.arange(64) + 0.5) / 32 - 1
    square = (steps[:, None].square() + steps.square()) * 1.25**2
    inner = square < 0.9
    assert torch.allclose(image[inner], 0.8 * (1 - square[inner]).sqrt(), atol=0.01)
    assert image[square > 1.1].abs().max() == 0
    assert float(image.mean()) * 2.5**2 == pytest.approx(0.8 * 2 * math.pi / 3, rel=0.01)


@pytest.mark.parametrize("height", [30.0, 60.0, 90.0])
def test_flat_faces_take_light_by_its_angle(height):
    lamp = Lamp(40, height, power=0.6, glow=0.2)
    image = draw([part("cube", (0.0, 0.0, 0.1), (0.5, 0.5, 0.1))], lamp=lamp, table=0.5, gray=0.9)
    shown = 0.6 * math.sin(math.radians(height)) + 0.2
    assert float(image[32, 32]) == pytest.approx(0.9 * shown, abs=1e-4)
    assert float(image[0, 0]) == pytest.approx(0.5 * shown, abs=1e-4)


def test_a_shadow_falls_away_from_the_lamp():
    lamp = Lamp(90, 45, power=1.0, glow=0.0)
    image = draw([part("ball", (0.0, 0.0, 1.2), (0.3, 0.3, 0.3))], lamp=lamp, table=1.0, side=128, samples=1)
    dark = (image[:, :52] == 0).nonzero() / 32 - 2  # left of the ball, which hangs in the middle
    assert dark.mean(0).tolist() == pytest.approx([0.0, -1.2], abs=0.03)
    assert len(dark) / 32**2 == pytest.approx(math.pi * 0.09 * math.sqrt(2), rel=0.05)


def test_one_part_shades_another_but_none_itself():
    floor, roof = part("cube", (0.0, 0.0, 0.1), (1.0, 1.0, 0.1)), part("cube", (0.0, 0.6, 1.2), (0.3, 0.3, 0.05))
    lamp = Lamp(90, 45, power=1.0, glow=0.0)
    alone, both = draw([floor], lamp=lamp), draw([floor, roof], lamp=lamp)
    assert alone[20:44, 20:44].min() == pytest.approx(math.sqrt(0.5), abs=1e-4)
    assert both[32, 25] == 0  # 1.0 below the roof, and so as far to its left, at y = -0.4
    assert both[32, 32] == pytest.approx(math.sqrt(0.5), abs=1e-4)


def test_the_table_turns_as_told():
    parts = [part("ball", (0.8, 0.0, 0.2), (0.2, 0.2, 0.2)), part("cube", (-0.8, 0.0, 0.2), (0.2, 0.2, 0.2))]
    images = [draw(parts, azimuth=azimuth) for azimuth in (0.0, 90.0, 180.0, 360.0)]
    assert images[0][45, 32] > 0.9  # the front looks to the camera, which is below the image from above
    assert images[1][32, 45] > 0.9
    for turned, expected in ((1, images[0].rot90(1)), (2, images[0].rot90(2)), (3, images[0])):
        assert (images[turned] - expected).abs().mean() < 0.002


def test_the_camera_moves_the_image():
    parts = [part("ball", (0.0, 0.0, 0.5), (0.5, 0.5, 0.5))]
    still, moved = draw(parts, 60.0), draw(parts, 60.0, right=4 / 16, up=2 / 16)
    assert torch.allclose(moved, still.roll((-2, 4), (0, 1)), atol=1e-4)
    assert area(draw(parts, 60.0, span=1.0), 1.0) == pytest.approx(area(still), rel=0.1)


def test_drawing_leaves_the_number_of_threads_alone():
    threads = torch.get_num_threads()
    draw([part("ball", (0.0, 0.0, 0.5), (0.5, 0.5, 0.5))], side=8)
    assert torch.get_num_threads() == threads


def test_rays_looked_at_together_miss_nothing(monkeypatch):
    toy = solids.solid("airplane", 3).parts
    image = draw(toy, 40.0, 70.0, Lamp(30, 40, 0.7, 0.3), span=1.2, table=0.4)
    monkeypatch.setattr(render, "TILE", 64)
    assert torch.allclose(draw(toy, 40.0, 70.0, Lamp(30, 40, 0.7, 0.3), span=1.2, table=0.4), image, atol=1e-5)


@pytest.mark.parametrize(
    "each",
    [
        part("ball", (0.1, 0.2, 0.3), (0.5, 0.2, 0.3), pitch=30),
        part("cube", (0.1, 0.2, 0.3), (0.5, 0.2, 0.3), pitch=-20),
        rod((0.0, 0.0, 0.0), (1.0, 0.5, -0.3), 0.2),
        blade((0.0, 0.0, 0.0), (-0.5, 1.0, 0.2), 0.3, 0.05),
    ],
)
def test_the_box_about_a_part_is_tight(each):
    points = torch.randn(50_000, 3, generator=torch.Generator().manual_seed(0))
    if each.shape == "ball":
        points = points / points.norm(dim=1, keepdim=True)
    elif each.shape == "cube":
        points = points.sign()
    else:
        points = torch.cat([points[:, :2] / points[:, :2].norm(dim=1, keepdim=True), points[:, 2:].sign()], 1)
    reach = (points @ each.map.T).abs().amax(0)
    assert torch.allclose(reach, each.reach(), atol=0.01)
    assert (reach <= each.reach() + 1e-5).all()


def test_rods_and_blades_go_from_end_to_end():
    ends = torch.tensor([[0.3, -0.2, 0.1], [-0.5, 0.9, 0.4]])
    for each, axis in ((rod(*ends.tolist(), 0.1), 2), (blade(*ends.tolist(), 0.2, 0.05), 1)):
        assert torch.allclose(each.place - each.map[:, axis], ends[0], atol=1e-6)
        assert torch.allclose(each.place + each.map[:, axis], ends[1], atol=1e-6)


@pytest.mark.parametrize("kind", solids.KINDS)
def test_toys_stand_in_the_middle_and_are_of_the_size_asked(kind):
    for seed in range(2):
        toy = solids.solid(kind, seed, size=0.7)
        assert toy.low[2] == pytest.approx(0.0, abs=1e-5)
        assert torch.allclose(toy.low[:2], -toy.high[:2], atol=1e-5)
        again = toy.stand(0.7)
        assert torch.allclose(again.high, toy.high, rtol=1e-3)
        assert toy.stand(1.4).high[2] == pytest.approx(2 * float(toy.high[2]), rel=1e-3)
    first, same, other = (solids.solid(kind, seed).high for seed in (0, 0, 1))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


# The set


@pytest.fixture
def blank(monkeypatch):
    """Drawing takes no time, and each image tells its toy."""
    made = []

    def blanks(number, chosen):
        made.append(number)
        return torch.full((len(chosen), toys.SIDE, toys.SIDE), number, dtype=torch.uint8)

    monkeypatch.setattr(toys, "_draw", blanks)
    return made


@pytest.mark.parametrize(("name", "sizes"), [("toys", (4500, 500, 5000)), ("toys-full", (21870, 2430, 24300))])
def test_parts_are_stratified_and_show_every_view_of_other_toys(blank, tmp_path, name, sizes):
    parts = DATASETS[name](tmp_path)
    assert tuple(map(len, parts[:3])) == sizes
    for part_ in parts[:3]:
        assert len(set(part_.counts().values())) == 1
        assert part_.classes == ("animal", "human", "airplane", "truck", "car")
        assert part_.image_shape == (1, 32, 32)
        assert torch.equal(part_.images[:, 0, 0, 0].long(), part_.labels * 10 + part_.views["instance"])
    assert parts.train.views["instance"].unique().tolist() == [0, 1, 2, 3, 4]
    assert parts.validation.views["instance"].unique().tolist() == [0, 1, 2, 3, 4]
    assert parts.test.views["instance"].unique().tolist() == [5, 6, 7, 8, 9]
    for part_ in (parts.train, parts.test):
        assert part_.views["elevation"].unique().tolist() == list(range(30, 75, 5))
        assert part_.views["azimuth"].unique().tolist() == list(range(0, 360, 20))
        assert part_.views["lighting"].unique().tolist() == list(range(6))
    assert len({name for part_ in parts[:3] for name in part_.names}) == sum(sizes)


def test_every_toy_is_seen_from_everywhere(blank):
    test = toys.toys().test
    place = test.labels * 5 + test.views["instance"] - 5
    place = place * 9 * 18 + (test.views["elevation"] - 30) // 5 * 18 + test.views["azimuth"] // 20
    assert set(torch.bincount(place, minlength=25 * 9 * 18).tolist()) == {1, 2}


def test_a_second_load_reads_the_first(blank, tmp_path):
    first = toys.toys(tmp_path)
    (kept,) = (tmp_path / "toys").iterdir()
    assert kept.name == f"toys-{toys.VERSION}.npz"
    assert len(blank) == 50
    second = toys.toys(tmp_path)
    assert len(blank) == 50
    assert torch.equal(first.train.images, second.train.images)
    assert torch.equal(first.test.images, second.test.images)


@pytest.mark.parametrize("harm", ["empty", "text", "cut", "flipped", "other"])
def test_a_broken_cache_is_drawn_anew(blank, tmp_path, harm):
    first = toys._load("toys", 20, tmp_path)
    path = tmp_path / "toys" / f"toys-{toys.VERSION}.npz"
    whole = path.read_bytes()
    middle = len(whole) // 2
    if harm == "other":
        np.savez(path, images=np.zeros((3, 32, 32), np.uint8))
    else:
        flipped = whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :]
        path.write_bytes({"empty": b"", "text": b"hello", "cut": whole[:middle], "flipped": flipped}[harm])
    assert torch.equal(toys._load("toys", 20, tmp_path).test.images, first.test.images)
    assert path.read_bytes() == whole


def test_a_folder_that_cannot_be_written_does_no_harm(blank, tmp_path):
    (tmp_path / "toys").write_text("a file where the folder would be")
    assert len(toys.toys(tmp_path).test) == 5000
    assert [path.name for path in tmp_path.iterdir()] == ["toys"]


def test_a_view_is_drawn_the_same_each_time():
    chosen = torch.tensor(random.Random(0).sample(range(len(toys.GRID)), 12))
    images = toys._draw(27, chosen)
    assert images.shape == (12, 32, 32)
    assert images.dtype == torch.uint8
    assert torch.equal(images, toys._draw(27, chosen))
    # Alone or among others; a processor may sum short rows its own way, and turn a last digit.
    assert (toys._draw(27, chosen[7:9]).int() - images[7:9].int()).abs().float().mean() < 0.01
    assert not torch.equal(images, toys._draw(28, chosen))


def test_grays_and_sizes_do_not_tell_the_kind():
    """Both halves of every kind have the same of them."""
    for kind in range(len(solids.KINDS)):
        for half in (0, 5):
            looks = [toys._look(kind * 10 + half + member) for member in range(5)]
            for values in zip(*looks, strict=True):
                assert sorted(values) == [0, 0.25, 0.5, 0.75, 1]


@pytest.mark.slow
def test_pixels_alone_tell_the_kind_only_in_part():
    from sklearn.linear_model import LogisticRegression

    parts = toys.toys()
    learn = torch.cat([parts.train.images, parts.validation.images]).flatten(1).float()
    labels = torch.cat([parts.train.labels, parts.validation.labels])
    mean, scale = learn.mean(0), learn.std(0)
    test = (parts.test.images.flatten(1).float() - mean) / scale
    model = LogisticRegression(C=1e-3, max_iter=200, tol=1e-2).fit((learn - mean) / scale, labels)
    assert 0.45 < model.score(test, parts.test.labels) < 0.78
