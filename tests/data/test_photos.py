"""CIFAR and SVHN, read from files in their public formats."""

import io
import tarfile

import numpy as np
import pytest
from scipy.io import savemat

from torchcaps.data import load_dataset
from torchcaps.runs.config import TrainConfig
from torchcaps.runs.recipes import resolve

KINDS = "airplane automobile bird cat deer dog frog horse ship truck"


def record(labels, red, green, blue):
    """An image as its authors lay it down: its labels, then all red values row by row, all green, all blue."""
    return bytes(labels) + bytes([red]) * 1024 + bytes([green]) * 1024 + bytes([blue]) * 1024


def pack(path, files):
    path.parent.mkdir(parents=True)
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def cifar10_files():
    files = {"cifar-10-batches-bin/batches.meta.txt": KINDS.replace(" ", "\n").encode() + b"\n\n"}
    for number in range(1, 6):
        rows = [record([kind], kind, number, 7) for kind in range(10)]
        files[f"cifar-10-batches-bin/data_batch_{number}.bin"] = b"".join(rows)
    stripes = bytes([3]) + bytes(range(32)) * 32 + bytes(2048)
    files["cifar-10-batches-bin/test_batch.bin"] = record([9], 1, 2, 3) + stripes
    return files


def test_cifar10_is_read_as_its_authors_laid_it_down(tmp_path):
    pack(tmp_path / "cifar-10" / "cifar-10-binary.tar", cifar10_files())
    parts = load_dataset("cifar-10", tmp_path)
    assert [len(part) for part in parts[:3]] == [45, 5, 2]
    assert parts.train.classes == tuple(KINDS.split())
    assert parts.test.labels.tolist() == [9, 3]
    assert parts.test.images[0].unique(dim=-1).squeeze(-1).unique(dim=-1).flatten().tolist() == [1, 2, 3]
    assert parts.test.images[1, 0, 5].tolist() == list(range(32))  # a row runs from left to right
    for image, label in zip(parts.train.images, parts.train.labels, strict=True):
        assert int(image[0, 0, 0]) == int(label)
        assert 1 <= int(image[1, 0, 0]) <= 5
        assert int(image[2, 0, 0]) == 7


def test_cifar100_takes_the_finer_of_two_labels(tmp_path):
    names = "\n".join(f"kind-{number}" for number in range(100)).encode()
    rows = b"".join(record([number % 20, number], 1, 2, 3) for number in range(100))
    files = {"fine_label_names.txt": names, "train.bin": rows, "test.bin": record([3, 77], 1, 2, 3)}
    files = {f"cifar-100-binary/{name}": content for name, content in files.items()}
    pack(tmp_path / "cifar-100" / "cifar-100-binary.tar", files)
    parts = load_dataset("cifar-100", tmp_path)
    assert [len(part) for part in parts[:3]] == [90, 10, 1]
    assert parts.test.labels.tolist() == [77]
    assert parts.test.classes[77] == "kind-77"
    assert sorted([*parts.train.labels.tolist(), *parts.validation.labels.tolist()]) == list(range(100))


def test_svhn_counts_ten_as_zero(tmp_path):
    (tmp_path / "svhn").mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3, 24), dtype=np.uint8)
    marks = np.arange(24, dtype=np.uint8).reshape(-1, 1) % 10 + 1
    savemat(tmp_path / "svhn" / "train_32x32.mat", {"X": pixels, "y": marks}, do_compression=True)
    savemat(tmp_path / "svhn" / "test_32x32.mat", {"X": pixels[..., 8:11], "y": marks[8:11]})
    parts = load_dataset("svhn", tmp_path)
    assert [len(part) for part in parts[:3]] == [22, 2, 3]
    assert parts.test.labels.tolist() == [9, 0, 1]
    assert parts.test.images[1, 2, 4, 5] == pixels[4, 5, 2, 9]


def broken(change):
    files = cifar10_files()
    change(files)
    return files


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        (broken(lambda files: files.pop("cifar-10-batches-bin/data_batch_4.bin")), r"a file .*data_batch_4\.bin in it"),
        (
            broken(lambda files: files.update({"cifar-10-batches-bin/test_batch.bin": b"12345"})),
            r"expected 3,073 bytes for each image, got 5 bytes in .*test_batch\.bin\. Remove it to have it fetched\.",
        ),
        (broken(lambda files: files.update({"cifar-10-batches-bin/batches.meta.txt": b"a b"})), "labels from 0 to 1"),
    ],
)
def test_broken_archives_get_one_sentence(tmp_path, files, sentence):
    pack(tmp_path / "cifar-10" / "cifar-10-binary.tar", files)
    with pytest.raises(ValueError, match=sentence):
        load_dataset("cifar-10", tmp_path)


@pytest.mark.parametrize("content", [b"", b"hello", b"MATLAB 5.0 MAT-file" + bytes(200)])
def test_foreign_files_get_one_sentence(tmp_path, content):
    for name, file in (("cifar-10", "cifar-10-binary.tar"), ("svhn", "train_32x32.mat"), ("svhn", "test_32x32.mat")):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / file).write_bytes(content)
    with pytest.raises(
        ValueError, match=r"cifar-10-binary\.tar: expected a (tar archive|file).*Remove it to have it fetched\."
    ):
        load_dataset("cifar-10", tmp_path)
    with pytest.raises(ValueError, match=r"train_32x32\.mat: expected a MATLAB file.*Remove it to have it fetched\."):
        load_dataset("svhn", tmp_path)


def test_photographs_may_be_mirrored_and_numbers_not():
    assert resolve(TrainConfig("cifar-10"), 1000).augment == "mirror"
    assert resolve(TrainConfig("svhn"), 1000).augment == "affine"
