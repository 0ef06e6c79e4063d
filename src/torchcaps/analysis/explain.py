"""Which words decided: the n-grams of a text with the strongest connection to each predicted class.

Zhao et al. 2018 show n-grams by the strength of their connection to a class: the final couplings. The couplings of all
layers are multiplied along the paths from a primary capsule to a class; the strength of an n-gram for a class is the
sum over its capsules, weighted by their activations. It is shown as a fraction of the sum over all n-grams.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from torchcaps._core.errors import input_error
from torchcaps._core.neutral import shown
from torchcaps._core.pages import heading, page, paragraph, shaded_text, table
from torchcaps._core.types import Capsules
from torchcaps.analysis.evaluate import named_classes
from torchcaps.layers import DenseCapsules, RoutedLayer
from torchcaps.models import TextCapsules
from torchcaps.models.ngrams import Branch
from torchcaps.runs.run import Run


@dataclass(frozen=True)
class Ngram:
    """A sequence of words: the text from start to end, its words, and its strength for the class."""

    text: str
    start: int
    end: int
    strength: float


@dataclass(frozen=True)
class Explanation:
    """A text, a predicted class with its confidence, the strongest n-grams, and the strength of every word.

    words: (start, end, strength) of each word, the mean over the n-grams that contain it. With a pretrained encoder,
    words are its tokens; special ones are in n-grams only.
    """

    text: str
    label: str
    confidence: float
    ngrams: tuple[Ngram, ...]
    words: tuple[tuple[int, int, float], ...]


@torch.no_grad()
def ngram_strengths(branch: Branch, vectors: Tensor, ends: Tensor) -> Tensor:
    """The strength of each n-gram for each parent of the last layer, [b t y].

    The n-grams have a total weight of one; the part that reaches no parent was leaked on the way.
    """
    capsules = branch.children_of(vectors, ends)
    real = capsules.mask
    assert real is not None
    active = capsules.activations.masked_fill(~real, 0)  # [b t i]
    total = active.sum((1, 2), keepdim=True)
    passed = active / torch.where(total > 0, total, 1)
    first, last = branch.routed_layers[0], branch.routed_layers[-1]
    if first is last:
        couplings = _last_couplings(last, capsules)  # [b (t i) y]
        return (passed.flatten(1).unsqueeze(-1) * couplings).unflatten(1, passed.shape[1:]).sum(2)
    routed = first.route(capsules)
    parents = first(capsules)
    couplings = _last_couplings(last, parents).unflatten(1, parents.activations.shape[1:])  # [b t' j y]
    # A child in several windows is divided equally among them.
    ways = routed.couplings  # [b t' k i j]
    windows, kernel = ways.shape[1:3]
    assert parents.mask is not None
    inside = parents.mask.any(-1)  # [b t']
    seen = torch.zeros(passed.shape[:2], device=passed.device)
    for offset in range(kernel):
        seen[:, offset : offset + windows] += inside
    share = passed / seen.clamp(min=1).unsqueeze(-1)
    strengths = passed.new_zeros(*passed.shape[:2], couplings.shape[-1])
    for offset in range(kernel):
        sent = share[:, offset : offset + windows].unsqueeze(-1) * ways[:, :, offset]  # [b t' i j]
        sent = (sent.sum(2) * inside.unsqueeze(-1)).unsqueeze(-1)  # [b t' j 1]
        strengths[:, offset : offset + windows] += (sent * couplings).sum(2)
    return strengths


def _last_couplings(layer: RoutedLayer, children: Capsules) -> Tensor:
    couplings: Tensor = layer.route(children.flatten() if isinstance(layer, DenseCapsules) else children).couplings
    return couplings


@torch.no_grad()
def explain_texts(run: Run, texts: Sequence[str], *, top: int = 5) -> list[list[Explanation]]:
    """An explanation of each predicted class of each text; of the most active one for single-label data."""
    model = run.load_model()
    if not isinstance(model, TextCapsules):
        remedy = "Train text, text-a or text-b."
        raise input_error("explain", "a run of text capsules", run.model_name, remedy)
    vocabulary = run.words()
    answers: list[list[Explanation]] = []
    for text in texts:
        tokens = vocabulary.read([text], run.config.max_length)
        words = vocabulary.cut(text, run.config.max_length)
        vectors, ends = model.features(tokens)
        activations = model(tokens).activations[0]
        named = named_classes(activations, run.metadata.many)
        branches = [branch for branch in model.branches if isinstance(branch, Branch)]
        found = [(branch, ngram_strengths(branch, vectors, ends)[0] / len(branches)) for branch in branches]
        answers.append(
            [_explanation(text, words, found, place, run.metadata.classes[place], activations, top) for place in named]
        )
    return answers


def _explanation(
    text: str,
    words: list[tuple[str, int, int]],
    found: list[tuple[Branch, Tensor]],
    place: int,
    label: str,
    activations: Tensor,
    top: int,
) -> Explanation:
    sums, counts = [0.0] * len(words), [0] * len(words)
    ngrams: list[Ngram] = []
    spans = [  # of the words of each n-gram that holds any
        (max(0, begin), min(len(words), begin + branch.ngram), value)
        for branch, strengths in found
        for begin, value in zip(branch.starts(len(strengths)).tolist(), strengths[:, place].tolist(), strict=True)
        if begin < len(words) > 0
    ]
    total = sum(value for _, _, value in spans) or 1.0
    for first, last, value in spans:
        start, end = words[first][1], words[last - 1][2]
        named = text[start:end] or "".join(word for word, _, _ in words[first:last])  # special tokens
        ngrams.append(Ngram(named, start, end, value / total))
        for word in range(first, last):
            sums[word] += value / total
            counts[word] += 1
    ngrams.sort(key=lambda ngram: -ngram.strength)
    means = [total / max(1, count) for total, count in zip(sums, counts, strict=True)]
    marked = tuple((start, end, mean) for (_, start, end), mean in zip(words, means, strict=True) if end > start)
    return Explanation(text, label, round(float(activations[place]), 4), tuple(_apart(ngrams)[:top]), marked)


def _apart(ngrams: list[Ngram]) -> list[Ngram]:
    """The strongest n-grams, without those that overlap a stronger one by half or more."""
    kept: list[Ngram] = []
    for ngram in ngrams:
        half = max(1, ngram.end - ngram.start) / 2  # special tokens have no width
        same = any((other.start, other.end) == (ngram.start, ngram.end) for other in kept)
        if not same and all(min(ngram.end, other.end) - max(ngram.start, other.start) < half for other in kept):
            kept.append(ngram)
    return kept


def _pieces(explanation: Explanation) -> list[tuple[str, float]]:
    """The text in pieces: words from 0, the weakest, to 1, the strongest; the characters between words have 0."""
    strengths = [strength for _, _, strength in explanation.words] or [0.0]
    low, width = min(strengths), (max(strengths) - min(strengths)) or 1.0
    pieces, done = [], 0
    for start, end, strength in explanation.words:
        start = max(start, done)  # tokens may be parts of one character
        pieces += [(explanation.text[done:start], 0.0), (explanation.text[start:end], (strength - low) / width)]
        done = end
    return [*pieces, (explanation.text[done:], 0.0)]


def colored(explanation: Explanation) -> str:
    """The text for a terminal of 256 colors; stronger words have a deeper background."""
    grounds = (None, 230, 229, 222, 215, 208)
    result = []
    for piece, share in _pieces(explanation):
        ground = grounds[min(5, int(share * 6))]
        piece = shown(piece, lines=True)
        result.append(piece if ground is None else f"\x1b[30;48;5;{ground}m{piece}\x1b[0m")
    return "".join(result)


def html_page(explanations: Sequence[Sequence[Explanation]]) -> str:
    """An HTML page with all texts, words shaded by their strength."""
    intro = (
        "The darker the ground of a word, the stronger its connection to the class. Below each text, the strongest "
        "n-grams with their share of all that reached the class."
    )
    sections = "".join(html_section(each) for several in explanations for each in several)
    return page("torchcaps: which words decided", heading("Which words decided", 1) + paragraph(intro) + sections)


def html_section(explanation: Explanation) -> str:
    """A text as HTML: its class, its words shaded by their strength, its strongest n-grams."""
    pieces = [(piece, _shade(share)) for piece, share in _pieces(explanation)]
    ngrams = table([(ngram.text, f"{ngram.strength:.1%}") for ngram in explanation.ngrams])
    return f"<section>{shaded_text(explanation.label, f'{explanation.confidence:.2f}', pieces)}{ngrams}</section>"


def _shade(share: float) -> str | None:
    """The background of a word, darker with its strength; None for strength 0."""
    return f"rgb(255, {230 - 110 * share:.0f}, {190 - 190 * share:.0f})" if share else None
