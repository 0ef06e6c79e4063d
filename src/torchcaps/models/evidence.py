"""What words say for classes by themselves, beside the capsules of a text: a linear model of words and of their pairs.

With few texts for each class, words alone generalize better than n-grams whose capsules have to be learned; with more,
both together are better than either.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from torchcaps._core.types import Capsules
from torchcaps.functional import unit
from torchcaps.models.textmodel import UNKNOWN

LEAST, MOST = 8, 64  # numbers for each word, from which its evidence is made: one for each class within these limits
PAIRS = 65_521  # rows for pairs of words, which share them by chance; a prime
SPREAD = 31_337  # between the rows of pairs whose first words are neighbors in the vocabulary
SCALE = 5.0  # of the evidence: how fast the tables learn, beside other parameters
DECAY = 30.0  # of the tables: times that of other parameters
ALONE = 0.3  # of the examples in training: answered without words, and as many by words alone


class WordEvidence(nn.Module):
    """The evidence of words and pairs of neighboring words for each class: tokens [b t] to log-odds [b y].

    Every word and every pair has a row of a table; rows are summed, divided by the square root of their number, and
    mapped to classes. All rows are zero at first. Unknown words say nothing. A row has as many numbers as there are
    classes, but at least 8 and at most 64; pairs share 65,521 rows.

    vocabulary: the number of words. classes: the number of classes.
    """

    decay = DECAY  # by which an optimizer multiplies the weight decay of these parameters

    def __init__(self, vocabulary: int, classes: int) -> None:
        super().__init__()
        rank = min(max(classes, LEAST), MOST)
        self.words = nn.Embedding.from_pretrained(torch.zeros(vocabulary, rank), freeze=False)
        self.pairs = nn.Embedding.from_pretrained(torch.zeros(PAIRS, rank), freeze=False)
        self.classes = nn.Linear(rank, classes)
        nn.init.zeros_(self.classes.bias)
        nn.init.normal_(self.classes.weight, std=rank**-0.5)

    def forward(self, tokens: Int[Tensor, "b t"]) -> Float[Tensor, "b y"]:
        tokens = tokens.long()
        first, second = tokens[:, :-1], tokens[:, 1:]
        rows = torch.cat([self.words(tokens), self.pairs((first * SPREAD + second) % PAIRS)], 1)
        real = torch.cat([tokens != 0, (first != 0) & (second != 0)], 1)
        known = torch.cat([tokens > UNKNOWN, (first > UNKNOWN) & (second > UNKNOWN)], 1)
        count = real.sum(1, keepdim=True).clamp(min=1)
        found: Tensor = SCALE * self.classes((rows * known.unsqueeze(-1)).sum(1) / count.to(rows.dtype).sqrt())
        return found


def with_evidence(capsules: Capsules, evidence: Float[Tensor, "b y"], readout: str, training: bool) -> Capsules:
    """Class capsules whose log-odds are the mean of those of their activations and of the evidence.

    Activations that sum to one, as those of a mixture, keep their sum. Poses whose length is the activation are scaled
    to the new one. In training, three tenths of the examples are answered by the capsules alone, and as many by the
    evidence alone, so that each learns what the other knows too.

    evidence: of words, in log-odds. readout: of the capsules, a key of `READOUTS`.
    """
    poses, active, mask = capsules
    shared = readout == "share"
    own = active.clamp(min=1e-6).log() if shared else torch.logit(active, eps=1e-6)
    mean = (own + evidence) / 2
    if training:
        drawn = torch.rand(len(active), 1, device=active.device)
        mean = torch.where(drawn < ALONE, own, torch.where(drawn > 1 - ALONE, evidence, mean))
    if shared:
        return Capsules(poses, mean.softmax(1) * active.sum(1, keepdim=True), mask)
    active = torch.sigmoid(mean)
    return Capsules(unit(poses) * active.unsqueeze(-1) if readout == "length" else poses, active, mask)
