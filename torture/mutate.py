"""Broken copies of files: the same for the same seed."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

EXTREMES = (0, 1, 2**7, 2**8 - 1, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)
WORDS = (
    b"", b"-1", b"0", b"1e999", b"NaN", b"99999999999999999999", b"null", b"true", b"[]", b"{}", b'"', b"\x00", b"\n",
    b"\xff\xfe", b"\xef\xbb\xbf", b"[" * 3000, b"9" * 5000,
)  # fmt: skip


def _flip(content: bytes, draw: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 8))):
        changed[_place(changed, draw)] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _place(content: bytes | bytearray, draw: random.Random) -> int:
    """Anywhere, but half of the time near the beginning, where headers are."""
    return draw.randrange(min(len(content), 64) if draw.random() < 0.5 else len(content))


def _slice(content: bytes, draw: random.Random) -> tuple[int, int]:
    start = draw.randrange(len(content))
    return start, min(len(content), start + draw.choice((1, 4, 16, len(content) // 4 + 1)))


def _truncate(content: bytes, draw: random.Random) -> bytes:
    return content[: draw.randrange(len(content))]


def _remove(content: bytes, draw: random.Random) -> bytes:
    start, end = _slice(content, draw)
    return content[:start] + content[end:]


def _repeat(content: bytes, draw: random.Random) -> bytes:
    start, end = _slice(content, draw)
    return content[:end] + content[start:end] * draw.choice((1, 3, 50)) + content[end:]


def _size(content: bytes, draw: random.Random) -> bytes:
    """A number that may be a length, set to an extreme."""
    width, start = draw.choice((1, 2, 4, 8)), _place(content, draw)
    number = draw.choice(EXTREMES) % 256**width
    return content[:start] + number.to_bytes(width, draw.choice(("big", "little"))) + content[start + width :]


def _word(content: bytes, draw: random.Random) -> bytes:
    """A number of a text, or any place of it, replaced by a word that should not stand there."""
    numbers = list(re.finditer(rb"\d+", content[:100_000]))
    start, end = draw.choice(numbers).span() if numbers and draw.random() < 0.7 else _slice(content, draw)
    return content[:start] + draw.choice(WORDS) + content[end:]


def _random(content: bytes, draw: random.Random) -> bytes:
    return draw.randbytes(draw.choice((0, 1, 4, 100, 1000)))


WAYS: tuple[Callable[[bytes, random.Random], bytes], ...] = (_flip, _flip, _truncate, _remove, _repeat, _size, _word)


def mutated(content: bytes, others: Sequence[bytes], draw: random.Random) -> bytes:
    """A broken copy: bits flipped, cut off, taken out, repeated, spliced, lengths set to extremes, or another file."""
    if draw.random() < 0.02:
        return _random(content, draw)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        if not content:
            break
        if others and draw.random() < 0.08:
            other = draw.choice(others)
            content = content[: draw.randrange(len(content))] + other[draw.randrange(len(other) + 1) :]
        else:
            content = draw.choice(WAYS)(content, draw)
    return content
