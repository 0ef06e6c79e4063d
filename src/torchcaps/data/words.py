"""How texts are cut into tokens: words, characters, or subwords that are learned from the training texts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Literal

from torchcaps._core.errors import check_choice, input_error

Tokens = Literal["word", "character", "subword"]
TOKENS = ("word", "character", "subword")
PADDING, UNKNOWN = "<pad>", "<unk>"  # words number 0 and 1
SUBWORDS = 8000  # at most; a word of its own costs memory, and needs examples
LEAST = 2  # occurrences of a pair that becomes a subword
LOOKED_AT = 2000  # texts that tell a script
# Scripts without spaces between words: every character, with its marks, is a word.
SPACELESS = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\u30fc"
SPACED = rf"[\w&&[^{SPACELESS}]]"
# Contractions as in GloVe word vectors (do n't, it 's), words, and every other character by itself.
WORD = rf"n't\b|'{SPACED}+|{SPACED}+(?=n't\b)|[{SPACELESS}]\p{{M}}*|{SPACED}+|[^\w\s]"
CHARACTER = r"\S\p{M}*"
RUN = r"\w+|[^\w\s]"  # within which subwords are found
_SPACELESS = re.compile("[\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]")


def tokenizers_package() -> Any:
    """The package tokenizers."""
    try:
        import tokenizers
    except ImportError:
        remedy = "Run: pip install 'torchcaps[text]'."
        raise input_error("texts", "the package tokenizers", "it not installed", remedy) from None
    return tokenizers


def make_tokenizer(
    texts: Iterable[str], more: Sequence[str], size: int, longest: int | None, tokens: str
) -> tuple[Any, Counter[str]]:
    """A tokenizer of these texts, and how often it met each word or character; see `Vocabulary.build`."""
    check_choice("train", "tokens", tokens, TOKENS)
    tokenizers = tokenizers_package()
    pattern = {"word": WORD, "character": CHARACTER, "subword": RUN}[tokens]
    splitter = tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), behavior="removed", invert=True)
    normalizer = tokenizers.normalizers.Sequence([tokenizers.normalizers.NFC(), tokenizers.normalizers.Lowercase()])
    counts: Counter[str] = Counter()
    for text in texts:
        few = normalizer.normalize_str(beginning(text, longest))
        counts.update(word for word, _ in splitter.pre_tokenize_str(few))
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    if tokens == "subword":
        tokenizer = _subwords(tokenizers, splitter, counts, ranked, min(size, SUBWORDS))
    else:
        words = list(dict.fromkeys([PADDING, UNKNOWN, *ranked, *more]))[: max(2, size)]
        numbers = {word: number for number, word in enumerate(words)}
        tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(numbers, unk_token=UNKNOWN))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, splitter
    return tokenizer, counts


def _subwords(tokenizers: Any, splitter: Any, counts: Counter[str], ranked: list[str], size: int) -> Any:
    """Byte-pair encoding (Sennrich 2016) of these words, each as often as it was met."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = splitter
    special = [PADDING, UNKNOWN]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=max(2, size), min_frequency=LEAST, special_tokens=special, show_progress=False
    )
    tokenizer.train_from_iterator((word for word in ranked for _ in range(counts[word])), trainer)
    return tokenizer


def beginning(text: str, longest: int | None) -> str:
    """A prefix of the text that has more than `longest` words, to save time with very long lines."""
    if longest is None or len(text) <= 40 * longest:
        return text
    start = text[: 40 * longest]
    enough = len(_SPACELESS.findall(start)) > 20 * longest or len(start.split()) > longest
    return start if enough else text


def spaceless(texts: Iterable[str]) -> bool:
    """Whether most letters of the first texts are of scripts without spaces between words: Chinese, Japanese, Thai."""
    letters = found = 0
    for text in islice(texts, LOOKED_AT):
        few = text[:1000]
        found += len(_SPACELESS.findall(few))
        letters += sum(map(str.isalpha, few))
    return 2 * found > letters
