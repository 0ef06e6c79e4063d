"""Baselines for comparison with text capsules.

`textcnn`: Kim 2014, "Convolutional Neural Networks for Sentence Classification". `bilstm`: a recurrent network
that reads both ways.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import dropout
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from torchcaps._core.errors import check_count
from torchcaps._core.types import Capsules
from torchcaps.models.ngrams import ngram_starts, real_ngrams
from torchcaps.models.textmodel import TextModel


class _TextNetwork(TextModel):
    """A plain network that returns capsules: the pose of a class is its logit.

    vocabulary, classes and further arguments: see `TextModel`. many: any number of classes may be true; activations are
    then sigmoids, otherwise a softmax.
    """

    routes = False
    readout = "logit"
    head: nn.Linear

    def __init__(self, vocabulary: int, classes: int, *, many: bool = False, **options: Any) -> None:
        super().__init__(vocabulary, classes, **options)
        self.many = many

    def answer(self, features: Tensor) -> Capsules:
        """The class capsules of pooled features [b c]."""
        logits = self.head(dropout(features, 0.5, self.training))
        return Capsules(logits.unsqueeze(-1), logits.sigmoid() if self.many else logits.softmax(-1))


class TextCNN(_TextNetwork):
    """Kim 2014: convolutions over n-grams, max pooling over positions, dropout, one linear layer.

    ngrams: the lengths of n-grams, one convolution for each. filters: channels of each convolution. padding: pad texts
    so that n-grams may reach beyond the first and the last word, as in the author's code; no better in our experiments.
    """

    def __init__(
        self,
        vocabulary: int,
        classes: int,
        *,
        ngrams: tuple[int, ...] = (3, 4, 5),
        filters: int = 100,
        padding: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(vocabulary, classes, **options)
        for ngram in ngrams:
            check_count("TextCNN", "ngrams", ngram)
        check_count("TextCNN", "filters", filters)
        self.shortest = 1 if padding else max(ngrams)
        self.padding = padding
        self.convolutions = nn.ModuleList(
            nn.Conv1d(self.dim, filters, ngram, padding=ngram - 1 if padding else 0) for ngram in ngrams
        )
        self.head = nn.Linear(filters * len(ngrams), classes)

    def forward(self, tokens: Int[Tensor, "b t"] | Float[Tensor, "b t c"]) -> Capsules:
        vectors, ends = self.features(tokens)
        pooled = []
        for convolution in self.convolutions:
            found = torch.relu(convolution(vectors))
            (ngram,) = convolution.kernel_size  # type: ignore[misc]
            starts = ngram_starts(found.shape[2], ngram, 1, self.padding).to(ends.device)
            inside = real_ngrams(starts, ngram, ends, self.padding)
            pooled.append((found * inside.unsqueeze(1)).amax(2))  # nothing is below zero after relu
        return self.answer(torch.cat(pooled, 1))


class BiLSTM(_TextNetwork):
    """A bidirectional LSTM, max pooling over words, dropout, one linear layer.

    hidden: the size of the hidden state in each direction.
    """

    def __init__(self, vocabulary: int, classes: int, *, hidden: int = 100, **options: Any) -> None:
        super().__init__(vocabulary, classes, **options)
        check_count("BiLSTM", "hidden", hidden)
        self.recurrent = nn.LSTM(self.dim, hidden, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * hidden, classes)

    def forward(self, tokens: Int[Tensor, "b t"] | Float[Tensor, "b t c"]) -> Capsules:
        vectors, ends = self.features(tokens)
        packed = pack_padded_sequence(vectors.transpose(1, 2), ends.cpu(), batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.recurrent(packed)[0], batch_first=True)
        outside = torch.arange(states.shape[1], device=ends.device) >= ends.unsqueeze(1)
        return self.answer(states.masked_fill(outside.unsqueeze(-1), -torch.inf).amax(1))
