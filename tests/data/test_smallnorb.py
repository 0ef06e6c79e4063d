import gzip
import struct

import numpy as np
import pytest
import torch

from torchcaps.data import load_dataset, read_norb, write_norb
from torchcaps.data.smallnorb import CLASSES, SMALLNORB, load_norb

# The format of smallNORB


@pytest.mark.parametrize("suffix", ["mat", "mat.gz"])
@pytest.mark.parametrize("dtype", ["u1", "i2", "i4", "f4", "f8"])
@pytest.mark.parametrize("shape", [(7,), (5, 4), (3, 2, 6, 5), (2, 1, 1, 3, 1), (0, 2)])
def test_norb_reads_what_it_wrote(tmp_path, suffix, dtype, shape):
    array = np.random.default_rng(0).integers(0, 200, shape).astype(dtype)
    write_norb(tmp_path / f"a.{suffix}", array)
    again = read_norb(tmp_path / f"a.{suffix}")
    assert again.dtype == array.dtype
    assert again.shape == shape
    assert np.array_equal(again, array)


def test_norb_is_written_as_the_public_files_are(tmp_path):
    write_norb(tmp_path / "cat.mat", np.array([0, 1, 4], dtype=np.int32))
    content = (tmp_path / "cat.mat").read_bytes()
    assert content == bytes.fromhex("544c3d1e 01000000 03000000 01000000 01000000 00000000 01000000 04000000")
    write_norb(tmp_path / "dat.mat", np.zeros((2, 2, 3, 3), dtype=np.uint8))
    content = (tmp_path / "dat.mat").read_bytes()
    assert content[:24] == bytes.fromhex("554c3d1e 04000000 02000000 02000000 03000000 03000000")
    assert len(content) == 24 + 36
    info = next(file for file in SMALLNORB.files if "info" in file.name)
    write_norb(tmp_path / "info.mat", np.zeros((24300, 4), dtype=np.int32))
    assert (tmp_path / "info.mat").stat().st_size == info.size


def test_norb_takes_arrays_in_any_layout(tmp_path):
    array = np.arange(12, dtype=">i4").reshape(3, 4).T
    write_norb(tmp_path / "a.mat", array.astype("<i4", order="F"))
    assert np.array_equal(read_norb(tmp_path / "a.mat"), array)


def test_what_is_written_into_an_array_stays_out_of_the_file(tmp_path):
    write_norb(tmp_path / "a.mat", np.zeros((2, 3), dtype=np.uint8))
    read_norb(tmp_path / "a.mat")[:] = 9
    assert read_norb(tmp_path / "a.mat").max() == 0


HEAD = struct.pack("<Ii3I", 0x1E3D4C55, 2, 3, 2, 1)


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "packed"])
@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "got 0 bytes that start with nothing"),
        (b"\x55\x4c\x3d", "3 bytes that start with 55 4c 3d"),
        (b"hello world, this is no matrix", "start with 68 65 6c 6c 6f 20 77 6f"),
        (struct.pack(">Ii3I", 0x1E3D4C55, 2, 3, 2, 1) + bytes(6), "a smallNORB file"),
        (struct.pack("<Ii3I", 0x1E3D4C52, 2, 3, 2, 1) + bytes(6), "a smallNORB file"),
        (struct.pack("<Ii", 0x1E3D4C55, 1000), "a smallNORB file"),
        (struct.pack("<Ii", 0x1E3D4C55, -1), "a smallNORB file"),
        (HEAD[:-2], "Fetch it again"),
        (HEAD, r"expected 26 bytes for shape \[3, 2\], got 20"),
        (HEAD + bytes(5), r"expected 26 bytes for shape \[3, 2\], got 25"),
        (HEAD + bytes(7), r"expected 26 bytes for shape \[3, 2\], got 27"),
        (struct.pack("<Ii3I", 0x1E3D4C55, 3, 2**31, 2**31, 2**31), "got 20"),
    ],
)
def test_broken_norb_gets_one_sentence(tmp_path, pack, content, sentence):
    (tmp_path / "a.mat").write_bytes(pack(content))
    with pytest.raises(ValueError, match=sentence):
        read_norb(tmp_path / "a.mat")


def test_half_a_gzip_file_gets_one_sentence(tmp_path):
    (tmp_path / "a.mat.gz").write_bytes(gzip.compress(HEAD + bytes(6), mtime=0)[:-9])
    with pytest.raises(ValueError, match="expected a whole gzip file"):
        read_norb(tmp_path / "a.mat.gz")


@pytest.mark.parametrize("array", [np.zeros(3, dtype=np.int64), np.array(1, np.uint8), np.array(["a"])])
def test_norb_refuses_what_it_cannot_write(tmp_path, array):
    with pytest.raises(ValueError, match="write_norb: expected one to eight axes of float32"):
        write_norb(tmp_path / "a.mat", array)
    assert not (tmp_path / "a.mat").exists()


