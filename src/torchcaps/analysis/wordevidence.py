"""What each word of a text says for or against a class: how the class changes when the unknown word takes its place.

The evidence of a word is the fall of the logit of the class, log a / (1 - a). A deletion check tells whether it can be
trusted: the strongest words are removed at once, and, to compare, as many random words.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from torchcaps.analysis.evaluate import eval_mode
from torchcaps.analysis.regions import log_odds

PART = 0.2  # of the words, the strongest ones, that the check removes
DRAWS = 24  # of random words
BATCH = 64


@dataclass(frozen=True)
class Deletion:
    """What is left of a class without its strongest words.

    words: how many are removed. removed: the activation of the class without them. elsewhere: its mean without as many
    random words.
    """

    words: int
    removed: float
    elsewhere: float


@torch.no_grad()
def word_evidence(model: nn.Module, tokens: Int[Tensor, " t"], unknown: int) -> Float[Tensor, "t y"]:
    """The evidence of each token for each class: positive for it, negative against it; zero for the unknown word.

    tokens: one text. unknown: the number of the unknown word.
    """
    with eval_mode(model) as device:
        tokens = tokens.to(device)
        replaced = torch.where(torch.eye(len(tokens), dtype=torch.bool, device=device), unknown, tokens)
        falls = log_odds(_activations(model, tokens[None])) - log_odds(_activations(model, replaced))
    return falls.masked_fill((tokens == unknown).unsqueeze(1), 0).cpu()


@torch.no_grad()
def deletion_check(
    model: nn.Module,
    tokens: Int[Tensor, " t"],
    evidence: Float[Tensor, " t"],
    label: int,
    words: Bool[Tensor, " t"],
    seed: int = 0,
) -> Deletion | None:
    """What is left of a class without the strongest fifth of the words; None without words.

    evidence: of each token for the class. words: which tokens are words; special ones are not removed. seed: of the
    random words.
    """
    places = words.nonzero().squeeze(1)
    if not len(places):
        return None
    count = max(1, round(PART * len(places)))
    generator = torch.Generator().manual_seed(seed)
    strongest = places[evidence[places].argsort(descending=True, stable=True)[:count]]
    drawn = [places[torch.randperm(len(places), generator=generator)[:count]] for _ in range(DRAWS)]
    kept = torch.ones(1 + DRAWS, len(tokens), dtype=torch.bool)
    kept.scatter_(1, torch.stack([strongest, *drawn]), False)
    with eval_mode(model) as device:
        rest = tokens.expand(len(kept), -1)[kept].view(len(kept), -1)
        left = _activations(model, rest.to(device))[:, label].cpu()
    return Deletion(count, round(float(left[0]), 4), round(float(left[1:].mean()), 4))


def _activations(model: nn.Module, rows: Tensor) -> Tensor:
    return torch.cat([model(few).activations for few in rows.split(BATCH)])
