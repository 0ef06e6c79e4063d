"""Texts at the command line: from a table to an answer, and what may be wrong on the way."""

import csv
import io
import json
import random
import shutil

import pytest
import torch

import torchcaps as tc
from tests.support.commands import refused, run
from torchcaps.analysis.explain import Explanation, Word, colored, explain_texts, html_page, ngram_strengths
from torchcaps.analysis.similar import likeness
from torchcaps.models import create_model
from torchcaps.runs.run import Run
from torchcaps.train.trials import run_trial

SLIM = ["--model", "text-a", "--option", "filters=8", "--option", "capsules=4", "--option", "window_capsules=4"]
SLIM += [
    "--option",
    "capsule_dim=8",
    "--option",
    "dim=12",
    "--option",
    "dropout=0",
    "--option",
    "gradients=all",
    "--lr",
    "0.01",
]
WORDS = {"good": ["lovely", "moving", "bright"], "bad": ["dull", "lifeless", "stale"]}
FILLER = ["a", "the", "film", "plot", "scene", "with", "and", "some", "of", "it", "is", "was", "by", "one", "more"]


def sentence(generator, *kinds):
    words = [generator.choice(FILLER) for _ in range(generator.randint(5, 12))]
    for kind in kinds:
        words.insert(generator.randrange(len(words)), generator.choice(WORDS[kind]))
    return " ".join(words)


def write_table(path, rows, header=("text", "label")):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    generator = random.Random(0)
    rows = [(sentence(generator, kind), kind) for kind in ("good", "bad") for _ in range(90)]
    return write_table(tmp_path_factory.mktemp("tables") / "films.csv", rows)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, table):
    out = tmp_path_factory.mktemp("runs") / "films"
    assert run("train", table, *SLIM, "--epochs", 40, "--batch-size", 20, "--out", out) == 0
    return out


def said(capsys, *words):
    capsys.readouterr()
    assert run(*words) == 0
    return capsys.readouterr().out


def test_a_table_is_learned_and_evaluated_beside_its_floor(trained, capsys):
    results = json.loads(said(capsys, "evaluate", trained, "--json", "--baseline", "--no-pictures"))
    assert results["test"]["examples"] == 36
    assert results["test"]["accuracy"] > 0.9
    assert 0.5 < results["logistic regression"]["accuracy"] <= 1
    assert (
        "confusion.png" in {path.name for path in (trained / "evaluation").iterdir()} or run("evaluate", trained) == 0
    )


def test_texts_are_classified_from_arguments_files_and_standard_input(trained, tmp_path, capsys, monkeypatch):
    (tmp_path / "a.txt").write_text("a dull film of it\nsome lovely plot and more\n")
    write_table(tmp_path / "b.csv", [("1", "stale , lifeless scene")], ("id", "words"))
    monkeypatch.setattr("sys.stdin", io.StringIO("bright and moving\n"))
    words = ["predict", trained, "a moving film", tmp_path / "a.txt", tmp_path / "b.csv", "-", "--text", "words"]
    answers = json.loads(said(capsys, *words, "--json"))
    assert [answer["labels"] for answer in answers] == [["good"], ["bad"], ["good"], ["bad"], ["good"]]
    assert answers[0]["text"] == "a moving film"
    assert "good" in said(capsys, "predict", trained, "a lovely film")
    assert said(capsys, "predict", trained, "", "-- more")  # nothing to go by is no reason to fail


def test_answers_do_not_depend_on_what_is_asked_beside(trained):
    opened = Run.open(trained)
    together = tc.predict(opened, ["a dull film", "lovely " * 30, "it"])
    alone = [tc.predict(opened, [text])[0] for text in ("a dull film", "lovely " * 30, "it")]
    assert [one.labels for one in together] == [one.labels for one in alone]
    for one, other in zip(together, alone, strict=True):
        assert one.confidence == pytest.approx(other.confidence, abs=2e-4)


