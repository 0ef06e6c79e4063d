"""Answers to texts: what was not read, what is not known, tables of answers."""

import csv
import json
import random

import pytest

import torchcaps as tc
from tests.support.commands import refused, run
from tests.test_text_cli import SLIM, said, sentence, write_table
from torchcaps.runs.run import Run


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    generator = random.Random(0)
    rows = [(sentence(generator, kind), kind) for kind in ("good", "bad") for _ in range(110)]
    table = write_table(tmp_path_factory.mktemp("tables") / "films.csv", rows)
    out = tmp_path_factory.mktemp("runs") / "films"
    words = ["--epochs", 25, "--batch-size", 20, "--max-length", 15, "--out", out]
    assert run("train", table, *SLIM, *words) == 0
    return out


def test_texts_that_were_cut_are_counted(trained, capsys):
    capsys.readouterr()
    assert run("predict", trained, "lovely " * 16, "a dull film", "dull " * 15) == 0
    assert "1 of 3 texts are longer than 15 words; the rest of them is not read" in capsys.readouterr().err


def test_unknown_words_are_counted_beside_each_answer(trained, capsys):
    words = ["predict", trained, "a lovely zebra", "a dull film"]
    assert " 33% unknown" in said(capsys, *words)
    answers = json.loads(said(capsys, *words, "--json"))
    assert [answer["unknown"] for answer in answers] == [0.3333, 0.0]
    assert [answer.unknown for answer in tc.predict(Run.open(trained), ["a lovely zebra", ""])] == [0.3333, 1.0]


def test_texts_without_a_known_word_have_no_answer(trained, capsys):
    answers = json.loads(said(capsys, "predict", trained, "", "zebras yodel", "a lovely film", "--json", "--top-k", 2))
    assert [answer["labels"] for answer in answers[:2]] == [["do not know"]] * 2
    assert answers[2]["labels"][0] == "good"
    assert len(answers[2]["labels"]) == 2


def test_probabilities_of_texts_are_calibrated(trained, capsys):
    (answer,) = json.loads(said(capsys, "predict", trained, "a lovely film", "--json"))
    assert sum(answer["likely"].values()) == pytest.approx(1, abs=1e-3)
    assert answer["probabilities"] == [max(answer["likely"].values())]


def test_tables_of_answers_have_the_columns_of_the_table(trained, tmp_path, capsys):
    (tmp_path / "new.csv").write_text('id;text;note\n7;"a lovely film; really";=1+1\n8;a dull plot;\n')
    (tmp_path / "new.jsonl").write_text('{"text": "a dull film", "stars": 3, "note": null}\n')
    out = tmp_path / "answers.csv"
    said(capsys, "predict", trained, tmp_path / "new.csv", tmp_path / "new.jsonl", "a lovely plot", "--csv", out)
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[:7] == ["id", "text", "note", "stars", "input", "class", "probability"]
    assert list(rows[0])[7:] == ["unknown words", "probability of bad", "probability of good"]
    assert [row["id"] for row in rows] == ["7", "8", "", ""]
    assert [row["class"] for row in rows] == ["good", "bad", "bad", "good"]
    assert [row["note"] for row in rows] == ["'=1+1", "", "", ""]
    assert rows[2]["stars"] == "3"
    assert rows[3]["input"] == "a lovely plot"


def test_tables_of_answers_are_read_as_those_of_training(trained, tmp_path, capsys):
    (tmp_path / "new.csv").write_bytes("1|schön, lovely\n2|a dull film\n".encode("cp1252"))
    words = ["predict", trained, tmp_path / "new.csv", "--text", 2, "--json"]
    answers = json.loads(said(capsys, *words, "--delimiter", "|"))
    assert [answer["text"] for answer in answers] == ["schön, lovely", "a dull film"]
    assert "expected one character between cells" in refused(capsys, *words, "--delimiter", "")


def test_strange_texts_are_found_beside_a_regression_on_words(trained, tmp_path, capsys):
    generator = random.Random(3)
    (tmp_path / "other.txt").write_text("".join(f"{sentence(generator)}\n" for _ in range(40)))
    write_table(tmp_path / "more.csv", [(sentence(generator, "good", "bad"),) for _ in range(20)], ("text",))
    against = ["--against", tmp_path / "other.txt", tmp_path / "more.csv"]
    found = json.loads(said(capsys, "strange", trained, *against, "--json"))
    assert found["examples"] == 44
    other, more = (found["against"][str(tmp_path / name)] for name in ("other.txt", "more.csv"))
    assert (other["examples"], more["examples"]) == (40, 20)
    assert other["confidence"]["area"] > 0.6
    assert 0 <= other["logistic regression"]["area"] <= 1
    assert (trained / "strange" / "roc.png").exists()
    assert "logistic regression" in said(capsys, "strange", trained, *against[:2], "--count", 20)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--against: expected texts for a run on texts, got noise"),
        (["--against", "digits"], "--against: expected texts for a run on texts, got digits, which are images"),
        (["--against", "EMPTY"], "expected texts, got none"),
    ],
)
def test_strange_texts_must_be_given(trained, tmp_path, capsys, words, message):
    (tmp_path / "empty.txt").write_text("\n")
    given = [str(tmp_path / "empty.txt") if word == "EMPTY" else word for word in words]
    assert message in refused(capsys, "strange", trained, *given)
