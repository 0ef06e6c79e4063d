"""Benchmarks compare like with like, and say what they found; nothing here is timed."""

import json
import sys

import pytest
import torch

from tests.support.commands import run
from torchcaps.apps.bench import CASES, bench, growth
from torchcaps.apps.bench.measure import interleaved, peak_memory
from torchcaps.models import create_model

SMALL = {
    "dense": {"batch": 5, "children": 20},
    "dense-last": {"batch": 5, "children": 20},
    "em-window": {"batch": 2, "grid": 7, "children": 3, "parents": 4},
    "em-grid": {"batch": 2, "grid": 7, "children": 3, "parents": 4},
    "capsnet": {"batch": 2},
    "matrix": {"batch": 2, "sizes": (4, 3, 2, 3)},
    "text": {"batch": 3, "words": 9, "capsules": 3},
}


def in_double(built):
    """What both sides give, and the gradients of a loss on it."""
    found = []
    for side in (built.textbook, built.torchcaps):
        results = side()
        loss = sum(part.square().sum() for part in results)
        found.append([*results, *torch.autograd.grad(loss, built.leaves)])
    return found


@pytest.mark.parametrize("name", CASES)
def test_both_sides_give_the_same_numbers_and_gradients(name):
    torch.set_default_dtype(torch.float64)
    try:
        textbook, own = in_double(CASES[name].make(**SMALL[name]))
    finally:
        torch.set_default_dtype(torch.float32)
    torch.testing.assert_close(own, textbook, rtol=1e-6, atol=1e-9)


def test_runs_take_turns_and_the_first_turn_is_not_counted():
    turns = []
    times = interleaved({"a": lambda: turns.append("a"), "b": lambda: turns.append("b")}, 2)
    assert turns == ["a", "b"] * 3
    assert [len(values) for values in times.values()] == [2, 2]


def allocate(megabytes):
    return lambda: torch.ones(megabytes * 2**18).sum()


def test_peak_memory_is_that_of_the_run():
    peak = peak_memory(allocate, 64)
    assert peak is None or 60 * 2**20 < peak < 100 * 2**20


def test_bench_writes_ratios_and_the_share_of_the_roofline(tmp_path, monkeypatch, capsys):
    small = {name: CASES[name].__class__(name, CASES[name].build, SMALL[name]) for name in ("dense", "em-grid")}
    for name, case in small.items():
        monkeypatch.setitem(CASES, name, case)
    bench(("dense", "em-grid"), 1, memory=False, out=tmp_path / "bench.json")
    rows = json.loads((tmp_path / "bench.json").read_text())["rows"]
    assert [(row["case"], row["work"]) for row in rows] == [
        ("dense", "forward"),
        ("dense", "forward + backward"),
        ("em-grid", "forward"),
        ("em-grid", "forward + backward"),
    ]
    assert all(row["ratio"] > 0 for row in rows)
    assert 0 < rows[1]["roofline"] < 1.5
    assert "of the roofline" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["sparse"], "expected case to be one of 'dense', 'dense-last'"),
        (["--repeats", "0"], "expected repeats"),
        (["--threads", "0"], "expected threads"),
    ],
)
def test_wrong_options_get_one_sentence(words, sentence, capsys):
    assert run("bench", *words) == 2
    assert sentence in capsys.readouterr().err


def test_an_exported_network_is_timed_against_torch(monkeypatch, capsys):
    model = create_model(
        "efficient", image_shape=(1, 28, 28), classes=2, encoder=torch.nn.Flatten(), capsules=4, decoder=False
    )
    monkeypatch.setattr("torchcaps.apps.bench.exported.create_model", lambda name, **sizes: model)
    rows = bench(("export",), 1)
    assert [row["work"] for row in rows] == ["forward, batch 1", "forward, batch 64"]
    assert all(set(row["seconds"]) == {"torch", "onnxruntime"} and row["ratio"] > 0 for row in rows)
    assert "images/s" in capsys.readouterr().out


def test_without_onnxruntime_the_export_is_left_out(monkeypatch, capsys):
    monkeypatch.setattr("torchcaps.apps.bench.run.CASES", {})
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert [row["case"] for row in bench((), 1)] == ["matrix-small"]


def test_growth_is_drawn(tmp_path, monkeypatch):
    monkeypatch.setitem(CASES, "dense", CASES["dense"].__class__("dense", CASES["dense"].build, SMALL["dense"]))
    monkeypatch.setattr("torchcaps.apps.bench.run.GROWTH", {"dense": {"batch": (1, 2), "iterations": (1, 2)}})
    assert growth(1, tmp_path / "new" / "growth.png").stat().st_size > 5_000