def test_explanations_point_at_the_words_that_tell(trained, tmp_path, capsys):
    texts = ["the plot of it was lovely by the film and more", "some of the scene is dull with one more plot"]
    for text, told in zip(texts, ("lovely", "dull"), strict=True):
        (one,) = explain_texts(Run.open(trained), [text])[0]
        strongest = max(one.words, key=lambda word: word.evidence)
        assert text[strongest.start : strongest.end] == told
        near = max(one.words, key=lambda word: word.strength)
        assert abs(near.start - text.index(told)) < 20
        assert any(told in ngram.text for ngram in one.ngrams)
        assert len(one.words) == len(text.split())
        assert text[one.ngrams[0].start : one.ngrams[0].end] == one.ngrams[0].text
    page = tmp_path / "sub" / "why.html"
    out = said(capsys, "explain", trained, *texts, "--html", page, "--top", 2)
    assert "lovely" in out
    assert page.read_text().count("<section>") == 2
    listed = json.loads(said(capsys, "explain", trained, texts[0], "--json"))
    assert listed[0][0]["label"] == "good"


def test_a_text_without_words_is_explained_by_none(trained, tmp_path, capsys):
    explained = explain_texts(Run.open(trained), ["", "a lovely film", "   "])
    assert [[bool(one.ngrams) for one in some] for some in explained] == [[False], [True], [False]]
    assert "lovely" in said(capsys, "explain", trained, "", "a lovely film", "--html", tmp_path / "why.html")


def test_texts_are_like_those_with_the_same_capsules(trained, capsys):
    texts = ["a lovely film of it", "the plot is dull", "some moving scene and more", "it was stale by the film"]
    rows = json.loads(said(capsys, "similar", trained, *texts, "--json", "--top", 1))
    assert [row["like"][0]["text"] for row in rows] == [texts[2], texts[3], texts[0], texts[1]]
    assert all(-1 <= row["like"][0]["likeness"] <= 1 for row in rows)
    assert texts[2] in said(capsys, "similar", trained, *texts)
    assert "expected at least two texts, got 1" in refused(capsys, "similar", trained, "one text")


def test_likeness_of_a_set_with_itself_is_one_and_with_its_opposite_minus_one():
    poses = torch.randn(3, 4, 5)
    torch.testing.assert_close(likeness(poses, poses).diagonal(), torch.ones(3))
    torch.testing.assert_close(likeness(poses, -poses).diagonal(), -torch.ones(3))
    expected = sum(float(poses[0, y] @ poses[1, y]) for y in range(4)) / float(poses[0].norm() * poses[1].norm())
    assert float(likeness(poses, poses)[0, 1]) == pytest.approx(expected, abs=1e-6)


def test_strengths_are_what_couplings_pass_on_in_plain_loops():
    torch.manual_seed(0)
    sizes = {"filters": 8, "capsules": 4, "window_capsules": 4, "capsule_dim": 8, "dim": 12}
    model = create_model("text-a", vocabulary=20, classes=2, **sizes).eval()
    tokens = torch.randint(2, 20, (1, 9))
    vectors, ends = model.features(tokens)
    branch = model.branches[0]
    children = branch.children_of(vectors, ends)
    first, last = branch.layers
    one, two = first.route(children).couplings[0], last.route(first(children).flatten()).couplings[0]
    active = children.activations[0]
    expected = torch.zeros(7, 3)
    for t in range(7):
        windows = [w for w in range(5) if w <= t < w + 3]
        for i in range(4):
            for w in windows:
                for j in range(4):
                    part = active[t, i] / active.sum() / len(windows) * one[w, t - w, i, j]
                    expected[t] += part * two[w * 4 + j]
    torch.testing.assert_close(ngram_strengths(branch, vectors, ends)[0], expected.detach())


def test_ngrams_that_reach_beyond_the_ends_are_shown_by_their_words(trained):
    (explanation,) = explain_texts(Run.open(trained), ["lovely film"], top=9)[0]
    texts = {ngram.text for ngram in explanation.ngrams}
    assert texts <= {"lovely", "film", "lovely film"}
    assert explanation.ngrams[0].text.startswith("lovely")
    assert [(word.start, word.end) for word in explanation.words] == [(0, 6), (7, 11)]


def test_pages_and_colors_keep_every_sign_of_a_text():
    text = "a <b> & 'c'\n d"
    one = Explanation(text, "x & y", 0.5, (), (Word(0, 1, 0.1, 0), Word(2, 5, -0.9, 0), Word(6, 7, 0, 0)))
    assert "&lt;b&gt;" in html_page([[one]], 3)
    assert "x &amp; y" in html_page([[one]], 3)
    plain = colored(one)
    for number in range(200, 256):
        plain = plain.replace(f"\x1b[30;48;5;{number};4m", "")
    assert plain.replace("\x1b[0m", "") == text


