import os
from dataclasses import replace
from pathlib import Path

import pytest

from torchcaps.data import DATASETS, data_folder, load_dataset
from torchcaps.data.mnist import CLOTHES, DIGITS, FASHION, HIRAGANA, KMNIST, MNIST, load_source

NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def offline(source):
    """A source that is only found on disk: nobody listens at this address."""
    return replace(source, urls=("http://127.0.0.1:1/",))


@pytest.fixture(autouse=True)
def no_mirror(monkeypatch):
    monkeypatch.delenv("TORCHCAPS_MIRROR", raising=False)


@pytest.mark.parametrize("source", [MNIST, FASHION, KMNIST], ids=lambda source: source.name)
def test_sources_are_told_apart(source):
    assert source.folders[0] == source.name
    assert source.name in DATASETS
    assert [file.name.removesuffix(".gz") for file in source.files] == list(NAMES)
    assert all(len(file.checksum) == len("md5:") + 32 for file in source.files)
    assert all(url.endswith("/") for url in source.urls)


def test_no_sum_is_given_twice():
    sums = [file.checksum for source in (MNIST, FASHION, KMNIST) for file in source.files]
    sums += [file.content for source in (MNIST, FASHION) for file in source.files]
    assert len(set(sums)) == 20


@pytest.mark.parametrize("classes", [DIGITS, CLOTHES, HIRAGANA])
def test_ten_classes_have_ten_names(classes):
    assert len(set(classes)) == 10


def test_an_absent_set_says_which_files_go_where(tmp_path, monkeypatch):
    monkeypatch.setitem(DATASETS, "mnist", lambda folder: load_source(offline(MNIST), folder, DIGITS))
    with pytest.raises(ValueError, match=r"mnist: expected .*\(md5 f68b3c2dcbeaaa9fbdd348bbdeb94873\)"):
        load_dataset("mnist", tmp_path)


def folder_with(source):
    """A folder with the real files of a set, or the test is skipped."""
    folder = data_folder()
    if not os.environ.get("TORCHCAPS_DATA") or not (folder / source.name).is_dir():
        pytest.skip(f"TORCHCAPS_DATA names no folder with {source.name}")
    return folder


def test_the_real_mnist():
    parts = load_source(offline(MNIST), folder_with(MNIST), DIGITS)
    assert [len(part) for part in parts[:3]] == [55_000, 5_000, 10_000]
    assert parts.test.labels[:5].tolist() == [7, 2, 1, 0, 4]
    assert parts.test.counts()["1"] == 1135
    assert parts.train.counts()["1"] + parts.validation.counts()["1"] == 6742
    assert parts.train.image_shape == (1, 28, 28)


def test_debian_s_fashion_mnist(tmp_path):
    if not Path("/usr/share/datasets/fashion-mnist").is_dir():
        pytest.skip("Debian's package dataset-fashion-mnist is not installed")
    parts = load_source(offline(FASHION), tmp_path, CLOTHES)
    assert set(parts.test.counts().values()) == {1000}
    assert parts.test.classes[int(parts.test.labels[0])] == "Ankle boot"
