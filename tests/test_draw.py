"""`torchcaps draw`, as a user meets it."""

import json

import pytest
from PIL import Image

from tests.commands import run
from torchcaps.commands.draw import DRAWINGS


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_draw_lists_what_there_is(capsys):
    assert run("draw", "--help") == 0
    text = capsys.readouterr().out
    assert all(f"\n  {name} " in text for name in DRAWINGS)
    assert "examples:" in text


def test_draw_refuses_what_it_does_not_know(capsys):
    assert run("draw", "nonsense") == 2
    expected = f"torchcaps draw: expected {', '.join(DRAWINGS)}, got 'nonsense'. Try torchcaps draw --help.\n"
    assert capsys.readouterr().err == expected


def test_clusters_are_drawn_and_told(capsys, tmp_path):
    assert (
        run("draw", "clusters", "--routing", "gaussian,covariance=full", "--beside", "em", "--points", "ellipses") == 0
    )
    said = capsys.readouterr()
    assert said.err == "picture: clusters.png\n"
    lines = said.out.splitlines()
    assert lines[:2] == ["gaussian, covariance=full", "iteration  objective  purity  activations"]
    assert [line.split()[0] for line in lines[2:7]] == ["1", "2", "3", "4", "5"]
    assert lines[8] == "em"
    assert lines[10].split()[:2] == ["1", "-"]
    with Image.open("clusters.png") as picture:
        assert picture.width > picture.height > 500


def test_clusters_move_and_are_told_as_json(capsys):
    words = ["--iterations", 2, "--gif", "--out", "new/moving.gif", "--json", "--parents", 4]
    assert run("draw", "clusters", *words) == 0
    said = capsys.readouterr()
    (trace,) = json.loads(said.out)
    assert trace["routing"] == "em"
    assert len(trace["steps"]) == 2
    assert len(trace["steps"][0]["centres"]) == 4
    assert said.err == "picture: new/moving.gif\n"
    with Image.open("new/moving.gif") as picture:
        assert picture.n_frames == 2


def test_membership_is_drawn(capsys):
    assert run("draw", "membership", "--routing", "entropy", "--out", "fuzzy.svg") == 0
    assert capsys.readouterr().err == "picture: fuzzy.svg\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--out", "clusters.foo"], "--out: expected a file name that ends in .png, .svg, .pdf, got 'clusters.foo'. "),
        (["--gif", "--out", "x.png"], "--out: expected a file name that ends in .gif, got 'x.png'. Rename it.\n"),
        (["--routing", "em,seed=2"], "em,seed=2: expected options of the routing alone behind commas, got seed. "),
        (["--routing", "em,damping=much"], "em,damping=much: expected values that em takes, got could not convert"),
        (["--routing", "uniform"], "trace_clusters: expected a routing that iterates ("),
        (["--iterations", "0"], "em: expected iterations to be a whole number from 1 on, got 0. "),
    ],
)
def test_mistakes_in_clusters(capsys, words, said):
    assert run("draw", "clusters", *words) == 2
    assert capsys.readouterr().err.startswith(said)
