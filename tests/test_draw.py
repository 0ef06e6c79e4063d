"""`torchcaps draw`, as a user meets it."""

import json

import pytest
from PIL import Image

from tests.support.commands import SMALL, run, save_pictures
from torchcaps.apps.cli.commands.draw import DRAWINGS


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs on squares to the left and to the right, by routing; one without capsules."""
    folder = tmp_path_factory.mktemp("runs")
    pictures = save_pictures(folder / "squares", 12)
    for name in ("attention", "dynamic", "em"):
        assert run("train", pictures, *SMALL, "--routing", name, "--out", folder / name) == 0
    assert run("train", pictures, "--model", "cnn-small", "--epochs", 1, "--out", folder / "cnn") == 0
    return folder


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
    assert len(trace["steps"][0]["centers"]) == 4
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
        (["--routing", "em,seed=2"], "em,seed=2: expected only options of the routing after commas, got seed. "),
        (["--routing", "em,damping=much"], "em,damping=much: expected values that em takes, got could not convert"),
        (["--routing", "uniform"], "trace_clusters: expected a routing that iterates ("),
        (["--iterations", "0"], "em: expected iterations to be a whole number from 1 on, got 0. "),
    ],
)
def test_mistakes_in_clusters(capsys, words, said):
    assert run("draw", "clusters", *words) == 2
    assert capsys.readouterr().err.startswith(said)


@pytest.mark.parametrize("routing", ["dynamic", "em"])
def test_model_of_a_run(capsys, runs, routing):
    assert run("draw", "model", "--run", runs / routing, "--example", 1) == 0
    said = capsys.readouterr()
    names = [line.split("  ")[0] for line in said.out.splitlines()]
    assert names[:3] == ["image", "feature map", "primary capsules"]
    assert "class capsules" in names
    assert said.err.endswith("picture: model.png\n")
    assert run("draw", "model", "--run", runs / routing, "--json") == 0
    told = json.loads(capsys.readouterr().out)["stages"]
    assert [stage["name"] for stage in told] == names
    assert told[0]["how"] == ""


@pytest.mark.parametrize("routing", ["dynamic", "em"])
def test_convergence_of_a_run(capsys, runs, routing):
    assert run("draw", "convergence", "--run", runs / routing, "--out", "near.png") == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert lines[0] == "mean distance of votes (activation)"
    assert lines[1].split() == ["left", "(", "a)", "right", "(", "a)"]
    assert [line.split()[0] for line in lines[2:]] == [str(n + 1) for n in range(len(lines) - 2)]
    assert said.err.endswith("picture: near.png\n")


def test_convergence_as_json(capsys, runs):
    assert run("draw", "convergence", "--run", runs / "em", "--example", 2, "--part", "train", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["classes"] == ["left", "right"]
    assert len(told["labels"]) == 1
    assert [len(row) for row in told["mean_distances"]] == [2] * len(told["activations"])


def test_agreement_of_a_run(capsys, runs):
    assert run("draw", "agreement", "--run", runs / "dynamic", "--child", 3) == 0
    said = capsys.readouterr()
    first, second = said.out.splitlines()
    assert {first.split(":")[0], second.split(":")[0]} == {"child 3 and left", "child 3 and right"}
    assert "coupling 0.500 -> " in first
    assert said.err.endswith("picture: agreement.png\n")
    assert run("draw", "agreement", "--run", runs / "dynamic", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert sum(row["coupling_after"] for row in told["parents"]) == pytest.approx(1)


@pytest.mark.parametrize("routing", ["attention", "dynamic", "em"])
def test_split_of_a_run(capsys, runs, routing):
    assert run("draw", "split", "--run", runs / routing, "--parent", 1, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["parent"] == "right"
    assert set(told["couplings"]) == {"left", "right"}
    assert sum(told["parts"]) == pytest.approx(1, abs=1e-4)
    assert len(told["received"]) == 16
    assert run("draw", "split", "--run", runs / routing, "--child", 2) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("child 2 gives left ")
    assert " receives most from children " in lines[1]


def test_diagrams_are_drawn(capsys):
    assert run("draw", "weights", "--children", 6, "--parents", 2, "--child-dim", 4, "--parent-dim", 3) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["full", "12", "matrices", "144", "numbers"],
        ["shared", "2", "matrices", "24", "numbers"],
    ]
    assert run("draw", "text-model", "five words are enough here", "--model", "text-a") == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[0].split() == ["word", "vectors", "5", "x", "50"]
    assert said.err == "picture: text-model.png\n"


def test_viewpoints_are_drawn(capsys, monkeypatch):
    from tests.analysis.test_diagrams import VIEWS
    from torchcaps.data import DATASETS

    monkeypatch.setitem(DATASETS, "toys", lambda folder: VIEWS)
    assert run("draw", "viewpoints", "toys", "--kind", "cone") == 0
    said = capsys.readouterr()
    assert said.out == "cone 5: 2 familiar and 1 new views\n"
    assert said.err == "picture: viewpoints.png\n"


def test_runs_that_cannot_be_drawn(capsys, runs):
    for what in ("model", "convergence", "agreement", "split"):
        assert run("draw", what) == 2
        expected = f"draw {what}: expected a run of a network of capsules for images, got none. Train one (torchcaps "
        assert capsys.readouterr().err == f"{expected}train --out runs/mine) and name it with --run.\n"
        assert run("draw", what, "--run", runs / "cnn") == 2
        expected = f"draw {what}: expected a network of capsules for images, got SmallCNN. Train one on images, with "
        assert capsys.readouterr().err == f"{expected}--model efficient, capsnet or matrix-small.\n"
        assert run("draw", what, "--run", runs / "em", "--example", 99) == 2
        assert (
            capsys.readouterr().err
            == f"draw {what}: expected an example from 0 to 4, got 99. Choose another --example.\n"
        )
    assert run("draw", "agreement", "--run", runs / "em") == 2
    assert capsys.readouterr().err.startswith("agreement: expected a routing by inner product (attention, dynamic, ")
    assert run("draw", "text-model", "--run", runs / "em") == 2
    assert capsys.readouterr().err == "draw text-model: expected a run on texts, got one on images. Train on texts.\n"
    assert run("draw", "weights", "--children", 0) == 2
    assert capsys.readouterr().err.startswith("draw weights: expected children to be a whole number from 1 on, got 0.")
