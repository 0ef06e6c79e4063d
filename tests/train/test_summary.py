"""What is said of the data before training."""

import torch

from torchcaps.data import ImageSet, PairSet, Splits, TextSet
from torchcaps.train.summary import data_summary


def images(counts, shape=(3, 8, 6)):
    labels = torch.cat([torch.full((count,), label) for label, count in enumerate(counts)])
    names = tuple(f"kind {number}" for number in range(len(counts)))
    return ImageSet(torch.zeros(len(labels), *shape, dtype=torch.uint8), labels, names)


def test_the_first_line_tells_classes_parts_and_sizes():
    parts = Splits(images([40, 30]), images([5, 5]), None)
    (line,) = data_summary(parts)
    said = "2 classes, 80 images (kind 0 45, kind 1 35); 70 to train, 10 to validate; 8 x 6 in color"
    assert line == said


def test_many_classes_are_not_all_named():
    part = images([6] * 30, (1, 4, 4))
    line = data_summary(Splits(part, part, part))[0]
    assert "and 22 more" in line
    assert line.endswith("4 x 4 in gray")


def test_few_examples_and_uneven_classes_are_warned_of():
    part = images([100, 3, 50])
    lines = data_summary(Splits(part, part, part))
    assert "fewer than 5 training examples of kind 1 3" in lines[1]
    assert "33 times as many" in lines[2]


def test_texts_and_sets_without_known_labels_have_a_line_too():
    texts = TextSet(("a", "b") * 10, torch.arange(20) % 2, ("no", "yes"))
    line = data_summary(Splits(texts, texts, texts))[0]
    assert line == "2 classes, 40 texts (no 20, yes 20); 20 to train, 20 to validate"
    pairs = PairSet(images([5, 5], (1, 8, 8)))
    assert data_summary(Splits(pairs, pairs, pairs))[0].startswith("2 classes, 20 images; 10 to train, 10 to validate")
