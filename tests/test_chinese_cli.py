"""Chinese at the command line: from a table in GB 18030 to answers, pages and exported networks."""

import json
import random

import pytest

from tests.support.commands import run
from tests.test_text_cli import SLIM, said

GOOD, BAD = ["喜欢", "干净", "不错"], ["失望", "糟糕", "太差"]
FILLER = ["酒店", "房间", "服务", "早餐", "前台", "位置", "。", "的"]


def review(generator, words):
    parts = [generator.choice(FILLER) for _ in range(6)]
    parts.insert(generator.randrange(6), generator.choice(words))
    return "".join(parts)


@pytest.fixture(scope="module", params=["word", "character", "subword"])
def trained(request, tmp_path_factory):
    generator = random.Random(0)
    rows = [f"{review(generator, words)};{kind}" for kind, words in (("好", GOOD), ("坏", BAD)) for _ in range(60)]
    table = tmp_path_factory.mktemp("tables") / "reviews.csv"
    table.write_bytes("\n".join(["text;label", *rows]).encode("gb18030"))
    out = tmp_path_factory.mktemp("runs") / "reviews"
    more = ["--tokens", request.param, "--epochs", 25, "--batch-size", 20]
    assert run("train", table, *SLIM, *more, "--out", out) == 0
    return out


def test_chinese_is_learned_and_shown_as_chinese(trained, tmp_path, capsys):
    found = said(capsys, "evaluate", trained, "--json", "--baseline", "--no-pictures")
    results = json.loads(found)
    assert results["test"]["accuracy"] > 0.6
    assert results["logistic regression"]["accuracy"] > 0.9
    assert "好" in found
    answers = said(capsys, "predict", trained, "房间干净", "早餐糟糕", "--json")
    assert '"text": "房间干净"' in answers
    assert {label for answer in json.loads(answers) for label in answer["labels"]} <= {"好", "坏"}
    page = tmp_path / "why.html"
    told = json.loads(said(capsys, "explain", trained, "位置的房间很干净", "--json", "--html", page))
    assert told[0][0]["ngrams"][0]["text"] in "位置的房间很干净"
    assert "净" in page.read_text(encoding="utf-8")
    assert "坏" in (trained / "metadata.json").read_text(encoding="utf-8")


def test_figures_and_cards_of_chinese_classes_are_written(trained):
    assert run("evaluate", trained) == 0
    assert (trained / "evaluation" / "confusion.png").exists()
    assert "坏" in (trained / "README.md").read_text(encoding="utf-8")
