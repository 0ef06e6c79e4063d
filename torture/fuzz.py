"""Mutated files for every reader: a valid result or a sentence, and nothing else; no hang, no explosion of memory."""

from __future__ import annotations

import gzip
import io
import json
import random
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save
from scipy.io import savemat

from torchcaps._core.errors import InputError
from torchcaps.data import Columns, load_folder, load_idx, load_npz, load_table, read_vectors, write_norb
from torchcaps.data.eth80 import eth80
from torchcaps.data.photos import _cifar, _read_mat
from torchcaps.data.smallnorb import load_norb
from torchcaps.data.texts import Vocabulary
from torchcaps.runs.config import TrainConfig, save_config
from torchcaps.runs.metadata import load_metadata, load_resolved
from torchcaps.runs.recipes import resolve
from torchcaps.runs.weights import load_weights
from torture.limits import Hang, in_memory, in_time, muted, overheard
from torture.mutate import mutated
from torture.result import Result, resident

ROOM = 3 << 30  # Pillow's own limit is 89 million pixels, of four bytes, in several copies

NORB: dict[str, np.ndarray] = {
    "images": np.random.default_rng(0).integers(0, 256, (6, 2, 8, 8), dtype=np.uint8),
    "labels": np.arange(6, dtype=np.int32) % 5,
    "info": np.zeros((6, 4), np.int32),
}


class Reader(NamedTuple):
    """A reader, the name of the file that is broken, whole contents for it, and what wraps a broken one."""

    name: str
    file: str
    contents: Sequence[bytes]
    read: Callable[[Path], object]
    wrap: Callable[[bytes], bytes] | None = None


def _pictures(kind: str) -> list[bytes]:
    draw = np.random.default_rng(0)
    found = []
    for mode, shape in (("L", (12, 10)), ("RGB", (12, 10, 3)), ("RGBA", (9, 9, 4)), ("P", (16, 16))):
        picture = Image.fromarray(draw.integers(0, 256, shape, dtype=np.uint8), None if mode == "P" else mode)
        picture = picture.convert("RGB") if mode == "RGBA" and kind in ("JPEG", "BMP") else picture
        picture = picture.convert("P") if mode == "P" and kind not in ("JPEG",) else picture
        for options in ({}, {"compression": "tiff_lzw"}) if kind == "TIFF" else ({},):
            buffer = io.BytesIO()
            picture.save(buffer, kind, **options)
            found.append(buffer.getvalue())
    return found


def _folder(path: Path) -> object:
    """The folder reader on a folder where one picture of two is broken."""
    size = 8 if path.stat().st_size % 2 else None
    return load_folder(path.parent.parent, size=size)


def _idx(shape: tuple[int, ...], kind: int = 8, dtype: str = ">u1") -> bytes:
    head = bytes([0, 0, kind, len(shape)]) + b"".join(size.to_bytes(4, "big") for size in shape)
    values = np.arange(int(np.prod(shape))) % 7
    return head + values.astype(dtype).tobytes()


def _norb(*arrays: np.ndarray) -> list[bytes]:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for array in arrays:
            write_norb(Path(folder) / "x.mat", array)
            found.append((Path(folder) / "x.mat").read_bytes())
    return found


def _npz(arrays: dict[str, np.ndarray], save: Any = np.savez) -> bytes:
    buffer = io.BytesIO()
    save(buffer, **arrays)
    return buffer.getvalue()


def _mat(packed: bool) -> bytes:
    buffer = io.BytesIO()
    pixels = np.zeros((32, 32, 3, 2), np.uint8)
    savemat(buffer, {"X": pixels, "y": np.array([[1], [10]], np.uint8)}, do_compression=packed)
    return buffer.getvalue()


def _tar() -> bytes:
    buffer = io.BytesIO()
    image = bytes([1]) + bytes(3 * 32 * 32)
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in (("names", b"plane\ncar\n"), ("train", image * 10), ("test", image)):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _cifar_of(path: Path) -> object:
    return _cifar(path, "names", ["train"], "test", 1)