# smallNORB


def norb_arrays(count, instances):
    """Made-up toys in smallNORB's layout: classes take turns, lights change next."""
    rows = np.arange(count)
    dat = np.random.default_rng(0).integers(0, 256, (count, 2, 8, 8), dtype=np.uint8)
    info = np.stack([np.array(instances)[rows % len(instances)], rows % 9, rows % 18 * 2, rows % 6], 1)
    return {"dat": dat, "cat": (rows % 5).astype(np.int32), "info": info.astype(np.int32)}


def write_smallnorb(folder, suffix="", count=50):
    folder.mkdir(parents=True, exist_ok=True)
    for part, instances in (("5x46789x9x18x6x2x96x96-training", [4, 6, 7]), ("5x01235x9x18x6x2x96x96-testing", [0, 1])):
        for kind, array in norb_arrays(count, instances).items():
            write_norb(folder / f"smallnorb-{part}-{kind}.mat{suffix}", array)


@pytest.mark.parametrize("place", ["smallnorb", "."])
def test_part_of_smallnorb_loads_from_disk(tmp_path, place):
    write_smallnorb(tmp_path / place)
    parts = load_dataset("smallnorb", tmp_path)
    assert [len(part) for part in parts[:3]] == [45, 5, 50]
    assert set(parts.validation.counts().values()) == {1}
    assert parts.test.classes == CLASSES == ("animal", "human", "airplane", "truck", "car")
    assert parts.test.image_shape == (2, 8, 8)
    made = norb_arrays(50, [0, 1])
    assert np.array_equal(parts.test.images, made["dat"])
    assert parts.test.labels.tolist() == made["cat"].tolist()
    assert parts.test.views["instance"].tolist() == made["info"][:, 0].tolist()
    assert parts.test.views["elevation"].tolist() == [30 + 5 * (row % 9) for row in range(50)]
    assert parts.test.views["azimuth"].tolist() == [20 * (row % 18) for row in range(50)]
    assert parts.test.views["lighting"].tolist() == [row % 6 for row in range(50)]
    assert set(parts.train.views["instance"].tolist()) == {4, 6, 7}
    assert parts.test.batch(torch.arange(3)).inputs.max() <= 1


def test_packed_smallnorb_must_be_the_public_one(tmp_path):
    write_smallnorb(tmp_path / "smallnorb", ".gz")
    with pytest.raises(ValueError, match=r"training-dat\.mat\.gz with sha256 5ffd62\w+, got other content"):
        load_dataset("smallnorb", tmp_path)
    paths = [tmp_path / "smallnorb" / file.name for file in SMALLNORB.files]
    assert len(load_norb(*paths[:3])) == 50  # though a user may read it all the same


def test_an_unpacked_smallnorb_file_of_the_public_size_is_checked(tmp_path):
    write_smallnorb(tmp_path / "smallnorb")
    path = tmp_path / "smallnorb" / SMALLNORB.files[1].name.removesuffix(".gz")
    write_norb(path, (np.arange(24300) % 5).astype(np.int32)[::-1].copy())
    assert path.stat().st_size == SMALLNORB.files[1].size
    with pytest.raises(ValueError, match=r"training-cat\.mat with sha256 591ed9\w+, got other content"):
        load_dataset("smallnorb", tmp_path)
    write_norb(path, (np.arange(24300) % 5).astype(np.int32))  # the public labels: found, but not for 50 images
    with pytest.raises(ValueError, match=r"shape \[50\], as there are 50 images, got int32 \[24300\]"):
        load_dataset("smallnorb", tmp_path)


@pytest.mark.parametrize(
    ("kind", "array", "sentence"),
    [
        ("dat", np.zeros((50, 1, 8, 8), np.uint8), r"bytes \[n 2 h w\], got uint8 \[50, 1, 8, 8\]"),
        ("dat", np.zeros((50, 2, 8), np.uint8), r"got uint8 \[50, 2, 8\]"),
        ("dat", np.zeros((50, 2, 8, 8), np.float32), "got float32"),
        ("info", np.zeros((50, 3), np.int32), r"shape \[50, 4\], as there are 50 images, got int32 \[50, 3\]"),
        ("cat", np.full(50, 5, np.int32), "labels from 0 to 4, got 5 to 5"),
    ],
)
def test_smallnorb_files_that_do_not_fit_get_one_sentence(tmp_path, kind, array, sentence):
    write_smallnorb(tmp_path / "smallnorb")
    write_norb(tmp_path / "smallnorb" / f"smallnorb-5x46789x9x18x6x2x96x96-training-{kind}.mat", array)
    with pytest.raises(ValueError, match=sentence):
        load_dataset("smallnorb", tmp_path)