def test_any_number_of_labels_from_a_table(tmp_path, capsys):
    generator = random.Random(1)
    kinds = [(), ("good",), ("bad",), ("good", "bad")] * 40
    rows = [(sentence(generator, *each), "|".join(each)) for each in kinds]
    path = write_table(tmp_path / "many.csv", rows, ("words", "kinds"))
    out = tmp_path / "run"
    options = ["--text", "words", "--label", "kinds", "--separator", "|", "--out", out]
    assert run("train", path, *SLIM, "--epochs", 50, "--batch-size", 20, *options) == 0
    results = json.loads(said(capsys, "evaluate", out, "--json", "--baseline", "--no-pictures"))["test"]
    assert results["f1_micro"] > 0.8
    assert {"exact_match", "precision_samples", "recall_macro"} <= results.keys()
    assert results["accuracy"] == pytest.approx(results["exact_match"])
    assert "mean over examples: precision" in said(capsys, "evaluate", out)
    answers = json.loads(
        said(capsys, "predict", out, "a lovely scene and dull plot of it", "the film is one", "--json")
    )
    assert set(answers[0]["labels"]) == {"good", "bad"}
    assert answers[1]["labels"] == []
    single = write_table(tmp_path / "one.csv", [("lovely", "good"), ("dull", "bad")], ("words", "kinds"))
    assert run("evaluate", out, "--data", single, "--no-pictures") == 0
    outcome = run_trial(Run.open(out).config, out)  # as compare and folds see it
    assert (outcome.measure, outcome.score) == ("mean F1", pytest.approx(results["f1_samples"]))


def test_folds_are_one_command_that_can_be_interrupted(table, tmp_path, capsys):
    words = ["train", table, *SLIM, "--epochs", 1, "--folds", 3, "--out", tmp_path / "folds"]
    first = said(capsys, *words)
    assert first.count("fold 2 of 3") == 2
    results = json.loads((tmp_path / "folds" / "results.json").read_text())
    folds = [results[f"fold-{number}"] for number in (1, 2, 3)]
    assert results["mean"] == pytest.approx(sum(folds) / 3)
    assert f"mean of 3 folds: accuracy {results['mean']:.2%}" in first
    tested = said(capsys, "evaluate", tmp_path / "folds", "--baseline")
    assert "mean of 3 folds, and standard deviation" in tested
    assert f"test, accuracy                 {results['mean']:>7.2%}" in tested
    assert "logistic regression, macro F1" in tested
    means = json.loads(said(capsys, "evaluate", tmp_path / "folds", "--json"))["means"]
    assert means["test, accuracy"]["mean"] == pytest.approx(results["mean"])
    with (tmp_path / "folds" / "fold-1" / "evaluation" / "mistakes.csv").open(newline="") as file:
        assert all(sum(word in WORDS[row["label"]] for word in row["text"].split()) for row in csv.DictReader(file))
    shutil.rmtree(tmp_path / "folds" / "fold-3")
    assert "expected folds that are all trained, got 2 of 3" in refused(capsys, "evaluate", tmp_path / "folds")
    (tmp_path / "folds" / "fold-2" / "outcome.json").unlink()  # trained, but not yet tested
    again = said(capsys, *words)
    assert again.count("epoch ") == 1  # the third alone is trained
    assert json.loads((tmp_path / "folds" / "results.json").read_text()) == results
    (tmp_path / "folds" / "fold-2" / "outcome.json").unlink()
    assert "expected the options that the folds began with, got another --epochs" in refused(
        capsys, "train", table, *SLIM, "--epochs", 2, "--folds", 3, "--out", tmp_path / "folds"
    )
    assert "got another --folds" in refused(capsys, *words[:-4], "--folds", 2, "--out", tmp_path / "folds")
    assert "got another --seed" in refused(capsys, *words, "--seed", 4)


