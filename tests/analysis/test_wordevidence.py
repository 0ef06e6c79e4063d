"""What each word of a text says for or against its class."""

import json
import math
import random
import re

import pytest
import torch
from torch import nn

import torchcaps as tc
from tests.support.commands import run
from tests.test_text_cli import SLIM, said, write_table
from torchcaps.analysis.explain import Explanation, Word, colored, explain_texts, facts, html_section
from torchcaps.analysis.wordevidence import deletion_check, word_evidence
from torchcaps.data import Vocabulary
from torchcaps.runs.run import Run

WEIGHTS = {"lovely": 3, "bright": 2, "fair": 1, "odd": -1, "dull": -2, "awful": -3}
FILLER = ["the", "film", "and", "plot"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A network that learned texts of words that weigh more or less for one of two classes."""
    generator = random.Random(0)
    rows = []
    while len(rows) < 400:
        words = generator.sample([*WEIGHTS, *FILLER], generator.randint(4, 8))
        total = sum(WEIGHTS.get(word, 0) for word in words)
        if total:
            rows.append((" ".join(words), "good" if total > 0 else "bad"))
    folder = tmp_path_factory.mktemp("weighed")
    table = write_table(folder / "films.csv", rows)
    assert run("train", table, *SLIM, "--epochs", 20, "--batch-size", 20, "--out", folder / "run") == 0
    return folder / "run"


TEXTS = [
    "lovely odd awful fair dull bright",
    "bright dull lovely awful fair odd",
    "odd lovely dull fair bright awful",
    "fair awful bright lovely odd dull",
]


class Counting(nn.Module):
    """The log-odds of class 1 are the sum of the tokens less ten, those of class 0 the opposite."""

    def __init__(self):
        super().__init__()
        self.here = nn.Parameter(torch.zeros(1))
        self.rows = []

    def forward(self, tokens):
        self.rows.append(len(tokens))
        odds = (tokens.float() - 5).sum(1) / 10
        return tc.Capsules(torch.zeros(len(tokens), 2, 4), torch.stack([-odds, odds], 1).sigmoid())


def test_evidence_is_the_fall_of_the_logit_with_the_unknown_word():
    tokens = torch.tensor([7, 1, 2, 9])
    expected = (tokens - 1) / 10
    torch.testing.assert_close(word_evidence(Counting(), tokens, 1), torch.stack([-expected, expected], 1))


def test_long_texts_are_read_in_batches():
    model = Counting()
    word_evidence(model, torch.randint(2, 9, (200,)), 1)
    assert max(model.rows) <= 64
    assert sum(model.rows) == 201


def test_the_strongest_words_are_removed_and_special_tokens_stay():
    tokens = torch.tensor([50, 9, 2, 3, 3, 3])
    words = torch.tensor([False, True, True, True, True, True])
    evidence = word_evidence(Counting(), tokens, 1)[:, 1]
    check = deletion_check(Counting(), tokens, evidence, 1, words)
    assert check.words == 1
    assert check.removed == pytest.approx(float(torch.tensor((45 - 3 - 6) / 10).sigmoid()), abs=1e-4)
    assert check.removed < check.elsewhere
    assert deletion_check(Counting(), tokens, evidence, 1, torch.zeros(6, dtype=torch.bool)) is None


def test_every_vocabulary_tells_its_unknown_word():
    for tokens in ("word", "character", "subword"):
        vocabulary = Vocabulary.build(["a film", "a plot"], tokens=tokens)
        assert vocabulary.unknown == 1
        assert vocabulary.encode(["\u2603"])[0].tolist() == [vocabulary.unknown]


def ranks(values):
    """The rank of each value, of equal ones the mean."""
    return [(sum(other < one for other in values) + sum(other <= one for other in values)) / 2 for one in values]


def correlation(ones, others):
    return float(torch.corrcoef(torch.tensor([ranks(ones), ranks(others)]))[0, 1])


def odds(opened, texts, label):
    """The log-odds of a class of each text, one after another."""
    model, vocabulary = opened.load_model(), opened.words()
    place = opened.metadata.classes.index(label)
    with torch.no_grad():
        active = [float(model(vocabulary.read([text])).activations[0, place]) for text in texts]
    return [math.log(a / (1 - a)) for a in active]


def test_evidence_ranks_words_as_leaving_them_out_does(trained):
    opened = Run.open(trained)
    found = []
    for text in TEXTS:
        (one,) = explain_texts(opened, [text])[0]
        words = text.split()
        whole, *rest = odds(
            opened, [text, *(" ".join(words[:gone] + words[gone + 1 :]) for gone in range(len(words)))], one.label
        )
        found.append(correlation([word.evidence for word in one.words], [whole - each for each in rest]))
    assert sum(found) / len(found) > 0.9


def test_words_of_the_other_class_speak_against(trained):
    for one in (several[0] for several in explain_texts(Run.open(trained), TEXTS)):
        sign = {"good": 1, "bad": -1}[one.label]
        (best,), (worst,) = ([one.text[word.start : word.end] for word in one.strongest(1, how)] for how in (1, -1))
        assert sign * WEIGHTS[best] > 0 > sign * WEIGHTS[worst]


def test_removing_the_strongest_words_beats_removing_random_ones(trained):
    checks = [several[0].check for several in explain_texts(Run.open(trained), TEXTS)]
    assert {check.words for check in checks} == {1}
    assert all(check.removed < check.elsewhere - 0.05 for check in checks)


def test_facts_name_words_for_and_against_unknown_ones_and_the_check(trained, tmp_path, capsys):
    text = "the lovely zebra and dull zebra stripes"
    (one,) = explain_texts(Run.open(trained), [text])[0]
    assert [word.evidence for word in one.words if not word.known] == [0, 0, 0]
    page = tmp_path / "why.html"
    lines = said(capsys, "explain", trained, text, "--top", 1, "--html", page).splitlines()
    assert lines[0] == f"{one.label} ({one.confidence:.2f}): {text}"
    assert re.fullmatch(r"  words for (good: lovely|bad: dull) \+\d\.\d\d", lines[1])
    assert re.fullmatch(r"  words against (good: dull|bad: lovely) -\d\.\d\d", lines[2])
    assert lines[3].endswith("reads only that a word is unknown here: zebra, stripes")
    assert re.fullmatch(r"  without the strongest word \S+ -> \S+; without another random word \S+", lines[4])
    assert lines[5] == f"  n-grams with the strongest connection to {one.label}:"
    content = page.read_text()
    assert "not in the vocabulary" in content
    assert "class='against' title='-" in content
    ((told,),) = json.loads(said(capsys, "explain", trained, text, "--json"))
    assert told["words"][1].keys() == {"start", "end", "evidence", "strength", "known"}
    assert told["check"].keys() == {"words", "removed", "elsewhere"}
    assert told["ngrams"]


def test_colors_are_told_apart_by_hue_and_by_underline():
    text = "so good yet bad hm"
    words = [Word(0, 2, 0, 0), Word(3, 7, 2, 0), Word(8, 11, 0.5, 0), Word(12, 15, -1, 0), Word(16, 18, 0, 0, False)]
    one = Explanation(text, "x", 0.5, (), tuple(words))
    assert (
        colored(one)
        == "so \x1b[30;48;5;39mgood\x1b[0m \x1b[30;48;5;195myet\x1b[0m \x1b[30;48;5;222;4mbad\x1b[0m \x1b[2mhm\x1b[0m"
    )
    section = html_section(one, 2)
    assert "<span class='for' title='+2.00' style='background: rgb(86, 180, 233)'>good</span>" in section
    assert "<span class='against' title='-1.00' style='background: rgb(248, 208, 158)'>bad</span>" in section
    assert "<span class='unknown' title='not in the vocabulary'>hm</span>" in section
    assert facts(one, 2)[:2] == ["words for x: good +2.00, yet +0.50", "words against x: bad -1.00"]


def test_tokens_that_overlap_are_shown_once():
    one = Explanation("\u00e9t", "x", 0.5, (), (Word(0, 1, 1, 0), Word(0, 1, 0.5, 0), Word(1, 2, 0, 0)))
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored(one)) == "\u00e9t"
