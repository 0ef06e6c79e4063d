"""Data larger than memory, as a user meets them: the same results, in memory that does not grow."""

import json
import os
import random
import subprocess
import sys
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.support.commands import SMALL, run, save_pictures

BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "streaming.py"


@pytest.fixture(autouse=True)
def _cache(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHCAPS_DATA", str(tmp_path / "cache"))


def save_table(path):
    draws = random.Random(0)
    words = {"good": ["lovely", "moving"], "bad": ["dull", "stale"]}
    kinds = [kind for kind in words for _ in range(40)]
    rows = [f"{' '.join(draws.choices([*words[kind], 'it', 'is'], k=draws.randint(1, 9)))},{kind}" for kind in kinds]
    path.write_text("\n".join(["text,label", *rows]) + "\n")
    return path


@pytest.mark.parametrize("kind", ["pictures", "texts"])
def test_a_run_on_data_from_disk_is_the_run_on_data_in_memory(tmp_path, monkeypatch, capsys, kind):
    pictures = kind == "pictures"
    data = save_pictures(tmp_path / "data") if pictures else save_table(tmp_path / "data.csv")
    options = [*SMALL, "--epochs", "2"] if pictures else ["--model", "textcnn", "--epochs", "2", "--max-length", "5"]
    answers = {}
    for most in ("1000000000", "0"):
        monkeypatch.setenv("TORCHCAPS_DATA_BYTES", most)
        out = tmp_path / most
        assert run("train", data, *options, "--out", out) == 0
        assert run("evaluate", out, "--no-pictures") == 0
        capsys.readouterr()
        assert run("predict", out, data, "--json") == 0
        answers[most] = json.loads(capsys.readouterr().out)
    memory, disk = (tmp_path / most for most in answers)
    for name in ("model.safetensors", "metadata.json", "split.json", "evaluation/results.json"):
        assert (memory / name).read_bytes() == (disk / name).read_bytes(), name
    assert answers["0"] == answers["1000000000"]
    assert len(answers["0"]) == (24 if pictures else 80)
    # A run is the same whichever way its data were read; another picture or text is noticed.
    assert run("evaluate", memory, "--no-pictures") == 0
    if pictures:
        Image.fromarray(np.zeros((20, 20), np.uint8)).save(data / "left" / "3.png")
    else:
        data.write_text(data.read_text().replace("dull", "lovely", 1))
    assert run("evaluate", memory, "--no-pictures") == 2
    assert f"other {'pixels' if pictures else 'texts'} or labels in the " in capsys.readouterr().err


def test_the_floor_needs_texts_in_memory(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TORCHCAPS_DATA_BYTES", "0")
    data = save_table(tmp_path / "data.csv")
    assert run("train", data, "--model", "textcnn", "--epochs", "1", "--out", tmp_path / "run") == 0
    assert run("evaluate", tmp_path / "run", "--baseline") == 2
    said = "--baseline: expected training texts that fit in memory, got 56 that are read from a file. "
    said += "Drop --baseline, or raise "
    assert said in capsys.readouterr().err


EPOCHS = """
import resource
import sys
from dataclasses import replace

import torch

from torchcaps.data import Vocabulary, make_parts, open_data


def epoch(source):
    parts = make_parts(open_data(source))
    assert len({part.fingerprint() for part in parts[:3]}) == 3
    train = parts.train
    if source.endswith("csv"):
        train = replace(train, vocabulary=Vocabulary.build(train.texts, longest=20), max_length=20)
    return sum(len(train.batch(rows).inputs) for rows in torch.randperm(len(train)).split(8))


def held():
    (line,) = (line for line in open("/proc/self/status") if line.startswith("VmData"))
    return int(line.split()[1]) * 1024


torch.set_num_threads(1)
epoch(sys.argv[1]), epoch(sys.argv[2])
resource.setrlimit(resource.RLIMIT_DATA, (held() + 32_000_000,) * 2)
for source in sys.argv[3:]:
    try:
        print(epoch(source))
    except (MemoryError, RuntimeError):
        print("no memory")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs the memory limits of Linux")
def test_an_epoch_of_data_three_times_the_memory(tmp_path):
    """The kernel allows 32 MB beyond a small epoch; the same in memory is refused, so that the limit is one."""
    generator = np.random.default_rng(0)
    for name, count in (("small", 60), ("large", 2000)):  # 98 MB
        for label in ("a", "b"):
            (tmp_path / name / label).mkdir(parents=True)
        for number in range(count):
            pixels = np.repeat(generator.integers(0, 256, (128, 1, 3), dtype=np.uint8), 128, axis=1)
            Image.fromarray(pixels).save(tmp_path / name / "ab"[number % 2] / f"{number}.ppm")
        rows = (f"{number}{' some words of a text' * 2400},{number % 2}\n" for number in range(count))  # 101 MB
        with (tmp_path / f"{name}.csv").open("w") as file:
            file.writelines(chain(["text,label\n"], rows))
    sources = [tmp_path / name for name in ("small", "small.csv", "large", "large.csv")]
    for most, expected in ((2**20, ["1400", "1400"]), (2**40, ["no memory", "no memory"])):
        environment = os.environ | {"TORCHCAPS_DATA_BYTES": str(most), "OMP_NUM_THREADS": "1"}
        words = [sys.executable, "-W", "ignore", "-c", EPOCHS, *map(str, sources)]
        done = subprocess.run(words, env=environment, capture_output=True, text=True)
        assert done.stdout.splitlines() == expected, done.stdout + done.stderr


@pytest.mark.slow
def test_all_commands_on_data_larger_than_memory():
    words = [sys.executable, BENCHMARK, "--megabytes", "300", "--limit", "64"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("fails") == 2  # in memory