def _config() -> list[bytes]:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for config, texts in ((TrainConfig(data="digits"), False), (TrainConfig(data="x.csv", label=("a", "b")), True)):
            save_config(resolve(config, 1000, texts=texts), Path(folder) / "config.json")
            found.append((Path(folder) / "config.json").read_bytes())
    return found


def readers() -> list[Reader]:
    """Every reader of files that a user may bring."""
    draw = np.random.default_rng(0)
    numbers = draw.integers(0, 256, (6, 2, 8, 8), dtype=np.uint8)
    images, labels, info = _norb(*NORB.values())
    (wrong,) = _norb(np.linspace(0, 1, 6))
    small: dict[str, np.ndarray] = {"images": numbers[:, 0], "labels": np.arange(6) % 2}
    named: dict[str, np.ndarray] = {
        "images": np.linspace(0, 1, 6 * 27).reshape(6, 3, 3, 3),
        "labels": np.array(list("aabbcc")),
    }
    views = {word: np.arange(6) for word in ("instance", "elevation", "azimuth")}
    eth = _npz({"images": numbers[:, 0], "category": np.arange(6) % 2, **views})
    table = 'text,label\r\n"a ""good"" film",1\nbad,0\n"two\nlines",1\n,\nügly — “x”,2\n'
    rows = [{"text": "a good film", "label": "x"}, {"text": 1.5, "label": None}, {"text": "\ud83d", "label": 3}]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    words = "".join(f"{word} 0.1 -2e-3 {number}\n" for number, word in enumerate(("the", ",", "a b", "é")))
    vocabulary = Vocabulary.build(["a good film", "it isn't bad"]).tokenizer.to_str().encode()
    facts = {"classes": ["a", "b"], "image_shape": [1, 8, 8], "fits": 0.5, "fingerprints": {"train": "0"}}
    state = {"a.weight": torch.rand(3, 4), "b": torch.tensor(2), "c": torch.rand(2, 2).half()}

    def pair(path: Path) -> object:
        return load_idx(path, path.with_name("labels"))

    def label_file(path: Path) -> object:
        return load_idx(path.with_name("images"), path, tuple("0123456"))

    def norb(path: Path) -> object:
        given = {word: path.with_name(f"norb-{word}") for word in NORB} | {path.stem: path}
        return load_norb(given["images"], given["labels"], given["info"])

    def vocabulary_of(path: Path) -> object:
        return Vocabulary.load(path).read(["a good film isn't", "", "ü \0"], 20)

    several = Columns(label=("label", "text"))
    kinds = {"png": "PNG", "jpg": "JPEG", "gif": "GIF", "bmp": "BMP", "tif": "TIFF"}
    return [
        *(Reader(name, f"b/broken.{name}", _pictures(kind), _folder) for name, kind in kinds.items()),
        Reader("idx", "images.idx", [_idx((6, 4, 4)), _idx((6, 4, 4), 14, ">f8")], pair),
        Reader("idx labels", "labels.idx", [_idx((6,)), _idx((6,), 13, ">f4")], label_file),
        Reader("idx.gz", "images.gz", [gzip.compress(_idx((6, 4, 4)))], pair),
        Reader("idx in gz", "images.gz", [_idx((6, 4, 4)), _idx((6, 4, 4), 12, ">i4")], pair, gzip.compress),
        Reader("npz", "set.npz", [_npz(small), _npz(named), _npz(small, np.savez_compressed)], load_npz),
        Reader("npz of eth-80", "eth-80/x.npz", [eth], lambda path: eth80(path.parent.parent)),
        Reader("norb", "images.mat", [images, labels], norb),
        Reader("norb labels", "labels.mat", [labels, wrong], norb),
        Reader("norb info", "info.mat", [info, wrong], norb),
        Reader("norb.gz", "images.gz", [gzip.compress(images)], norb),
        Reader("norb in gz", "images.gz", [images], norb, gzip.compress),
        Reader("mat", "train.mat", [_mat(False), _mat(True)], _read_mat),
        Reader("tar.gz of cifar", "cifar.tar.gz", [gzip.compress(_tar())], _cifar_of),
        Reader("tar of cifar in gz", "cifar.tar.gz", [_tar()], _cifar_of, gzip.compress),
        Reader("csv", "table.csv", [table.encode(), table.encode("utf-16")], load_table),
        Reader("csv, classes", "table.csv", [b"text,label\n1,0\n0,1\n"], lambda path: load_table(path, several)),
        Reader("tsv", "table.tsv", [table.replace(",", "\t").encode()], load_table),
        Reader("csv.gz", "table.csv.gz", [gzip.compress(table.encode())], load_table),
        Reader("jsonl", "table.jsonl", [lines.encode()], load_table),
        Reader("config", "config.json", _config(), load_resolved),
        Reader("facts", "metadata.json", [json.dumps(facts).encode()], load_metadata),
        Reader("vocabulary", "vocabulary.json", [vocabulary], vocabulary_of),
        Reader("vectors", "v.txt", [words.encode(), b"4 3\n" + words.encode()], lambda path: _vectors(path)),
        Reader("vectors.gz", "v.txt.gz", [gzip.compress(words.encode())], lambda path: _vectors(path)),
        Reader("weights", "model.safetensors", [save(state), save(state, {"crc32": "00000000"})], load_weights),
    ]


