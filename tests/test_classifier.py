"""A trained run as a classifier in Python."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import torchcaps as tc
from tests.support.commands import run
from torchcaps._core.errors import InputError


@pytest.fixture(scope="module")
def classifier(trained):
    return tc.Classifier.load(trained)


@pytest.fixture(scope="module")
def files(pictures):
    return [pictures / "left" / "0.png", pictures / "right" / "1.png"]


def labels(found):
    return [each.labels[0] for each in found]


def test_it_loads_its_network_once(classifier, files, monkeypatch):
    monkeypatch.setattr("torchcaps.runs.run.Run.load_model", None)
    assert labels(classifier.predict(files)) == ["left", "right"]
    assert classifier.classes == ("left", "right")


@pytest.mark.parametrize("kind", ["Path", "str", "Pillow", "array", "array in color", "tensor", "batch"])
def test_all_kinds_of_pictures_get_the_same_answer(kind, classifier, files):
    opened = [Image.open(file) for file in files]
    arrays = [np.asarray(picture) for picture in opened]
    given = {
        "Path": files,
        "str": [str(file) for file in files],
        "Pillow": opened,
        "array": arrays,
        "array in color": [np.stack([array] * 3, -1) for array in arrays],
        "tensor": [torch.from_numpy(array.copy()) for array in arrays],
        "batch": torch.from_numpy(np.stack(arrays))[:, None].float() / 255,
    }[kind]
    found = classifier.predict(given)
    assert labels(found) == ["left", "right"]
    expected = classifier.predict(files)
    for mine, other in zip(found, expected, strict=True):
        assert mine.confidence == pytest.approx(other.confidence, abs=2e-3)


def test_one_picture_of_another_size_is_enough(classifier, files):
    large = Image.open(files[0]).resize((90, 70))
    assert labels(classifier.predict(large)) == labels(classifier.predict(Path(files[0]))) == ["left"]


@pytest.mark.parametrize(
    ("inputs", "sentence"),
    [
        (np.zeros((30, 40)), r"pictures as bytes \[h w\] or \[h w c\], got float64 \(30, 40\)"),
        (np.full((2, 20, 20), 3.0), "floats from 0 to 1"),
    ],
)
def test_other_numbers_get_one_sentence(inputs, sentence, classifier):
    with pytest.raises(InputError, match=sentence):
        classifier.predict(inputs)


def test_texts_are_answered_too(tmp_path):
    table = tmp_path / "films.csv"
    rows = "".join(f"{'good' if n % 2 else 'bad'} film {n},{'up' if n % 2 else 'down'}\n" for n in range(40))
    table.write_text("text,label\n" + rows)
    assert run("train", table, "--epochs", 1, "--out", tmp_path / "run") == 0
    (found,) = tc.Classifier.load(tmp_path / "run").predict("good film 3")
    assert found.labels[0] in ("up", "down")
