import os
from collections import Counter

import numpy as np
import pytest
from PIL import Image

from torchcaps.data import data_folder, load_dataset
from torchcaps.data.eth80 import CLASSES as KINDS


def eth_arrays(numbers=range(10), side=64, color=False):
    rows = [(kind, number, e, a) for kind in range(8) for number in numbers for e, a in ((0, 0), (90, 45))]
    category, instance, elevation, azimuth = np.array(rows).T
    shape = (len(rows), side, side, 3) if color else (len(rows), side, side)
    images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    views = {"category": category, "instance": instance, "elevation": elevation, "azimuth": azimuth}
    return {"images": images, **views}


def write_npz(folder, **arrays):
    (folder / "eth-80").mkdir(exist_ok=True)
    np.savez(folder / "eth-80" / "a.npz", **arrays)


def test_eth80_from_arrays_tests_on_other_objects(tmp_path):
    arrays = eth_arrays()
    names = np.array([f"picture {row}.png" for row in range(160)])
    write_npz(tmp_path, **arrays, filename=names, category_names=np.array(KINDS))
    parts = load_dataset("eth-80", tmp_path)
    assert [len(part) for part in parts[:3]] == [72, 8, 80]
    assert set(parts.validation.counts().values()) == {1}
    assert parts.test.classes == ("apple", "car", "cow", "cup", "dog", "horse", "pear", "tomato")
    assert set(parts.test.views["instance"].tolist()) == {5, 6, 7, 8, 9}
    assert set(parts.train.views["instance"].tolist()) == {0, 1, 2, 3, 4}
    assert set(parts.test.views) == {"instance", "elevation", "azimuth"}
    row = int(parts.test.names[7].split()[1].split(".")[0])
    assert np.array_equal(parts.test.images[7, 0], arrays["images"][row])
    assert parts.test.labels[7] == arrays["category"][row]


def test_eth80_arrays_in_color_become_gray_and_small(tmp_path):
    arrays = eth_arrays(side=16, color=True)
    arrays["images"][:] = (255, 0, 0)
    write_npz(tmp_path, **arrays)
    parts = load_dataset("eth-80", tmp_path)
    assert parts.train.image_shape == (1, 64, 64)
    assert parts.train.images.unique().tolist() == [76]


