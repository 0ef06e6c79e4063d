"""Detection of out-of-scope texts: by the confidence of a network, and by that of a logistic regression on words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from torchcaps.analysis.baselines import bag_of_words
from torchcaps.analysis.evaluate import Evaluation, evaluate
from torchcaps.analysis.strange import Roc, roc
from torchcaps.data import TextSet


def strange_text_test(
    model: nn.Module, train: TextSet, known: TextSet, strange: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, Roc]]:
    """For each kind of strange texts, the curve of each detector, beside texts of the classes of the network.

    The detectors are the highest activation, and the highest probability of a logistic regression (see `bag_of_words`).

    model: reads texts, one class each. train: what the regression learns from. known: texts like those of training.
    """
    ends = torch.tensor([len(texts) for texts in strange.values()]).cumsum(0) + len(known)
    texts = (*known.texts, *(text for several in strange.values() for text in several))
    every = replace(known, texts=texts, labels=torch.zeros(len(texts), dtype=torch.long), names=())
    found: dict[str, dict[str, Roc]] = {kind: {} for kind in strange}
    for word, result in (("confidence", evaluate(model, every)), ("logistic regression", bag_of_words(train, every))):
        ordinary, *others = _scores(result).tensor_split([len(known), *ends[:-1].tolist()])
        for kind, odd in zip(strange, others, strict=True):
            found[kind][word] = roc(ordinary, odd)
    return found


def _scores(result: Evaluation) -> Tensor:
    return 1 - result.activations.amax(-1)