def test_other_tables_are_tested_whole_and_own_ones_keep_their_split(trained, table, tmp_path, capsys):
    generator = random.Random(5)
    rows = [(sentence(generator, kind), kind) for kind in ("good", "bad") for _ in range(120)]
    other = write_table(tmp_path / "longer.csv", rows)
    results = json.loads(said(capsys, "evaluate", trained, "--data", other, "--json", "--no-pictures"))
    assert results["test"]["examples"] == 240
    moved = tmp_path / "moved.csv"
    moved.write_bytes(table.read_bytes())
    results = json.loads(said(capsys, "evaluate", trained, "--data", moved, "--json", "--no-pictures"))
    assert results["test"]["examples"] == 36


def test_many_classes_and_few_capsules_start_at_ordinary_scales(tmp_path):
    rows = [(f"word{number} and more of it", f"class{number}") for number in range(60) for _ in range(4)]
    path = write_table(tmp_path / "many.csv", rows)
    small = ["--option", "filters=4", "--option", "capsules=2", "--model", "text-a", "--epochs", "3"]
    assert run("train", path, *small, "--out", tmp_path / "run") == 0
    model = Run.open(tmp_path / "run").load_model()
    assert all(layer.transform.weight.abs().max() < 100 for layer in model.routed_layers)


def test_shares_of_labels_need_a_routing_that_can_give_them(tmp_path, capsys):
    path = write_table(tmp_path / "a.csv", [("a b", "x;y"), ("b c", "y"), ("c", "x")] * 5)
    words = ["train", path, *SLIM, "--separator", ";", "--out", tmp_path / "run"]
    assert "expected independent class activations" in refused(capsys, *words, "--routing", "gaussian")
    assert not (tmp_path / "run").exists()
    assert "where several classes may be true" in refused(capsys, *words, "--loss", "spread")


def test_options_that_say_false_mean_it(table, tmp_path):
    for word, expected in (("False", False), ("true", True)):
        out = tmp_path / word
        words = [*SLIM, "--epochs", "1", "--option", f"leaky={word}", "--limit", "20"]
        assert run("train", table, *words, "--out", out) == 0
        assert Run.open(out).load_model().branches[0].layers[0].routing.leaky is expected


