"""A summary of the data of a run in a few lines: classes, parts, sizes, and warnings."""

from __future__ import annotations

import math
from typing import Any

from torchcaps.analysis.baselines import baselines
from torchcaps.analysis.evaluate import evaluate
from torchcaps.data import DATASETS, ImageSet, Labeled, Splits
from torchcaps.data.copies import copies_between
from torchcaps.data.kinds import picture_kind
from torchcaps.data.words import spaceless
from torchcaps.models.encoders import Encoder
from torchcaps.models.frozen import Pretrained
from torchcaps.runs.config import TrainConfig
from torchcaps.runs.run import Run

FEW = 5  # training examples of a class; fewer cause a warning
UNEVEN = 10.0  # ratio of examples of two classes that causes a warning
NAMED = 8  # classes that are named
FEWEST = 10  # validation examples, below which a comparison means nothing


def run_summary(parts: Splits, config: TrainConfig, encoder: Pretrained | None = None) -> list[str]:
    """Lines on a run that begins: its data, the recipe that suits them, its encoder, and warnings, so named."""
    first, *warnings = data_summary(parts)
    recipe = recipe_summary(parts, config)
    pretrained = None if encoder is None else encoder_summary(encoder, config)
    own = config.data not in DATASETS and not config.deduplicate
    lines = [line for line in (first, recipe, pretrained) if line is not None]
    return [*lines, *warnings, *(copies_warning(parts) if own else ())]


def encoder_summary(encoder: Pretrained, config: TrainConfig) -> str:
    """A line on a pretrained encoder: its size, how it is trained, and the normalization of images."""
    how = f"tuned at rate {config.encoder_lr:g}" if config.encoder_lr else "frozen, features computed once"
    if not config.encoder_lr and config.augment not in (None, "none"):
        how = f"frozen, features computed in every epoch because of augment {config.augment}"
    line = f"encoder {type(encoder.network).__name__}, {encoder.parameter_count:,} parameters, {how}"
    if not isinstance(encoder, Encoder):  # of texts
        return line
    mean, std = (
        ", ".join(f"{value:.3g}" for value in values.flatten().tolist()) for values in (encoder.mean, encoder.std)
    )
    return f"{line}; images less {mean}, divided by {std}"


def data_summary(parts: Splits) -> list[str]:
    """Lines on the data: a description, then warnings."""
    train = parts.train
    sizes = [len(train), len(parts.validation), len(getattr(parts.test, "names", ()))]  # the names were written already
    what = {"images": "images", "texts": "texts"}.get(train.kind, "examples")
    counts = _counts(parts)
    named = ", ".join(f"{name} {count:,}" for name, count in list(counts.items())[:NAMED])
    more = f" and {len(counts) - NAMED} more" if len(counts) > NAMED else ""
    listed = f" ({named}{more})" if counts else ""
    shape = getattr(train, "image_shape", None)
    drawn = "" if shape is None else f"; {shape[1]} x {shape[2]} {_channels(shape[0])}"
    if getattr(train, "vocabulary", None) is not None and len(train):
        drawn = f"; a median of {int(train.lengths.median())} words"
    pairs = zip(sizes, ("to train", "to validate", "to test"), strict=True)
    divided = ", ".join(f"{size:,} {aim}" for size, aim in pairs if size)
    first = f"{len(train.classes)} classes, {sum(sizes):,} {what}{listed}; {divided}{drawn}"
    return [first, *_warnings(train)]


def recipe_summary(parts: Splits, config: TrainConfig) -> str | None:
    """A line on the options of training and the kind of pictures or texts that they are for; None for other data."""
    kind = picture_kind(parts.train)
    found = None if kind is None else f"the pictures look like {kind}"
    if parts.train.kind == "texts":
        found = "the texts have spaces between words"
        if spaceless(parts.train.texts):
            found = "the texts have no spaces between words, so that characters count as words"
    if found is None:
        return None
    said = [f"model {config.model}", *([f"routing {config.routing}"] if config.routing else []), *config.option]
    said += [f"augment {config.augment}"] if kind is not None else []
    said += [f"tokens {config.tokens}"] if config.tokens else []
    said += [f"loss {config.loss}"] if config.loss else []
    said += [f"{config.epochs} epochs", f"batch size {config.batch_size}", f"rate {config.lr:g}"]
    return f"{found}: {', '.join(said)}"


def _counts(parts: Splits) -> dict[str, int]:
    """How many examples there are of each class; none where labels are not known beforehand."""
    labeled = [part for part in (parts.train, parts.validation, parts.test) if isinstance(part, Labeled)]
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
            "and precision of each class, not at accuracy alone; --balance gives every class the same weight"
        )
    return found


def copies_warning(parts: Splits) -> list[str]:
    """A warning if pictures of the validation or test part are in the training part too, or nearly."""
    found: list[tuple[str, str]] = []
    for part in (parts.validation, parts.test):
        if isinstance(parts.train, ImageSet) and isinstance(part, ImageSet):
            taken = dict(copies_between(part, parts.train))
            found += [(part.names[mine], parts.train.names[theirs]) for mine, theirs in taken.items()]
    if not found:
        return []
    first = " and ".join(found[0])
    said = f"warning: {len(found):,} pictures to validate or test with are copies of training pictures, or nearly"
    return [f"{said}, such as {first}: accuracy will look better than it is; --deduplicate leaves copies out"]


def closing_lines(run: Run, parts: Splits) -> list[str]:
    """For the end of training: whether more epochs may help, and whether a classifier that takes seconds is as good."""
    return [*rising_lines(run, len(parts.validation)), *baseline_lines(run, parts)]


def rising_lines(run: Run, count: int) -> list[str]:
    """A sentence if training ended while validation accuracy rose, otherwise nothing. count: validation examples.

    It rose if the best of the last two epochs is the best of all, and more than a standard error above what was reached
    before the last quarter of the epochs.
    """
    seen = [float(row["validation_accuracy"]) for row in run.rows()]
    before = seen[: len(seen) - max(1, len(seen) // 4)]
    if not before or not count or run.metadata.stopped:  # stopped: at a goal, or because it no longer rose
        return []
    highest = max(seen)
    noise = math.sqrt(highest * (1 - highest) / count)
    if highest not in seen[-2:] or highest <= max(before) + noise:
        return []
    said = f"validation was still rising, from {max(before):.1%} to {highest:.1%} in the last quarter of the epochs"
    return ["", f"{said}: --epochs {2 * len(seen)} may be better"]


def baseline_lines(run: Run, parts: Splits) -> list[str]:
    """For the end of training: a sentence if a classifier that takes seconds is as good, otherwise nothing."""
    if len(parts.validation) < FEWEST:
        return []
    found = {name: each.accuracy for name, each in baselines(parts.train, parts.validation).items()}
    if not found:
        return []
    name, accuracy = max(found.items(), key=lambda pair: pair[1])
    own = evaluate(run.load_model(), parts.validation).accuracy
    if own > accuracy:
        return []
    pieces = "characters" if parts.train.kind == "texts" and spaceless(parts.train.texts) else "words"
    method = {"support vectors": "a support vector machine on edges and colors", "random forest": "a random forest"}
    said = f"{method.get(name, f'a {name} on {pieces}')}, which takes seconds, is right about {accuracy:.1%} of the"
    compare = f"compare them with torchcaps evaluate {run.folder} --baseline"
    return ["", f"{said} validation part, this network about {own:.1%}: {compare}"]
