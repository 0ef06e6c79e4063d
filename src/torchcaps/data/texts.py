"""Labeled texts, and vocabularies."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from torchcaps._core.errors import InputError, input_error, shape_text
from torchcaps._core.files import atomic_write, read_text
from torchcaps.data.base import Batch, Labeled
from torchcaps.data.disk_store import Names, Numbers, Records, pick
from torchcaps.data.words import PADDING, UNKNOWN, beginning, make_tokenizer, tokenizers_package

MOST_BYTES = 1 << 30  # of a vocabulary
FEWEST = 1000  # words, below which it says little that most occur once


class Vocabulary:
    """A vocabulary: splits texts into words and maps them to token indices.

    tokenizer: a `Tokenizer` of the package tokenizers, in which padding has index 0 and the unknown word index 1.
    """

    padding = 0
    special = False  # whether there are special tokens around a text

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    @classmethod
    def build(
        cls,
        texts: Iterable[str],
        more: Sequence[str] = (),
        size: int = 100_000,
        longest: int | None = None,
        tokens: str = "word",
    ) -> Vocabulary:
        """Build a vocabulary of the words of texts, the most frequent first, then `more`, in total at most `size`.

        longest: the number of words of a text that will be read; words far behind are not counted. tokens: "word"
        (characters of scripts without spaces are words), "character", or "subword", which learns parts of words. A
        warning tells where most words occur once.
        """
        tokenizer, counts = make_tokenizer(texts, more, size, longest, tokens)
        once = sum(count == 1 for count in counts.values())
        if tokens == "word" and 2 * once > counts.total() >= FEWEST:
            what = f"{once:,} of {counts.total():,} words occur only once, so that little can be learned from them"
            warnings.warn(f"{what}: --tokens subword learns parts of words", stacklevel=2)
        return cls(tokenizer)

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        """Load a vocabulary that `save` wrote to path."""
        try:
            tokenizer = tokenizers_package().Tokenizer.from_str(read_text(path, MOST_BYTES))
            if tokenizer.padding is not None:  # of an encoder
                from torchcaps.data.subwords import Subwords

                return Subwords(tokenizer)
            vocabulary = cls(tokenizer)
            numbers = vocabulary.tokenizer.get_vocab()
            if [numbers.get(word) for word in (PADDING, UNKNOWN)] != [0, 1]:
                raise ValueError(f"no {PADDING} and {UNKNOWN} as words number 0 and 1")
            if sorted(numbers.values()) != list(range(len(numbers))):
                raise ValueError("words that are not numbered one after another")
            vocabulary.cut("a text")  # fails here if the tokenizer is invalid
            return vocabulary
        except InputError:
            raise
        except Exception as error:  # tokenizers raises plain Exceptions
            raise input_error(str(path), "the vocabulary of a run", error, "Train or copy the run anew.") from None

    def save(self, path: Path) -> None:
        """Write the vocabulary to path, in the JSON format of tokenizers."""
        atomic_write(path, self.to_json())

    def to_json(self) -> str:
        """The vocabulary in the JSON format of tokenizers."""
        return str(self.tokenizer.to_str())

    def __len__(self) -> int:
        return int(self.tokenizer.get_vocab_size())

    @property
    def unknown(self) -> int:
        """The index of the unknown word."""
        return int(self.tokenizer.token_to_id(self.tokenizer.model.unk_token or UNKNOWN))

    @property
    def words(self) -> list[str]:
        """All words, in the order of their indices."""
        numbers = self.tokenizer.get_vocab()
        return sorted(numbers, key=numbers.__getitem__)

    def encode(self, texts: Sequence[str], longest: int | None = None) -> list[Tensor]:
        """The token indices of each text; if longest is given, of long texts at least the first `longest`."""
        given = [beginning(text, longest) for text in texts]
        found = self.tokenizer.encode_batch(given, add_special_tokens=self.special)
        return [torch.tensor(encoding.ids, dtype=torch.long) for encoding in found]

    def limit(self, longest: int | None) -> int | None:
        """The number of words of a text that are read if `longest` were asked for; None for all."""
        return longest

    def shorten(self, row: Tensor, longest: int | None) -> Tensor:
        """The token indices of a text that are read: the first `longest`."""
        return row[:longest]

    def read(self, texts: Sequence[str], longest: int | None = None) -> Tensor:
        """Token indices [b t] of the first `longest` words of each text, padded."""
        return padded([self.shorten(row, longest) for row in self.encode(texts, self.limit(longest))], self.padding)

    def cut(self, text: str, longest: int | None = None) -> list[tuple[str, int, int]]:
        """Split a text into the words that are read, each with its start and end position."""
        offsets = self.tokenizer.encode(text, add_special_tokens=False).offsets[:longest]
        return [(text[start:end], start, end) for start, end in offsets]


def padded(rows: Sequence[Tensor], padding: int = 0) -> Tensor:
    """Stack rows of token indices to [b t]. padding: the index that shorter rows end with."""
    if not len(rows):
        return torch.zeros(0, 0, dtype=torch.long)
    return pad_sequence(list(rows), batch_first=True, padding_value=padding)


@dataclass(frozen=True)
class TextSet(Labeled):
    """Labeled texts.

    texts: a sequence of str. labels: class indices [n], or truth values [n y] if any number of classes may be true.
    classes: their names. names: a name for each text, such as its file and row; default: its row. vocabulary,
    max_length: for `batch`, which reads at most max_length words of a text.
    """

    texts: Names
    labels: Tensor
    classes: tuple[str, ...]
    names: Names = ()
    vocabulary: Vocabulary | None = field(default=None, compare=False)
    max_length: int | None = None
    kind = "texts"

    def __post_init__(self) -> None:
        if not self.names:
            object.__setattr__(self, "names", tuple(map(str, range(len(self.texts)))))
        count = len(self.texts)
        many = self.labels.ndim == 2
        shape = (count, len(self.classes)) if many else (count,)
        kind = torch.bool if many else torch.long
        if self.labels.shape != shape or self.labels.dtype != kind or len(self.names) != count:
            got = f"{shape_text(self.labels.shape)} of {self.labels.dtype} and {len(self.names)} names"
            expected = f"{count} names, and class indices [{count}] or truth values [{count} {len(self.classes)}]"
            raise input_error("TextSet", expected, got, "Give one for each text.")
        if count and not many and not 0 <= int(self.labels.min()) <= int(self.labels.max()) < len(self.classes):
            got = f"{int(self.labels.min())} to {int(self.labels.max())}"
            raise input_error("TextSet", f"labels from 0 to {len(self.classes) - 1}", got, "Name every class.")

    @property
    def many(self) -> bool:
        """Whether a text may belong to any number of classes."""
        return self.labels.ndim == 2

    def content_sum(self) -> int:
        result = 0
        for row, text in enumerate(self.texts):
            result = zlib.crc32((b"\0" if row else b"") + text.encode("utf-8", "surrogatepass"), result)
        return result

    def take(self, indices: Tensor) -> TextSet:
        if indices.dtype == torch.bool:
            indices = indices.nonzero().squeeze(-1)
        texts, names = pick(self.texts, indices), pick(self.names, indices)
        return replace(self, texts=texts, labels=self.labels[indices], names=names)

    @cached_property
    def encoded(self) -> Numbers:
        """The token indices of each text, up to max_length."""
        if self.vocabulary is None:
            raise input_error("TextSet", "a vocabulary", "none", "Use dataclasses.replace(texts, vocabulary=...).")
        records, cut, longest = Records("texts"), 0, self.vocabulary.limit(self.max_length)
        texts = (beginning(text, longest) for text in self.texts)
        while few := list(islice(texts, 1000)):
            for row in self.vocabulary.encode(few, longest):
                cut += longest is not None and len(row) > longest
                records.append(self.vocabulary.shorten(row, longest).int().numpy().tobytes())
        if cut:
            what = f"{cut:,} of {len(self):,} texts are longer than {longest} words; the rest of them is not read"
            warnings.warn(what, stacklevel=3)
        return Numbers(records)

    @cached_property
    def lengths(self) -> Tensor:
        """The number of words of each text that are read, [n]."""
        return self.encoded.lengths()

    def batch(self, indices: Tensor) -> Batch:
        """The texts with these indices [b] as token indices [b t], and their labels."""
        rows = [self.encoded[row] for row in indices.tolist()]
        return Batch(padded(rows, 0 if self.vocabulary is None else self.vocabulary.padding), self.labels[indices])


def truth_values(label_sets: Sequence[Sequence[str]], classes: Sequence[str]) -> Tensor:
    """Convert sets of labels to truth values [n y]."""
    places = {name: place for place, name in enumerate(classes)}
    values = torch.zeros(len(label_sets), len(classes), dtype=torch.bool)
    for row, labels in enumerate(label_sets):
        for label in labels:
            values[row, places[label]] = True
    return values
