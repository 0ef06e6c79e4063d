"""Runs that belong together: comparisons and viewpoints."""

import json
import math
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.support.commands import run, save_norb
from torchcaps._core.errors import InputError
from torchcaps.analysis.comparison import Comparison, Variant, paired_difference
from torchcaps.plots.compare import comparison_figure
from torchcaps.runs.config import TrainConfig
from torchcaps.train import viewpoints
from torchcaps.train.compare import _equal_budget, parse_vary, varied_config
from torchcaps.train.trials import Outcome
from torchcaps.train.viewpoints import ViewpointTest


def variant(*values, scores=(0.9, 0.9), **more):
    return Variant(values, scores, 100, 1.0, **more)


# What differs


def test_difference_is_that_of_pairs_with_students_interval():
    found = paired_difference((0.91, 0.93, 0.95), (0.90, 0.91, 0.92))
    assert found.mean == pytest.approx(2.0)
    half = 4.302653 * 1.0 / math.sqrt(3)  # t with 2 degrees of freedom, the pairs differ by 1, 2 and 3 points
    assert (found.low, found.high) == pytest.approx((2 - half, 2 + half), abs=1e-5)
    assert not found.beyond_noise
    assert paired_difference((0.91, 0.921, 0.93), (0.90, 0.91, 0.92)).beyond_noise  # they hardly vary
    assert not paired_difference((0.99,), (0.5,)).beyond_noise
    tied = paired_difference((7 / 12, 8 / 12), (6 / 12, 7 / 12), 12)  # one text of twelve, twice
    assert tied.mean == pytest.approx(100 / 12)
    assert not tied.beyond_noise


def test_verdicts_compare_with_the_first_value_others_being_equal():
    found = Comparison(
        ("model", "limit"),
        (
            variant("a", "10", scores=(0.5, 0.52)),
            variant("a", "20", scores=(0.8, 0.82)),
            variant("b", "10", scores=(0.6, 0.62)),
            variant("b", "20", scores=(0.8, 0.81)),
        ),
    )
    assert found.difference(found.variants[1]) is None
    assert found.difference(found.variants[2]).mean == pytest.approx(10)
    assert found.verdict(found.variants[2]).startswith("10.00 points above model a (95 %")
    assert found.verdict(found.variants[2]).endswith(": more than the noise")
    assert found.verdict(found.variants[3]).endswith(": within the noise")
    single = Comparison(("model",), (variant("a", scores=(0.5,)), variant("b", scores=(0.4,))))
    assert single.verdict(single.variants[1]).endswith(
        "10.00 points below model a; one seed tells nothing of the noise"
    )


def test_pictures_have_a_row_for_each_variant_or_curves_over_numbers():
    rows = comparison_figure(Comparison(("routing",), (variant("em"), variant("dynamic"))), "title")
    axes = rows.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["em", "dynamic"]
    assert axes.get_xlabel().startswith("accuracy on the test part")
    many = comparison_figure(Comparison(("routing",), (variant("em"), variant("dynamic")), "mean F1"), "title")
    assert many.axes[0].get_xlabel().startswith("mean F1 on the test part")
    variants = tuple(
        variant(model, size, scores=(float(size) / 2000,)) for model in "ab" for size in ("1000", "100", "300")
    )
    axes = comparison_figure(Comparison(("model", "limit"), variants), "title").axes[0]
    assert axes.get_xscale() == "linear"
    assert axes.get_xlabel() == "training examples"
    line = next(line for line in axes.get_lines() if len(line.get_xdata()) == 3)
    assert list(line.get_xdata()) == [100, 300, 1000]
    assert list(line.get_ydata()) == [0.05, 0.15, 0.5]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a", "b"]


# What is varied


def test_values_divide_at_commas_outside_of_brackets():
    assert parse_vary(["routing=em,dynamic", "ngrams=[1,2],[3]"]) == {
        "routing": ("em", "dynamic"),
        "ngrams": ("[1,2]", "[3]"),
    }


@pytest.mark.parametrize("text", ["routing", "routing=em", "=em,dynamic", "routing=em,,dynamic", "routing=em,em"])
def test_what_does_not_vary_is_refused(text):
    with pytest.raises(InputError, match=r"^vary: expected NAME=VALUE,VALUE,\.\.\."):
        parse_vary([text])


def test_values_become_fields_of_the_config_or_options_of_the_model():
    config = TrainConfig(option=("capsules=4", "leaky=true"))
    varied = varied_config(config, {"limit": "30", "lr": "0.1", "routing": "em", "capsules": "8", "compile": "false"})
    assert (varied.limit, varied.lr, varied.routing, varied.compile) == (30, 0.1, "em", False)
    assert varied.option == ("leaky=true", "capsules=8")
    with pytest.raises(InputError, match=r"^vary: expected values for limit, got 'many'"):
        varied_config(config, {"limit": "many"})


def test_models_of_other_recipes_get_the_epochs_of_the_first():
    config = TrainConfig("digits", model="efficient")
    fair = _equal_budget({("a",): config, ("b",): replace(config, model="matrix-small")})
    assert fair[("a",)].epochs == fair[("b",)].epochs is not None
    given = {("a",): replace(config, epochs=3), ("b",): replace(config, model="cnn-small", epochs=3)}
    assert _equal_budget(given) is given


# Commands


