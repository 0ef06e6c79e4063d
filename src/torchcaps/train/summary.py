"""What a run is about to learn from, in a few lines: classes, parts, sizes, and what is unusual about them."""

from __future__ import annotations

from typing import Any

from torchcaps.data import Labeled, Splits

FEW = 5  # training examples of a class, below which there is little to learn from
UNEVEN = 10.0  # times as many examples of one class as of another
NAMED = 8  # classes that are named


def data_summary(parts: Splits) -> list[str]:
    """Lines on the data: first what they are, then warnings. Nobody looks at the test part before the end."""
    train = parts.train
    sizes = [len(part) for part in (train, parts.validation)]
    what = {"images": "images", "texts": "texts"}.get(train.kind, "examples")
    counts = _counts(parts)
    named = ", ".join(f"{name} {count:,}" for name, count in list(counts.items())[:NAMED])
    more = f" and {len(counts) - NAMED} more" if len(counts) > NAMED else ""
    listed = f" ({named}{more})" if counts else ""
    shape = getattr(train, "image_shape", None)
    drawn = "" if shape is None else f"; {shape[1]} x {shape[2]} {_channels(shape[0])}"
    divided = f"{sizes[0]:,} to train, {sizes[1]:,} to validate"
    first = f"{len(train.classes)} classes, {sum(sizes):,} {what}{listed}; {divided}{drawn}"
    return [first, *_warnings(train)]


def _counts(parts: Splits) -> dict[str, int]:
    """How many examples there are of each class; none where labels are not known beforehand."""
    labeled = [part for part in (parts.train, parts.validation) if isinstance(part, Labeled)]
    found: dict[str, int] = {}
    for part in labeled:
        for name, count in part.counts().items():
            found[name] = found.get(name, 0) + count
    return found


def _channels(channels: int) -> str:
    return {1: "in gray", 3: "in color"}.get(channels, f"in {channels} channels")


def _warnings(train: Any) -> list[str]:
    if not isinstance(train, Labeled) or not len(train):
        return []
    counts = train.counts()
    few = {name: count for name, count in counts.items() if count < FEW}
    found = []
    if few:
        listed = ", ".join(f"{name} {count}" for name, count in list(few.items())[:NAMED])
        found.append(f"warning: fewer than {FEW} training examples of {listed}: answers for these classes mean little")
    most, least = max(counts.values()), min(counts.values())
    if least and most / least > UNEVEN:
        found.append(
            f"warning: {most / least:,.0f} times as many training examples of one class as of another: look at recall "
            "and precision of each class, not at accuracy alone"
        )
    return found
