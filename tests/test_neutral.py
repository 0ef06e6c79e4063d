"""Names and texts of strangers: shown as they are, stored without loss, never obeyed by terminals or spreadsheets."""

import csv
import io
import json
import os
import subprocess
import sys

import pytest

from tests.support.commands import SMALL, run, save_pictures
from torchcaps._core.errors import input_error
from torchcaps._core.fields import as_json
from torchcaps._core.neutral import NeutralStream, csv_cell, neutral_output, shown, terminal
from torchcaps.runs.run import Run

LATIN = os.fsdecode(b"caf\xe9")  # a name that is not UTF-8
EVIL = "\x1b[2Jnew\nline\x9b31m\u202e<img src=x>"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run on folders whose names are hard: not UTF-8, control characters, HTML, a formula."""
    data = save_pictures(tmp_path_factory.mktemp("data") / "pictures", 12)
    (data / "left").rename(data / LATIN)
    (data / "right").rename(data / EVIL)
    for number, name in enumerate((f"=1+{LATIN}.png", "<img onerror=x>.png", f"{EVIL}.png")):
        (data / EVIL / f"{number}.png").rename(data / EVIL / name)
    out = tmp_path_factory.mktemp("runs") / "run"
    assert run("train", data, *SMALL, "--out", out) == 0
    return out


def test_what_is_no_visible_sign_is_escaped():
    assert shown(EVIL) == "\\x1b[2Jnew\\nline\\x9b31m\\u202e<img src=x>"
    assert shown(LATIN) == "caf\\xe9"
    assert shown("胶囊 café 🙂") == "胶囊 café 🙂"


def test_complaints_are_one_line():
    assert "\n" not in str(input_error(EVIL, EVIL, EVIL, "Do something else."))


def test_json_has_letters_of_every_script_and_stays_valid(monkeypatch):
    said = as_json({"a": f"胶囊 café 🙂 {EVIL}{LATIN}\x7f"})
    assert "胶囊 café 🙂" in said
    assert shown(said, lines=True) == said
    assert json.loads(said)["a"].startswith("胶囊 café 🙂 \x1b[2J")
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="cp1252"))
    assert as_json("胶") == '"\\u80f6"'


def test_streams_keep_lines_and_tabs_only():
    stream = io.StringIO()
    print(f"a\tb\n{EVIL}{LATIN}", file=NeutralStream(stream))
    assert stream.getvalue() == "a\tb\n\\x1b[2Jnew\nline\\x9b31m\\u202e<img src=x>caf\\xe9\n"


def test_signs_that_a_stream_cannot_encode_are_escaped():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    NeutralStream(stream).write("胶")
    stream.flush()
    assert stream.buffer.getvalue() == b"\\u80f6"


def test_output_is_as_it_was_afterwards():
    before = sys.stdout
    with neutral_output():
        assert terminal(sys.stdout) is before
    assert sys.stdout is before


@pytest.mark.parametrize("cell", ["=1+1", "+1", "-1", "@x", "\t=1"])
def test_cells_are_no_formulas(cell):
    assert csv_cell(cell)[0] == "'"
    assert csv_cell("plain") == "plain"


def test_classes_that_are_not_utf8_are_stored_and_found_again(trained):
    found = Run.open(trained)
    assert sorted(found.metadata.classes) == sorted((LATIN, EVIL))
    parts = found.load_parts()
    assert {name.split("/")[0] for name in parts.train.names} == {LATIN, EVIL}
    assert set(found.split_names()["train"]) == set(parts.train.names)


@pytest.mark.parametrize(
    "words",
    [
        ["evaluate", "RUN"],
        ["evaluate", "RUN", "--json", "--no-pictures"],
        ["report", "RUN", "--count", "8"],
        ["health", "RUN", "--count", "8", "--no-ablate"],
        ["jumble", "RUN", "--count", "8"],
        ["explain", "RUN", "--example", "0"],
        ["predict", "RUN", "DATA"],
        ["predict", "RUN", "DATA", "--json"],
        ["export", "RUN", "--torch"],
        ["list", "runs", "--folder", "RUN"],
    ],
    ids=" ".join,
)
def test_hard_names_never_reach_the_terminal(trained, capsys, words):
    data = Run.open(trained).config.data
    assert run(*({"RUN": trained, "DATA": data}.get(word, word) for word in words)) == 0
    out, err = capsys.readouterr()
    assert not {*out, *err} & {"\x1b", "\x9b", "\u202e", "\udce9"}
    assert "new\nline" not in out + err
    if "--json" in words:
        json.loads(out)


def test_the_table_of_mistakes_is_safe_in_a_spreadsheet(trained, capsys):
    assert run("evaluate", trained, "--part", "train", "--no-pictures") == 0
    (folder,) = (trained / "evaluation").glob("*-train")
    rows = list(csv.DictReader(io.StringIO((folder / "mistakes.csv").read_text(encoding="utf-8"))))
    assert rows
    assert all(not value.startswith(("=", "+", "-", "@")) for row in rows for value in row.values())


def test_the_card_shows_names_as_they_are(trained):
    card = (trained / "README.md").read_text(encoding="utf-8")
    (row,) = (line for line in card.splitlines() if line.startswith("| classes"))
    assert "caf\\\\xe9" in row
    assert "\\\\x1b\\[2Jnew\\\\nline" in row
    assert "&lt;img src=x&gt;" in row
    assert "<img" not in card


def test_a_script_with_names_that_are_not_utf8_goes_on(trained, tmp_path):
    data = Run.open(trained).config.data
    words = [sys.executable, "-m", "torchcaps", "predict", str(trained), os.path.join(data, LATIN)]
    done = subprocess.run(words, capture_output=True, env={**os.environ, "PYTHONUTF8": "0", "LC_ALL": "C.UTF-8"})
    assert done.returncode == 0, done.stderr
    assert b"caf\\xe9/" in done.stdout
