"""Vocabularies of pretrained encoders: their own tokenizers, with padding and special tokens of their own."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

import torch
from torch import Tensor

from torchcaps._core.errors import input_error
from torchcaps.data.texts import Vocabulary


class Subwords(Vocabulary):
    """The vocabulary of a pretrained encoder: parts of words, with special tokens before and after each text.

    tokenizer: a `Tokenizer` of the package tokenizers. Its `padding` has the index of padding, its `truncation` the
    largest number of tokens that the encoder reads.
    """

    special = True

    def __init__(self, tokenizer: Any) -> None:
        super().__init__(tokenizer)
        self.stored = tokenizer.to_str()
        self.padding = int(tokenizer.padding["pad_id"])
        self.most = int(tokenizer.truncation["max_length"])
        if not 0 <= self.padding < len(self):
            raise ValueError(f"a padding of number {self.padding}, which is no token")
        tokenizer.no_padding()
        tokenizer.no_truncation()
        special = tokenizer.encode("a").special_tokens_mask
        self.after = len(list(takewhile(bool, reversed(special))))  # special tokens at the end, such as [SEP]
        if self.most <= len(list(takewhile(bool, special))) + self.after:
            raise ValueError(f"{self.most} tokens of a text, which leave no room beside special ones")

    def to_json(self) -> str:
        return self.stored

    def __len__(self) -> int:
        return 1 + max(self.tokenizer.get_vocab().values())

    def limit(self, longest: int | None) -> int:
        return self.most if longest is None else min(longest, self.most)

    def shorten(self, row: Tensor, longest: int | None) -> Tensor:
        longest = self.limit(longest)
        if len(row) <= longest:
            return row
        kept = max(0, longest - self.after)
        return torch.cat([row[:kept], row[len(row) - self.after :]])[:longest]

    def cut(self, text: str, longest: int | None = None) -> list[tuple[str, int, int]]:
        """Split a text into the tokens that are read, each with its start and end position.

        Special tokens have their names, and no width: those before the text start at 0, those after it at its end.
        """
        found = self.tokenizer.encode(text)
        rows = self.shorten(torch.arange(len(found.ids)), longest).tolist()
        tokens, position = [], 0
        for row in rows:
            start, end = found.offsets[row]
            named = text[start:end]
            if found.special_tokens_mask[row] and start == end:
                named, start, end = found.tokens[row], position, position
            tokens.append((named, start, end))
            position = max(position, end)
        return tokens


def subwords(owner: str, content: str, padding: int | None, most: int, known: int) -> Subwords:
    """The vocabulary of a tokenizer.json for an encoder.

    owner: named in error messages. content: of the file. padding: the index of padding; None for that of the file.
    most: the largest number of tokens of a text. known: the number of tokens that the encoder knows.
    """
    import tokenizers

    remedy = "Save it with save_pretrained of a fast tokenizer."
    try:
        tokenizer = tokenizers.Tokenizer.from_str(content)
        if padding is None and tokenizer.padding is not None:
            padding = int(tokenizer.padding["pad_id"])
        name = None if padding is None else tokenizer.id_to_token(padding)
        if name is None:
            raise ValueError("no token for padding")
        tokenizer.enable_padding(pad_id=padding, pad_token=name)
        tokenizer.enable_truncation(most)
        found = Subwords(tokenizer)
    except Exception as error:  # tokenizers raises plain Exceptions
        raise input_error(owner, "the tokenizer of an encoder", error, remedy) from None
    if len(found) > known:
        raise input_error(owner, f"tokens below {known}, as the encoder has", len(found) - 1, remedy)
    return found
