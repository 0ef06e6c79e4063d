"""The page on a run, in a real browser."""

import base64
import csv
import html
import json
import re

import pytest

from tests.support.commands import SMALL, run, save_norb, save_pictures
from torchcaps._core import pages
from torchcaps.apps.cli.main import main
from torchcaps.plots.training import training_figure


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    data = save_pictures(folder / "squares <&>", 30)
    assert run("train", data, *SMALL, "--epochs", 4, "--out", folder / "run") == 0
    assert run("jumble", folder / "run", "--count", 6) == 0
    assert run("strange", folder / "run", "--count", 6, "--against", "noise") == 0
    assert run("attack", folder / "run", "--count", 6, "--epsilons", 0.1, "--methods", "fgsm") == 0
    assert run("report", folder / "run", "--count", 10, "--device", "cpu") == 0
    return folder / "run"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1200])
def test_the_page_needs_nothing_and_fits(reported, open_page, scheme, width):
    address = (reported / "report.html").as_uri()
    page = open_page(address, viewport={"width": width, "height": 800}, color_scheme=scheme)
    assert page.complaints == []
    assert [url for url in page.requests if not url.startswith(("file:", "data:"))] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width  # nothing sticks out
    assert page.evaluate("[...document.images].every(image => image.complete && image.naturalWidth > 0 && image.alt)")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 31)"
    assert dark == (scheme == "dark")
    titles = page.locator("h2").all_inner_texts()
    assert {"Data", "Training", "Test", "Right and wrong", "How this was made"} <= set(titles)
    assert {"Reconstructions", "Routing trees", "Health of the routing"} <= set(titles)
    assert {"Attacks", "Jumbled parts", "Strange images"} <= set(titles)
    assert "left" in page.locator("table").first.inner_text()


def test_the_page_tells_what_the_run_knows(reported):
    text = html.unescape((reported / "report.html").read_text())
    with (reported / "metrics.csv").open() as file:
        epochs = len(list(csv.DictReader(file)))
    assert f"{epochs} epochs" in text
    assert "squares <&>" in text
    parameters = int(re.search(r"<b>([\d,]+)</b><span>parameters", text)[1].replace(",", ""))
    assert parameters > 1000


def test_the_page_tells_what_other_commands_have_found(reported):
    text = html.unescape((reported / "report.html").read_text())
    for name in ("jumble", "strange"):
        verdicts = json.loads((reported / name / "results.json").read_text())["verdicts"]
        assert verdicts
        assert all(f"<li>{verdict}</li>" in text for verdict in verdicts)
    for file in ("attack/curve.png", "jumble/confidence.png", "strange/roc.png"):
        assert base64.b64encode((reported / file).read_bytes()).decode() in text


def test_new_viewpoints_have_a_section(tmp_path):
    data = save_norb(tmp_path / "data")
    words = ["smallnorb", "--data-dir", data, "--size", 32, "--epochs", 1, "--limit", 20, "--viewpoint", "elevation"]
    assert run("train", *words, "--model", "cnn-small", "--out", tmp_path / "run") == 0
    assert run("evaluate", tmp_path / "run", "--no-pictures") == 0
    found = json.loads((tmp_path / "run" / "evaluation" / "results.json").read_text())["novel viewpoints"]
    assert run("report", tmp_path / "run") == 0
    text = (tmp_path / "run" / "report.html").read_text()
    assert "<h2>New viewpoints</h2>" in text
    row = f"<td>novel</td><td class=number>{found['examples']}</td><td class=number>{found['accuracy']:.2%}</td>"
    assert row in text
    assert not any(title in text for title in ("Attacks", "Jumbled parts", "Strange images"))  # nobody asked


def test_tables_and_paragraphs_escape_what_they_are_given():
    assert "<script>" not in pages.table([["<script>", 1]], ["<script>"]) + pages.paragraph("<script>")
    assert "<td class=number>12.5%</td>" in pages.table([["12.5%"]])
    assert "<td>--flag</td>" in pages.table([["--flag"]])


def test_curves_show_what_the_metrics_say():
    rows = [
        {
            "epoch": "1",
            "train_loss": "2",
            "validation_loss": "1",
            "train_accuracy": "0.5",
            "validation_accuracy": "0.6",
        },
        {
            "epoch": "2",
            "train_loss": "1",
            "validation_loss": "0.5",
            "train_accuracy": "0.7",
            "validation_accuracy": "0.8",
        },
    ]
    loss, accuracy = training_figure(rows).axes
    assert [list(line.get_ydata()) for line in loss.get_lines()] == [[2, 1], [1, 0.5]]
    assert [list(line.get_ydata()) for line in accuracy.get_lines()] == [[0.5, 0.7], [0.6, 0.8]]
    alone = [{**row, "validation_loss": "nan", "validation_accuracy": "nan"} for row in rows]
    assert len(training_figure(alone).axes[0].get_lines()) == 1


def test_a_folder_without_a_run_gets_one_sentence(tmp_path, capsys):
    assert main(["report", str(tmp_path)]) == 2
    assert "expected a run folder, got no config.json in it" in capsys.readouterr().err


def test_heads_of_tables_and_names_of_classes_do_not_break_inside_words(tmp_path, open_page):
    names = ["\u793e\u4f1a\u65b0\u95fb\u4e0e\u8d22\u7ecf\u62a5\u9053", "Donaudampfschifffahrtsgesellsch"]
    rows = [(name, "1,000", "99.50%", "a text of several words, longer than its cell " * 3) for name in names]
    file = tmp_path / "page.html"
    head = ["precision", names[0], names[1], "text"]
    file.write_text(pages.page("a page", pages.table(rows, head)), encoding="utf-8")
    shown = open_page(file.as_uri(), viewport={"width": 420, "height": 600})
    lines = """[...document.querySelectorAll("th, td:first-child")].map(cell => {
        const range = document.createRange(); range.selectNodeContents(cell);
        return new Set([...range.getClientRects()].map(box => box.top)).size; })"""
    assert shown.evaluate(lines) == [1] * 6
    assert shown.evaluate("document.documentElement.scrollWidth") <= 420
    shown.screenshot(path=tmp_path / "page.png")
