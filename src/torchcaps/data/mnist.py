"""MNIST and the sets that share its format: four idx files each, 60,000 images to train on and 10,000 to test."""

from __future__ import annotations

from pathlib import Path

from torchcaps.data.base import Splits, hold_out
from torchcaps.data.fetch import PublicFile, Source, find_files
from torchcaps.data.files import load_idx

DIGITS = tuple("0123456789")
CLOTHES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
HIRAGANA = ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo")


def _files(checksums: str, contents: str = "") -> tuple[PublicFile, ...]:
    """The four files, from the md5 sums of each and of what it unpacks to."""
    names = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
    sizes = (47_040_016, 60_008, 7_840_016, 10_008)
    unpacked = [f"md5:{value}" for value in contents.split()] or [""] * 4
    packed = [f"md5:{value}" for value in checksums.split()]
    return tuple(
        PublicFile(f"{name}.gz", checksum, content, size)
        for name, checksum, content, size in zip(names, packed, unpacked, sizes, strict=True)
    )


MNIST = Source(
    "mnist",
    _files(
        "f68b3c2dcbeaaa9fbdd348bbdeb94873 d53e105ee54ea40749a09fcbcd1e9432 "
        "9fb629c4189551a2d022fa330f9573f3 ec29112dd5afa0611ce80d1b7f02629c",
        "6bbc9ace898e44ae57da46a324031adb a25bea736e30d166cdddb491f175f624 "
        "2646ac647ad5339dbf082846283269ea 27ae3e4e09519cfbb04c329615203637",
    ),
    ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
    ("mnist", "MNIST/raw"),
    (".",),
)
FASHION = Source(
    "fashion-mnist",
    _files(
        "8d4fb7e6c68d591d4c3dfef9ec88bf0d 25c81989df183df01b3e8a0aad5dffbe "
        "bef4ecab320f06d8554ea6380940ec79 bb300cfdad3c16e7a12a480ee83cd310",
        "f4a8712d7a061bf5bd6d2ca38dc4d50a 9018921c3c673c538a1fc5bad174d6f9 "
        "8181f5470baa50b63fa0f6fddb340f0a 15d484375f8d13e6eb1aabb0c3f46965",
    ),
    (
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    ),
    ("fashion-mnist", "FashionMNIST/raw"),
    (".", "/usr/share/datasets/fashion-mnist"),  # the second is of Debian's package dataset-fashion-mnist
)
KMNIST = Source(
    "kmnist",
    _files(
        "bdb82020997e1d708af4cf47b453dcf7 e144d726b3acfaa3e44228e80efcd344 "
        "5c965bf0a639b31b8f53240b1b52f4d7 7320c461ea6c1c855c0b718fb2a4b134"
    ),
    ("https://codh.rois.ac.jp/kmnist/dataset/kmnist/", "http://codh.rois.ac.jp/kmnist/dataset/kmnist/"),
    ("kmnist", "KMNIST/raw"),
    (".",),
)


def load_source(source: Source, folder: Path, classes: tuple[str, ...]) -> Splits:
    """The parts of a set in MNIST's format; a twelfth of the training images becomes the validation part."""
    paths = find_files(source, folder)
    train, test = load_idx(paths[0], paths[1], classes), load_idx(paths[2], paths[3], classes)
    return hold_out(train, len(train) // 12, test)


def mnist(folder: Path) -> Splits:
    """70,000 digits of 28x28 pixels, written by hand: 55,000 / 5,000 / 10,000."""
    return load_source(MNIST, folder, DIGITS)


def fashion_mnist(folder: Path) -> Splits:
    """70,000 pieces of clothing of 28x28 pixels, in ten kinds: 55,000 / 5,000 / 10,000."""
    return load_source(FASHION, folder, CLOTHES)


def kmnist(folder: Path) -> Splits:
    """70,000 hiragana of 28x28 pixels from old Japanese books, in ten classes: 55,000 / 5,000 / 10,000."""
    return load_source(KMNIST, folder, HIRAGANA)