def test_compare_trains_every_variant_once(tmp_path, capsys):
    out = tmp_path / "compared"
    words = [
        "compare",
        "digits",
        "--limit",
        60,
        "--epochs",
        1,
        "--option",
        "capsules=8",
        "--vary",
        "routing=dynamic,uniform",
    ]
    words += ["--seeds", 1, "--out", out]
    assert run(*words) == 0
    said = capsys.readouterr().out
    assert "routing uniform: " in said
    assert "one seed tells nothing of the noise" in said
    results = json.loads((out / "results.json").read_text())
    assert [entry["values"] for entry in results["variants"]] == [["dynamic"], ["uniform"]]
    assert all(entry["memory"] > 1e8 and entry["parameters"] > 1000 for entry in results["variants"])
    assert (out / "compare.png").stat().st_size > 5000
    kept = out / "routing-uniform" / "seed-0" / "model.safetensors"
    before = kept.stat().st_mtime_ns
    capsys.readouterr()
    assert run(*words, "--json") == 0  # nothing is left to do
    assert json.loads(capsys.readouterr().out) == results
    assert kept.stat().st_mtime_ns == before
    assert results["measure"] == "accuracy"
    assert json.loads((out / "results.json").read_text()) == results
    assert run(*words[:-4], "--seeds", 2, "--out", out) == 2
    assert "expected the options that the compare began with, got another --seeds" in capsys.readouterr().err


def test_a_killed_comparison_takes_its_runs_along(tmp_path):
    words = ["digits", "--limit", 60, "--epochs", 100_000, "--option", "capsules=8", "--vary", "routing=uniform,em"]
    command = [sys.executable, "-m", "torchcaps", "compare", *map(str, words), "--out", str(tmp_path / "compared")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        while "epoch   1/" not in process.stderr.readline():
            assert process.poll() is None
        process.kill()
        process.communicate(timeout=60)  # the run holds the same pipe: it closes when both have ended


@pytest.mark.parametrize("same", [False, True])
def test_viewpoints_train_both_models_and_match_the_better_one(tmp_path, capsys, monkeypatch, same):
    monkeypatch.setattr(viewpoints, "alike", lambda one, other: same)
    data = save_norb(tmp_path / "data")
    words = ["viewpoint", "smallnorb", "--data-dir", data, "--size", 32, "--epochs", 1, "--limit", 20]
    words += ["--batch-size", 10]
    words += ["--model", "matrix-small", "--option", "sizes=[4,2,2,2]", "--iterations", 1]
    words += ["--viewpoint", "elevation"]
    out = tmp_path / "views"
    assert run(*words, "--out", out) == 0
    said = capsys.readouterr().out
    assert "atched (" in said
    results = json.loads((out / "results.json").read_text())
    models = ("matrix-small", "cnn-small")
    if same:
        assert results["matched"] == list(models)
        return
    better = max(models, key=lambda name: results[name]["validation"])
    assert results["matched"] == [f"{name}-matched" if name == better else name for name in models]
    matched = json.loads((out / f"{better}-matched" / "config.json").read_text())
    assert matched["stop_at"] == min(results[name]["validation"] for name in models)
    shutil.rmtree(out / "cnn-small")
    assert run(*words, "--out", out) == 0  # goes on with what is missing
    assert json.loads((out / "results.json").read_text())["cnn-small"]["score"] == results["cnn-small"]["score"]


def test_the_verdict_on_viewpoints_counts_errors_and_knows_its_noise():
    one = Outcome(0.9, 1000, 1, 1, 1.0, novel=0.8, novel_count=1000)
    found = ViewpointTest({"caps": one, "cnn": replace(one, novel=0.6)}, ("caps", "cnn"))
    how = "(90.0% and 90.0% on familiar viewpoints)"
    assert found.verdict() == f"Matched {how}, caps makes 50% fewer errors on novel ones than cnn."
    far = ViewpointTest({"caps": one, "cnn": replace(one, score=0.5, novel=0.4)}, ("caps", "cnn"))
    assert far.verdict().startswith("Not matched (90.0% and 50.0% on familiar viewpoints), caps makes")
    close = ViewpointTest({"caps": one, "cnn": replace(one, novel=0.81)}, ("caps", "cnn"))
    assert close.verdict().endswith("cnn makes 5% fewer errors on novel ones than caps, which is within the noise.")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["compare", "digits"], "compare: expected something to vary, got nothing"),
        (
            ["compare", "digits", "--vary", "seed=1,2"],
            "expected an option of training or of the model, got seed",
        ),
        (["compare", "digits", "--vary", "model=efficient,nonsense"], "got 'nonsense'"),
        (["compare", "digits", "--vary", "lr=1,2", "--seeds", "0"], "seeds to be a whole number from 1 on"),
        (["compare", "digits", "--vary", "lr=1,2", "--folds", "3"], "compare: expected no --folds"),
        (["compare", "digits", "--vary", "capsules=8,-1", "--epochs", "1", "--seeds", "1"], "capsules"),
        (["viewpoint", "digits"], "expected the azimuth of each image, got a set without views"),
        (["viewpoint", "toys", "--beside", "efficient"], "--beside: expected another model than --model"),
    ],
)
def test_mistakes_are_one_sentence_and_leave_nothing(words, sentence, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(*words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    (error,) = said.err.splitlines()  # before anything was trained, or announced
    assert sentence in error
    assert not list(tmp_path.glob("runs/*"))