def test_tables_in_parts_keep_them(tmp_path, capsys):
    generator = random.Random(2)
    for name, count in (("train", 40), ("dev", 10), ("test", 12)):
        rows = [(sentence(generator, kind), kind) for kind in ("good", "bad") for _ in range(count // 2)]
        write_table(tmp_path / f"{name}.csv", rows)
    out = tmp_path / "run"
    assert run("train", tmp_path, *SLIM, "--epochs", 1, "--out", out) == 0
    names = json.loads((out / "split.json").read_text())
    assert {part: len(each) for part, each in names.items()} == {"train": 40, "validation": 10, "test": 12}
    assert json.loads(said(capsys, "evaluate", out, "--json", "--no-pictures"))["test"]["examples"] == 12


def test_word_vectors_are_read_once_and_travel_with_the_run(table, tmp_path, capsys):
    vectors = tmp_path / "v.txt"
    vectors.write_text("".join(f"{word} {number} 0 1\n" for number, word in enumerate(["dull", "lovely", "never"])))
    out = tmp_path / "run"
    slim = [word for word in SLIM if word != "dim=12"]
    slim = [word for number, word in enumerate(slim) if not (word == "--option" and slim[number + 1] == "--option")]
    assert run("train", table, *slim, "--epochs", 1, "--vectors", vectors, "--no-tune", "--out", out) == 0
    vectors.unlink()
    model, opened = Run.open(out).load_model(), Run.open(out)
    words = json.loads(opened.vocabulary.read_text())["model"]["vocab"]
    assert model.words.weight[words["lovely"]].tolist() == [1, 0, 1]
    assert model.words.weight[words["never"]].tolist() == [2, 0, 1]  # known, though no text of the table has it
    assert run("evaluate", out, "--no-pictures") == 0


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["train", "TABLE", "--text", "review"], "expected a column 'review', got 'text', 'label'"),
        (["train", "TABLE", "--model", "capsnet"], "expected a model for texts, got capsnet, which is for images"),
        (["train", "TABLE", "--size", "32"], "--size: expected images as data, got texts"),
        (["train", "TABLE", "--augment", "affine"], "--augment: expected images as data"),
        (["train", "TABLE", "--vectors", "nowhere.txt"], "--vectors: expected a file of word vectors"),
        (["train", "TABLE", "--vectors", "glove-6b-50d"], "pip install 'torchcaps[vectors]'"),
        (["train", "TABLE", "--fold", "3"], "--fold: expected a number from 1 to that of --folds"),
        (["train", "TABLE", "--option", "tune=false"], "expected no option that has a flag of its own, got tune"),
        (
            ["train", "TABLE", "--preset", "code", "--model", "textcnn"],
            "preset to be one of 'default', 'best', 'paper'",
        ),
        (["train", "digits", "--model", "text-b"], "expected a model for images, got text-b, which is for texts"),
        (["train", "digits", "--vectors", "v.txt"], "--vectors: expected texts as data, got images (digits)"),
        (["train", "digits", "--folds", "3"], "--folds: expected data in one piece"),
        (["train", "mr", "--data-dir", "/nowhere"], "mr: expected rt-polarity.neg, rt-polarity.pos in /nowhere/mr"),
        (["predict", "RUN", "nothere.csv"], "expected texts, or files of them, got nothere.csv, which is not there"),
        (["predict", "RUN"], "expected files or texts after the run, got none"),
        (["explain", "RUN", "a", "--top", "0"], "top to be a whole number from 1 on"),
        (["evaluate", "RUN", "--data", "digits"], "expected texts, like the data of this run, got images"),
        (
            ["evaluate", "RUN", "--data", "TABLE", "--baseline"],
            "--baseline: expected a run on texts, or on images of one class each, and its own data",
        ),
        (["train", "TABLE", "--separator", ""], "--separator: expected what stands between the labels"),
        (["train", "TABLE", "--label", "label", "--label", "label"], "--label: expected different columns"),
        (["train", "TABLE", "--no-tune", "--encoding", "klingon"], "--encoding: expected an encoding like utf-8"),
        (["train", "TABLE", "--vectors", "v.txt", "--option", "dim=3"], "--option dim: expected no --vectors"),
        (["train", "digits", "--no-tune"], "--tune: expected texts as data"),
        (["train", "trec", "--text", "a"], "--text, --label, --separator: expected a table, got trec"),
        (["predict", "RUN", "no such file.csv"], "got no such file.csv, which is not there"),
        (["predict", "RUN", "/tmp"], "got /tmp, which is a folder"),
        (["explain", "RUN"], "explain: expected texts, got none"),
    ],
)
def test_what_cannot_be_meant_gets_one_sentence(trained, table, capsys, words, expected):
    given = [{"TABLE": table, "RUN": trained}.get(word, word) for word in words]
    assert expected in refused(capsys, *given)


def test_labels_and_files_that_a_run_does_not_know(trained, table, tmp_path, capsys):
    other = write_table(tmp_path / "other.csv", [("a film", "good"), ("a plot", "odd")])
    assert "expected classes among bad, good, got odd" in refused(capsys, "evaluate", trained, "--data", other)
    changed = tmp_path / "copy"
    shutil.copytree(trained, changed)
    (changed / "vocabulary.json").write_text("[]")
    assert "expected the vocabulary of a run" in refused(capsys, "predict", changed, "a film")
    lines = table.read_text().splitlines()
    one = write_table(tmp_path / "one.csv", [line.split(",") for line in lines[1:] if line.endswith("good")])
    assert "at least two classes with examples, got good" in refused(capsys, "train", one)
    rare = write_table(tmp_path / "rare.csv", [*(line.split(",") for line in lines[1:]), ["odd one", "odd"]])
    refused_or_trained = run("train", rare, *SLIM, "--epochs", 1, "--out", tmp_path / "rare")
    assert refused_or_trained == 0  # a class with a single example is for training


def test_paper_and_code_presets_differ_as_their_sources_do(table, tmp_path):
    for preset, leaky, stride in (("paper", True, 1), ("code", False, 2)):
        out = tmp_path / preset
        words = ["--option", "capsules=2", "--option", "filters=2", "--limit", "20", "--epochs", "1"]
        assert run("train", table, "--model", "text-a", "--preset", preset, *words, "--out", out) == 0
        opened = Run.open(out)
        model = opened.load_model()
        routing = model.branches[0].layers[0].routing
        assert (routing.leaky, routing.amendment, model.branches[0].stride) == (leaky, leaky, stride)
        assert opened.config.batch_size == 25
        assert opened.config.down_weight == (0.25 if preset == "code" else None)
