"""What is said of the data before training."""

import dataclasses
import re
from types import SimpleNamespace

import pytest
import torch

from tests.support.commands import run
from torchcaps._core.errors import InputError
from torchcaps.data import ImageSet, PairSet, Splits, TextSet, Vocabulary, load_dataset
from torchcaps.data.copies import copies_between, deduplicated
from torchcaps.runs.config import TrainConfig
from torchcaps.runs.recipes import data_facts, resolve
from torchcaps.train.prepare import class_weights
from torchcaps.train.summary import baseline_lines, copies_warning, data_summary, recipe_summary, rising_lines


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
    assert line == "2 classes, 60 texts (no 30, yes 30); 20 to train, 20 to validate, 20 to test"
    read = dataclasses.replace(texts, texts=("a b c", "b") * 10, vocabulary=Vocabulary.build(["a b c"]))
    assert data_summary(Splits(read, read, read))[0].endswith("20 to test; a median of 1 words")
    pairs = PairSet(images([5, 5], (1, 8, 8)))
    assert data_summary(Splits(pairs, pairs, pairs))[0].startswith("2 classes, 20 images; 10 to train, 10 to validate")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a film", "the texts have spaces between words: model text"),
        ("这家酒店不错 ok", "so that characters count as words: model"),
    ],
)
def test_a_line_says_how_texts_are_cut(text, said):
    texts = TextSet((text,) * 20, torch.arange(20) % 2, ("no", "yes"))
    line = recipe_summary(Splits(texts, texts, texts), resolve(TrainConfig("a.csv"), **data_facts(texts)))
    assert said in line
    assert "tokens word" in line


def noise(count, seed):
    pixels = torch.randint(256, (count, 3, 40, 40), generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.avg_pool2d(pixels.float(), 5).repeat_interleave(5, 2).repeat_interleave(5, 3).byte()


def test_copies_between_parts_are_warned_of_and_left_out():
    train, test = noise(20, 0), noise(10, 1)
    test[3] = (train[7].float() * 0.98 + 2).byte()  # a little darker
    test[4] = train[7]
    parts = Splits(*(ImageSet(part, torch.arange(len(part)) % 2, ("a", "b")) for part in (train, noise(5, 2), test)))
    (line,) = copies_warning(parts)
    assert "2 pictures to validate or test with are copies of training pictures" in line
    assert "3 and 7" in line
    cleaned = deduplicated(parts)
    assert [len(part) for part in cleaned[:3]] == [19, 5, 9]
    assert copies_warning(cleaned) == []


def test_digits_that_resemble_each_other_are_no_copies():
    train, validation, _ = load_dataset("mnist-5k")[:3]
    assert len(copies_between(validation, train)) <= 1


def test_an_even_weight_for_every_class():
    data = images([30, 10])
    weights = class_weights(data)
    assert weights.mean() == pytest.approx(1)
    assert weights[data.labels == 0].sum() == pytest.approx(weights[data.labels == 1].sum())
    pairs = PairSet(images([5, 5], (1, 8, 8)))
    with pytest.raises(InputError, match="balance: expected one known label for each example"):
        class_weights(pairs)


def finished(*seen, stopped=False):
    """A run with these validation accuracies."""
    rows = [{"validation_accuracy": str(each)} for each in seen]
    return SimpleNamespace(rows=lambda: rows, metadata=SimpleNamespace(stopped=stopped), folder="runs/mine")


def test_a_rise_at_the_end_is_told():
    said = "validation was still rising, from 70.0% to 80.0% in the last quarter of the epochs"
    lines = rising_lines(finished(0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8), 400)
    assert lines == ["", f"{said}: --epochs 16 may be better"]
    assert "--epochs 4 may" in rising_lines(finished(0.5, 0.7), 400)[1]


@pytest.mark.parametrize(
    ("ended", "count"),
    [
        (finished(0.2, 0.7, 0.8, 0.79, 0.8, 0.79, 0.80, 0.805), 400),  # within the noise
        (finished(0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8), 10),  # of few examples
        (finished(0.2, 0.3, 0.4, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.8, 0.7, 0.6), 400),  # it fell
        (finished(0.2, 0.3, 0.4, 0.8, stopped=True), 400),  # at a goal
        (finished(0.7), 400),
        (finished(*[float("nan")] * 4), 0),
    ],
)
def test_no_rise_at_the_end_is_not_told(ended, count):
    assert rising_lines(ended, count) == []


@pytest.mark.parametrize(
    ("text", "pieces"), [("a film", "words"), ("\u8fd9\u5bb6\u9152\u5e97\u4e0d\u9519", "characters")]
)
def test_the_comparison_at_the_end_names_what_the_baseline_reads(text, pieces, monkeypatch):
    right = SimpleNamespace(accuracy=0.9)
    monkeypatch.setattr("torchcaps.train.summary.baselines", lambda train, test: {"logistic regression": right})
    monkeypatch.setattr("torchcaps.train.summary.evaluate", lambda model, data: SimpleNamespace(accuracy=0.8))
    texts = TextSet((text,) * 20, torch.arange(20) % 2, ("no", "yes"))
    ended = SimpleNamespace(load_model=lambda: None, folder="runs/mine")
    _, line = baseline_lines(ended, Splits(texts, texts, texts))
    assert line.startswith(f"a logistic regression on {pieces}, which takes seconds, is right about 90.0% of")


def test_the_time_of_training_is_foretold_from_its_first_batches(tmp_path, pictures, capsys, monkeypatch):
    words = ["train", pictures, "--model", "cnn-small", "--batch-size", 4, "--epochs", 2]
    monkeypatch.setattr("torchcaps.train.progress.BRIEF", 0.0)
    assert run(*words, "--out", tmp_path / "a") == 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "by the first batches" in line]
    assert re.fullmatch(r"about \d+ s by the first batches: 2 epochs of \d+ batches", line)
    assert line in (tmp_path / "a" / "train.log").read_text()
    monkeypatch.setattr("torchcaps.train.progress.BRIEF", 1e9)
    assert run(*words, "--out", tmp_path / "b") == 0
    assert "by the first batches" not in capsys.readouterr().err
