"""The data of a config, in the parts of a run."""

from __future__ import annotations

from typing import cast

from torchcaps._core.errors import input_error
from torchcaps.data import Columns, ImageSet, Labeled, PairSet, Splits, open_data, split, viewpoint_split
from torchcaps.data.copies import deduplicated
from torchcaps.data.pictures import parse_size
from torchcaps.runs.config import TrainConfig

# The options that `read_data` uses.
READ = (
    "data", "data_dir", "size", "fit", "color", "text", "label", "separator", "encoding", "delimiter", "validation",
    "seed", "viewpoint", "deduplicate",
)  # fmt: skip


def columns_of(config: TrainConfig) -> Columns:
    """The columns of texts and labels in a table."""
    label = config.label or ("label",)
    return Columns(config.text or "text", label, config.separator, config.encoding, config.delimiter)


def read_data(config: TrainConfig) -> Labeled | Splits:
    """Read the images or texts of a config; in parts if the data set is already split."""
    data = open_data(
        config.data,
        folder=config.data_dir,
        size=parse_size("--size", config.size),
        fit=config.fit,
        color=config.color,
        columns=columns_of(config),
        validation=config.validation,
        seed=config.seed,
    )
    if config.deduplicate:
        whole = data.train if isinstance(data, Splits) else data
        if not isinstance(whole, ImageSet):
            raise input_error("--deduplicate", "pictures", config.data, "Drop --deduplicate.")
        data = deduplicated(data)  # type: ignore[arg-type]
    if config.viewpoint is None:
        return data
    if not isinstance(data, Splits) or not isinstance(data.train, ImageSet):
        remedy = "Drop --viewpoint; toys, smallnorb and eth-80 know theirs."
        raise input_error("--viewpoint", "images that know their viewpoints", config.data, remedy)
    return viewpoint_split(data, config.viewpoint)


def limit(parts: Splits, config: TrainConfig) -> Splits:
    """The parts with at most config.limit training examples, and at most as many for validation."""
    if config.limit is None:
        return parts
    if config.limit < len(parts.validation):
        validation = parts.validation
        few = isinstance(validation, PairSet)
        fewer = validation.shortened(config.limit) if few else split(validation, [config.limit], config.seed)[0]
        parts = parts._replace(validation=fewer)
    if config.limit >= len(parts.train):
        return parts
    if isinstance(parts.train, PairSet):
        return Splits(cast("ImageSet", parts.train.shortened(config.limit)), *parts[1:])
    train = split(parts.train, [config.limit], config.seed)[0]
    missing = [name for name, count in train.counts().items() if not count]
    if missing:
        got = f"none of {', '.join(missing)}"
        raise input_error("--limit", "examples of every class", got, "Raise --limit.")
    return parts._replace(train=train)
