"""Data on disk: they are what they would be in memory, and their file is nowhere to be seen."""

import dataclasses
import gzip
import json
import os
import shutil
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest
import torch
from PIL import Image

from torchcaps._core.errors import InputError
from torchcaps.data import Columns, Stack, Strings, Vocabulary, load_folder, load_table, make_parts, open_data
from torchcaps.data.disk_store import Numbers, Records


@pytest.fixture
def on_disk(monkeypatch, tmp_path):
    """Everything goes to disk, into this folder."""
    monkeypatch.setenv("TORCHCAPS_DATA_BYTES", "0")
    monkeypatch.setenv("TORCHCAPS_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


def save_pictures(folder, color):
    generator = np.random.default_rng(1)
    for number in range(30):
        place = folder / ("a", "a-b", "c")[number % 3] / str(number % 2)
        place.mkdir(parents=True, exist_ok=True)
        pixels = generator.integers(0, 256, (6, 9, 3 if color else 1), dtype=np.uint8)
        Image.fromarray(np.repeat(pixels, 1 if color else 3, axis=2)).save(place / f"{number}.png")
    (folder / "c" / "broken.png").write_bytes(b"no picture")
    return folder


def loaded(path, monkeypatch, most, **options):
    monkeypatch.setenv("TORCHCAPS_DATA_BYTES", str(most))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is left out
        return open_data(str(path), **options)


@pytest.mark.parametrize("color", [None, False, True])
@pytest.mark.parametrize("colored", [False, True])
def test_pictures_on_disk_are_those_in_memory(on_disk, tmp_path, monkeypatch, colored, color):
    folder = save_pictures(tmp_path / "pictures", colored)
    memory, disk = (loaded(folder, monkeypatch, most, color=color) for most in (10**9, 0))
    assert isinstance(memory.images, torch.Tensor)
    assert isinstance(disk.images, Stack)
    assert isinstance(disk.names, Strings)
    assert disk.image_shape == memory.image_shape == (3 if color or (color is None and colored) else 1, 6, 9)
    assert tuple(disk.names) == memory.names
    for here, there in zip(make_parts(memory)[:3], make_parts(disk)[:3], strict=True):
        assert isinstance(there.images, Stack)
        assert there.fingerprint() == here.fingerprint()
        assert tuple(there.names) == here.names
        rows = torch.randperm(len(here))
        for mine, other in zip(here.batch(rows)[:2], there.batch(rows)[:2], strict=True):
            assert torch.equal(mine, other)
    assert torch.equal(disk.images[4], memory.images[4])
    assert torch.equal(disk.take(disk.labels == 1).images[torch.arange(3)], memory.images[memory.labels == 1][:3])
    smaller = disk.resize(4)
    assert isinstance(smaller.images, Stack)
    assert torch.equal(
        smaller.images[torch.arange(30)], loaded(folder, monkeypatch, 10**9, color=color).resize(4).images
    )
    assert len(disk.images[torch.arange(0)]) == 0


@pytest.mark.parametrize("columns", [Columns(), Columns(separator=" "), Columns(label=("x", "y"))])
def test_texts_on_disk_are_those_in_memory(on_disk, tmp_path, monkeypatch, columns):
    rows = [
        {"text": f"Grüße {number} " + "wörd " * (number % 7), "label": "bca"[number % 3], "x": number % 2, "y": 1}
        for number in range(40)
    ]
    rows[3]["text"] = None
    (tmp_path / "parts").mkdir()
    for name in ("train", "test"):
        with gzip.open(tmp_path / "parts" / f"{name}.jsonl.gz", "wt") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    memory, disk = (loaded(tmp_path / "parts", monkeypatch, most, columns=columns) for most in (10**9, 0))
    vocabulary = Vocabulary.build(memory.train.texts)
    assert Vocabulary.build(disk.train.texts).words == vocabulary.words
    for here, there in zip(memory[:3], disk[:3], strict=True):
        assert isinstance(there.texts, Strings)
        assert isinstance(there.names, Strings)
        assert tuple(there.texts) == here.texts
        assert tuple(there.names) == here.names
        assert there.names[0].startswith(("train.jsonl.gz:", "test.jsonl.gz:"))
        assert there.classes == here.classes
        assert there.fingerprint() == here.fingerprint()
        with pytest.warns(UserWarning, match="texts are longer than 4 words"):
            here, there = (_readable(part, vocabulary, 4) for part in (here, there))
        assert torch.equal(there.lengths, here.lengths)
        for mine, other in zip(here.batch(torch.arange(3))[:2], there.batch(torch.arange(3))[:2], strict=True):
            assert torch.equal(mine, other)


def _readable(texts, vocabulary, longest):
    texts = dataclasses.replace(texts, vocabulary=vocabulary, max_length=longest)
    assert len(texts.encoded) == len(texts)
    return texts


def test_numbers_are_as_they_were_put_in(on_disk):
    records = Records("test")
    rows = [[5, 2**31 - 1], [], [7]]
    for row in rows:
        records.append(np.array(row, np.int32).tobytes())
    numbers = Numbers(records).pick(torch.tensor([2, 0, 1]))
    assert [row.tolist() for row in numbers] == [[7], [5, 2**31 - 1], []]
    assert numbers.lengths().tolist() == [1, 2, 0]


def test_few_stay_in_memory_and_many_move(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHCAPS_DATA_BYTES", "5000")
    monkeypatch.setenv("TORCHCAPS_DATA", str(tmp_path / "cache"))
    records = Records("test")
    for number in range(100):
        assert records.on_disk == (number * 110 > 5000)  # ten bytes, and what Python adds to each
        records.append(b"%10d" % number)
    assert [int(records.read(row)) for row in range(100)] == list(range(100))
    assert records.read(7, 9) == b"         "


def test_the_file_has_no_name_and_goes_with_those_who_hold_it(on_disk):
    records = Records("test")
    records.append(b"x" * 10**6)
    number = records.file.fileno()
    assert os.fstat(number).st_nlink == 0
    assert list(on_disk.iterdir()) == []
    picked = Strings(records).pick(torch.tensor([0]))
    del records
    assert os.fstat(number).st_size == 10**6
    del picked
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)


def test_many_threads_read_at_once(on_disk):
    records = Records("test")
    for number in range(500):
        records.append(str(number).encode() * 50)
    strings, wrong = Strings(records), []

    def read():
        wrong.extend(row for row in range(500) if strings[row] != str(row) * 50)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# Mistakes


def test_no_room_on_the_disk_is_said_before_the_work(on_disk, tmp_path):
    on_disk.mkdir()
    free = shutil.disk_usage(on_disk).free
    said = r"photos: expected [\d,.]+ GB free in .*cache for data that do not fit in memory, got [\d,.]+ GB\. Make room"
    with pytest.raises(InputError, match=said):
        Records("photos", free * 2)
    with (tmp_path / "table.csv").open("wb") as file:
        file.truncate(free * 2)  # a hole, which takes no room
    with pytest.raises(InputError, match="Make room, or let TORCHCAPS_DATA name another folder"):
        load_table(tmp_path / "table.csv")


def test_a_folder_that_cannot_be_made_is_one_sentence(on_disk):
    on_disk.write_text("a file where a folder should be")
    with pytest.raises(InputError, match=r"photos: expected room in .*cache for data .*, got \[Errno 17\] File exists"):
        Records("photos", 10)


def test_a_full_disk_is_one_sentence(on_disk):
    code = """
import resource, signal
from torchcaps.data.disk_store import Records
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
records = Records("photos")
for number in range(100):
    records.append(bytes(10_000))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "InputError: photos: expected room in " in done.stderr
    assert "got [Errno 27] File too large. Make room, or let" in done.stderr


@pytest.mark.parametrize("text", ["", "1 GB", "-1"])
def test_limit_that_is_no_number(monkeypatch, tmp_path, text):
    monkeypatch.setenv("TORCHCAPS_DATA_BYTES", text)
    with pytest.raises(InputError, match=f"TORCHCAPS_DATA_BYTES: expected a number of bytes, got '{text}'. Set it to "):
        load_folder(save_pictures(tmp_path / "pictures", False))
