"""Which words decided: what each word says for or against a predicted class, and its most strongly connected n-grams.

The evidence of words is measured by replacing them: see `wordevidence`.

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
from torchcaps._core.pages import heading, listing, page, paragraph, shaded_text, table
from torchcaps._core.types import Capsules
from torchcaps.analysis.evaluate import named_classes
from torchcaps.analysis.wordevidence import Deletion, deletion_check, word_evidence
from torchcaps.layers import DenseCapsules, RoutedLayer
from torchcaps.models import TextCapsules
from torchcaps.models.ngrams import Branch
from torchcaps.runs.run import Run

LEGEND = (
    "Blue words speak for the class, orange and underlined ones against it; the deeper, the stronger. The evidence of "
    "a word is how far the log-odds of the class (the logarithm of a / (1 - a), where a is its activation) fall if the "
    "network reads an unknown word in its place. Words in italics are not in its vocabulary. Below each text are the "
    "n-grams with the strongest connection to the class along the couplings, as a share of all that reaches it."
)
FOR, AGAINST = (86, 180, 233), (240, 160, 60)  # told apart by color-blind readers, too
GROUNDS = ((None, 230, 223, 222, 215, 208), (None, 195, 159, 117, 75, 39))  # against and for, of 256 colors


@dataclass(frozen=True)
class Ngram:
    """A sequence of words: the text from start to end, its words, and its strength for the class."""

    text: str
    start: int
    end: int
    strength: float


@dataclass(frozen=True)
class Word:
    """A word: its start and end in the text, its evidence for the class, and the mean strength of its n-grams.

    evidence: the fall of the logit of the class if the word is unknown; negative for a word against the class. known:
    whether it is in the vocabulary.
    """

    start: int
    end: int
    evidence: float
    strength: float
    known: bool = True


@dataclass(frozen=True)
class Explanation:
    """A text, a predicted class with its confidence, the strongest n-grams, and every word.

    check: what is left of the confidence without the strongest words; None for a text without words. With a pretrained
    encoder, words are its tokens; special ones are in n-grams only.
    """

    text: str
    label: str
    confidence: float
    ngrams: tuple[Ngram, ...]
    words: tuple[Word, ...]
    check: Deletion | None = None

    def strongest(self, top: int, sign: int) -> list[Word]:
        """The words with the strongest evidence for (sign 1) or against (sign -1) the class."""
        speaking = [word for word in self.words if sign * round(word.evidence, 2) > 0]
        return sorted(speaking, key=lambda word: -sign * word.evidence)[:top]

    def unknown(self) -> list[str]:
        """The words that are not in the vocabulary, each once."""
        return list(dict.fromkeys(self.text[word.start : word.end] for word in self.words if not word.known))


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
        evidence = word_evidence(model, tokens[0], vocabulary.unknown)
        known = (tokens[0] != vocabulary.unknown).tolist()
        real = torch.tensor([end > start for _, start, end in words], dtype=torch.bool)
        several = []
        for place in named:
            ngrams, strengths = _connections(text, words, found, place)
            values = zip(words, evidence[:, place].tolist(), strengths, known, strict=True)
            marked = tuple(Word(start, end, *value) for (_, start, end), *value in values if end > start)
            check = deletion_check(model, tokens[0], evidence[:, place], place, real)
            sure = round(float(activations[place]), 4)
            several.append(Explanation(text, run.metadata.classes[place], sure, ngrams[:top], marked, check))
        answers.append(several)
    return answers


def _connections(
    text: str, words: list[tuple[str, int, int]], found: list[tuple[Branch, Tensor]], place: int
) -> tuple[tuple[Ngram, ...], list[float]]:
    """The n-grams with the strongest connection to a class, and the mean strength of those that contain each word."""
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
    return tuple(_apart(ngrams)), [total / max(1, count) for total, count in zip(sums, counts, strict=True)]


def _apart(ngrams: list[Ngram]) -> list[Ngram]:
    """The strongest n-grams, without those that overlap a stronger one by half or more."""
    kept: list[Ngram] = []
    for ngram in ngrams:
        half = max(1, ngram.end - ngram.start) / 2  # special tokens have no width
        same = any((other.start, other.end) == (ngram.start, ngram.end) for other in kept)
        if not same and all(min(ngram.end, other.end) - max(ngram.start, other.start) < half for other in kept):
            kept.append(ngram)
    return kept


def facts(explanation: Explanation, top: int) -> list[str]:
    """Sentences on an explanation: the strongest words for and against the class, unknown words, the check."""
    lines = []
    for sign, how in ((1, "for"), (-1, "against")):
        found = explanation.strongest(top, sign)
        named = ", ".join(f"{explanation.text[word.start : word.end]} {word.evidence:+.2f}" for word in found)
        lines.append(f"words {how} {explanation.label}: {named or 'none'}")
    if explanation.unknown():
        named = ", ".join(explanation.unknown())
        lines.append(f"not in the vocabulary, so that the network reads only that a word is unknown here: {named}")
    check = explanation.check
    if check is not None:
        words = "strongest word" if check.words == 1 else f"{check.words} strongest words"
        others = "another random word" if check.words == 1 else f"{check.words} random words"
        fall = f"{explanation.confidence:.2f} -> {check.removed:.2f}"
        lines.append(f"without the {words} {fall}; without {others} {check.elsewhere:.2f}")
    return lines


def _pieces(explanation: Explanation) -> list[tuple[str, Word | None, float]]:
    """The text in pieces: words with their evidence as a share of the strongest, from -1 to 1; what is between them."""
    most = max((abs(word.evidence) for word in explanation.words), default=0.0) or 1.0
    pieces: list[tuple[str, Word | None, float]] = []
    done = 0
    for word in explanation.words:
        start = max(word.start, done)  # tokens may overlap
        pieces.append((explanation.text[done:start], None, 0.0))
        pieces.append((explanation.text[start : word.end], word, word.evidence / most))
        done = max(done, word.end)
    return [*pieces, (explanation.text[done:], None, 0.0)]


def colored(explanation: Explanation) -> str:
    """The text for a terminal of 256 colors: words for the class on blue, words against it underlined on orange.

    Stronger words have a deeper background, unknown ones are dim.
    """
    result = []
    for piece, word, share in _pieces(explanation):
        ground = GROUNDS[share > 0][min(5, int(abs(share) * 6))]
        style = "2" if word is not None and not word.known else ""
        if ground is not None:
            style = f"30;48;5;{ground}" + (";4" if share < 0 else "")
        piece = shown(piece, lines=True)
        result.append(f"\x1b[{style}m{piece}\x1b[0m" if style else piece)
    return "".join(result)


def html_page(explanations: Sequence[Sequence[Explanation]], top: int) -> str:
    """An HTML page with all texts, words shaded by their evidence. top: how many words are listed."""
    sections = "".join(html_section(each, top) for several in explanations for each in several)
    return page("torchcaps: which words decided", heading("Which words decided", 1) + paragraph(LEGEND) + sections)


def html_section(explanation: Explanation, top: int) -> str:
    """A text as HTML: its class, its words shaded by their evidence, what it says, its strongest n-grams."""
    pieces = [(piece, *_look(word, share)) for piece, word, share in _pieces(explanation)]
    text = shaded_text(explanation.label, f"{explanation.confidence:.2f}", pieces)
    ngrams = table([(ngram.text, f"{ngram.strength:.1%}") for ngram in explanation.ngrams], ("n-gram", "connection"))
    return f"<section>{text}{listing(facts(explanation, top))}{ngrams if explanation.ngrams else ''}</section>"


def _look(word: Word | None, share: float) -> tuple[str, str, str]:
    """The CSS class, the background and the title of a piece; all empty between words."""
    if word is None:
        return "", "", ""
    kind = "unknown" if not word.known else "against" if share < 0 else "for"
    end = AGAINST if share < 0 else FOR
    color = ", ".join(f"{255 - abs(share) * (255 - channel):.0f}" for channel in end)
    return kind, f"rgb({color})" if share else "", f"{word.evidence:+.2f}" if word.known else "not in the vocabulary"
