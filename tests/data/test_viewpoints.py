import pytest
import torch

from torchcaps.data import ImageSet, PairSet, Splits, viewpoint_split

AZIMUTHS, ELEVATIONS = range(0, 360, 20), range(30, 75, 5)


def every_view(views=("azimuth", "elevation"), start=0):
    """One image of each of two classes from each of the views of smallNORB; start sets apart the names and pixels."""
    rows = [(label, a, e) for label in range(2) for a in AZIMUTHS for e in ELEVATIONS]
    table = torch.tensor(rows)
    known = {name: table[:, column] for column, name in ((1, "azimuth"), (2, "elevation")) if name in views}
    numbers = start + torch.arange(len(rows))
    names = tuple(map(str, numbers.tolist()))
    return ImageSet((numbers % 251).byte()[:, None, None, None], table[:, 0], ("a", "b"), known, names)


def all_parts(**changes):
    return Splits(*(every_view(start=start, **changes) for start in (0, 1000, 2000)))


def test_azimuths_of_hinton_2018():
    parts = viewpoint_split(all_parts())
    for part in parts[:3]:
        assert part.views["azimuth"].unique().tolist() == [0, 20, 40, 300, 320, 340]
        assert part.views["elevation"].unique().tolist() == list(ELEVATIONS)
        assert len(part) == 2 * 6 * 9
    assert parts.novel.views["azimuth"].unique().tolist() == list(range(60, 300, 20))
    source = all_parts()
    assert set(parts.train.names) < set(source.train.names)
    assert set(parts.validation.names) < set(source.validation.names)
    assert sorted(parts.test.names + parts.novel.names) == sorted(source.test.names)


def test_elevations_of_hinton_2018():
    parts = viewpoint_split(all_parts(), "elevation")
    for part in parts[:3]:
        assert part.views["elevation"].unique().tolist() == [30, 35, 40]
        assert len(part) == 2 * 18 * 3
    assert parts.novel.views["elevation"].unique().tolist() == [45, 50, 55, 60, 65, 70]


def test_other_ranges():
    parts = viewpoint_split(all_parts(), "azimuth", 350, 370)
    assert parts.train.views["azimuth"].unique().tolist() == [0]
    assert viewpoint_split(all_parts(), low=0).train.views["azimuth"].unique().tolist() == [0, 20, 40]
    parts = viewpoint_split(all_parts(), "elevation", 40, 50)
    assert parts.test.views["elevation"].unique().tolist() == [40, 45]
    assert 30 in parts.novel.views["elevation"]


def test_images_and_labels_stay_together():
    source, parts = all_parts().test, viewpoint_split(all_parts())
    for part in (parts.test, parts.novel):
        rows = torch.tensor([int(name) - 2000 for name in part.names])
        assert torch.equal(part.images, source.images[rows])
        assert torch.equal(part.labels, source.labels[rows])
        assert torch.equal(part.views["azimuth"], source.views["azimuth"][rows])


def pairs():
    return PairSet(every_view())


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: viewpoint_split(all_parts(), "lighting"), "by to be one of 'azimuth', 'elevation'"),
        (
            lambda: viewpoint_split(all_parts(views=["elevation"])),
            "the azimuth of each image, got only elevation",
        ),
        (lambda: viewpoint_split(all_parts(views=[])), "got a set without views"),
        (lambda: viewpoint_split(Splits(pairs(), pairs(), pairs())), "got a set without views"),
        (lambda: viewpoint_split(all_parts(), low=60, high=-60), "low below high"),
        (lambda: viewpoint_split(all_parts(), low=1, high=9), "images in the train part for azimuth from 1 to 9"),
        (lambda: viewpoint_split(all_parts(), low=0, high=360), "images in the novel part"),
        (lambda: viewpoint_split(all_parts(), "elevation", 80, 90), "images in the train part for elevation"),
    ],
)
def test_wrong_arguments_get_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


def test_one_elevation_cannot_be_split():
    part = every_view()
    part = part.take(part.views["elevation"] == 30)
    with pytest.raises(ValueError, match="images in the novel part"):
        viewpoint_split(Splits(part, part, part), "elevation")