def _vectors(path: Path) -> object:
    return read_vectors.__wrapped__(str(path))  # without its cache


def _lay_out(folder: Path) -> None:
    """The whole files that stand beside a broken one."""
    for name in ("a", "b", "eth-80"):
        (folder / name).mkdir()
    Image.new("RGB", (12, 10), "red").save(folder / "a" / "whole.png")
    (folder / "labels").write_bytes(_idx((6,)))
    (folder / "images").write_bytes(_idx((6, 4, 4)))
    for name, array in NORB.items():
        write_norb(folder / f"norb-{name}", array)


def try_reader(reader: Reader, count: int, seed: int = 0) -> Result:
    """So many broken files for one reader."""
    result = Result("fuzz", reader.name)
    draw = random.Random(f"{seed} {reader.name}")
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as place, muted() as said:
        folder = Path(place)
        _lay_out(folder)
        path = folder / reader.file
        for _ in range(count):
            content = mutated(draw.choice(reader.contents), reader.contents, draw)
            path.write_bytes(content if reader.wrap is None else reader.wrap(content))
            _try(reader, path, content, result)
        spoken = list(said)
    if spoken and reader.name == "tif":
        result.outcomes["lines of libtiff"] = len(spoken)
    elif spoken:
        result.faults.append(f"{len(spoken)} lines on standard error: {spoken[0]}")
    result.seconds = time.perf_counter() - started
    return result


def _try(reader: Reader, path: Path, content: bytes, result: Result) -> None:
    before = resident()
    shown = f"{content[:60]!r} ({len(content)} bytes)"
    with overheard() as heard:
        try:
            with in_memory(ROOM), in_time():
                reader.read(path)
            outcome = "read"
        except InputError as error:
            outcome = "refused" if len(str(error).splitlines()) == 1 else f"a message of many lines for {shown}"
        except (Exception, Hang) as error:
            outcome = f"{type(error).__name__}: {str(error)[:100]} for {shown}"
    if outcome not in ("read", "refused"):
        result.fault(outcome)
    elif heard:
        result.fault(f"{heard[0]} for {shown}")
    elif resident() - before > 1 << 30:
        result.fault(f"{(resident() - before) >> 20} MB for {shown}")
    else:
        result.ended(outcome)


def run(inputs: int, seed: int = 0) -> list[Result]:
    """So many broken files in all."""
    every = readers()
    return [try_reader(reader, -(-inputs // len(every)), seed) for reader in every]