@pytest.mark.parametrize("name", ["images", "category", "instance", "elevation", "azimuth"])
def test_eth80_without_an_array_gets_one_sentence(tmp_path, name):
    arrays = eth_arrays()
    del arrays[name]
    write_npz(tmp_path, **arrays)
    with pytest.raises(ValueError, match=rf"a\.npz: expected an array named '{name}'.*Add it\."):
        load_dataset("eth-80", tmp_path)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"azimuth": np.zeros(3, int)}, r"named 'azimuth' with a whole number for each image, got images \[160, 64"),
        ({"category": np.array(["apple"] * 160)}, "named 'category' with a whole number"),
        ({"category": np.full(160, 8)}, "labels from 0 to 7, got 8 to 8"),
        ({"instance": np.zeros(160, int)}, r"objects 0 to 4 to train on and others to test, got \[0\]"),
        ({"instance": np.full(160, 7)}, r"objects 0 to 4 to train on and others to test, got \[7\]"),
        ({"images": np.array([{}] * 160)}, "plain arrays"),
        ({"filename": np.array(["one"])}, "expected 160 names, got 1"),
    ],
)
def test_odd_eth80_arrays_get_one_sentence(tmp_path, changes, sentence):
    write_npz(tmp_path, **(eth_arrays() | changes))
    with pytest.raises(ValueError, match=sentence):
        load_dataset("eth-80", tmp_path)


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 and no more"])
def test_a_broken_npz_gets_one_sentence(tmp_path, content):
    (tmp_path / "eth-80").mkdir()
    (tmp_path / "eth-80" / "a.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"Save it with numpy\.savez"):
        load_dataset("eth-80", tmp_path)


def test_eth80_wants_one_npz(tmp_path):
    write_npz(tmp_path, **eth_arrays())
    (tmp_path / "eth-80" / "b.npz").write_bytes((tmp_path / "eth-80" / "a.npz").read_bytes())
    with pytest.raises(ValueError, match=r"expected one npz file, got a\.npz, b\.npz\. Keep one"):
        load_dataset("eth-80", tmp_path)


def write_tree(folder, rename=str):
    """The public tree in small, with masks beside the pictures; gray tells the object."""
    for label, kind in enumerate(KINDS):
        numbers = [1, 2, 3, 5, 6, 7, 9, 11, 12, 14] if kind == "car" else range(1, 11)
        for number in numbers:
            place = folder / rename(f"{kind}{number}")
            (place / rename("maps")).mkdir(parents=True)
            for view in ("000-000", "066-153"):
                picture = Image.new("RGB", (20, 20), (20 * label + number,) * 3)
                picture.save(place / rename(f"{kind}{number}-{view}.png"))
                picture.save(place / rename("maps") / rename(f"{kind}{number}-{view}-map.png"))
                picture.save(place / rename("maps") / rename(f"{kind}{number}-{view}.png"))


@pytest.mark.parametrize("rename", [str, str.upper, str.title])
@pytest.mark.parametrize("inside", ["", "eth80-cropped-close128"])
def test_eth80_from_the_public_tree(tmp_path, rename, inside):
    write_tree(tmp_path / "eth-80" / inside, rename)
    (tmp_path / "eth-80" / "README.png").write_text("no picture of the set")
    parts = load_dataset("eth-80", tmp_path)
    assert [len(part) for part in parts[:3]] == [72, 8, 80]
    assert parts.test.image_shape == (1, 64, 64)
    assert set(parts.test.counts().values()) == {10}
    assert set(parts.test.views["instance"].tolist()) == {5, 6, 7, 8, 9}
    assert Counter(zip(*(parts.test.views[name].tolist() for name in ("elevation", "azimuth")), strict=True)) == {
        (0, 0): 40,
        (66, 153): 40,
    }
    gray = parts.test.images[:, 0, 0, 0]
    cars = parts.test.labels == 1
    assert (gray[~cars] == 20 * parts.test.labels[~cars] + parts.test.views["instance"][~cars] + 1).all()
    assert set((gray[cars] - 20).tolist()) == {6, 7, 12, 9, 14}  # 11, 12 and 14 stand for 4, 8 and 10
    assert parts.test.names[0].endswith(".png")


def test_a_folder_above_may_be_named_maps(tmp_path):
    write_tree(tmp_path / "maps" / "eth-80")
    assert len(load_dataset("eth-80", tmp_path / "maps").test) == 80


def test_eth80_twice_gets_one_sentence(tmp_path):
    for inside in ("eth80-cropped128", "eth80-cropped256"):
        write_tree(tmp_path / "eth-80" / inside)
    with pytest.raises(ValueError, match=r"each picture once, got .*cropped128.* and .*cropped256.*Keep one copy"):
        load_dataset("eth-80", tmp_path)


def test_a_broken_picture_gets_one_sentence(tmp_path):
    write_tree(tmp_path / "eth-80")
    (tmp_path / "eth-80" / "cow3" / "cow3-000-000.png").write_bytes(b"")
    with pytest.raises(ValueError, match=r"cow3-000-000\.png: expected a picture, got .* Unpack it again"):
        load_dataset("eth-80", tmp_path)


@pytest.mark.parametrize("exists", [True, False])
def test_absent_eth80_says_what_goes_where(tmp_path, exists):
    if exists:
        (tmp_path / "eth-80").mkdir()
    with pytest.raises(
        ValueError,
        match=r"apple1/apple1-000-000\.png .* in .*eth-80, got none\. Unpack .* with folder or TORCHCAPS_DATA",
    ):
        load_dataset("eth-80", tmp_path)


def test_the_real_eth80():
    folder = data_folder()
    if not os.environ.get("TORCHCAPS_DATA") or not (folder / "eth-80").is_dir():
        pytest.skip("TORCHCAPS_DATA names no folder with eth-80")
    parts = load_dataset("eth-80", folder)
    assert [len(part) for part in parts[:3]] == [1476, 164, 1640]
    assert parts.test.classes == KINDS
    assert set(parts.test.counts().values()) == {205}
    assert all(
        name.split("/")[-1].startswith(KINDS[label])
        for name, label in zip(parts.test.names, parts.test.labels, strict=True)
    )
