"""Files of a run other than its weights: metadata of its data, resolved options and metrics."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass, field
from pathlib import Path

from torchcaps._core.errors import input_error
from torchcaps._core.fields import read_fields
from torchcaps._core.files import read_text
from torchcaps.data import Splits
from torchcaps.runs.config import TrainConfig, load_config
from torchcaps.runs.recipes import check_given, check_imports

COMPLETE = ("epochs", "batch_size", "lr", "schedule", "weight_decay")  # never left out in a run
METRICS = [
    "epoch",
    "train_loss",
    "train_accuracy",
    "validation_loss",
    "validation_accuracy",
    "learning_rate",
    "examples_per_second",
    "seconds",
]


@dataclass(frozen=True)
class RunMetadata:
    """What a run stores about its data and its network.

    image_shape: for images. vocabulary: the number of words, for texts. many: a text may belong to any number of
    classes. word_dim: the size of word vectors. fits: the 99 % quantile of the reconstruction error on validation
    images. temperature: of the softmax that turns activations into probabilities (see `probabilities`), chosen on the
    validation part. fingerprints: of the content and labels of each part. stopped: the run ended early and cannot be
    resumed. conditions: versions, threads and similar at the start of training. network: the class of a network from
    Python; None if the config describes it. in_python: the data were given in Python and are not in a file.
    """

    classes: tuple[str, ...]
    image_shape: tuple[int, int, int] | None = None
    labels_per_image: int = 1
    vocabulary: int | None = None
    word_dim: int | None = None
    many: bool = False
    fits: float | None = None
    temperature: float | None = None
    fingerprints: dict[str, str] = field(default_factory=dict)
    stopped: bool = False
    conditions: dict[str, str] = field(default_factory=dict)
    network: str | None = None
    in_python: bool = False

    @property
    def kind(self) -> str:
        """The kind of inputs: "images", "texts", or "arrays"."""
        if self.vocabulary is not None:
            return "texts"
        return "arrays" if self.image_shape is None else "images"


def load_metadata(path: Path) -> RunMetadata:
    """Read the metadata of a run. Raises an `InputError` if they are invalid."""
    metadata = read_fields(RunMetadata, path, "the metadata of a run")
    sizes = [
        size for size in (*(metadata.image_shape or ()), metadata.vocabulary, metadata.word_dim) if size is not None
    ]
    own = metadata.network is not None and metadata.in_python
    one_kind = (metadata.image_shape is None) != (metadata.vocabulary is None) or (own and metadata.kind == "arrays")
    one_kind = one_kind and (metadata.vocabulary is None or own or metadata.word_dim is not None)
    one_kind = one_kind and (metadata.vocabulary is not None or metadata.word_dim is None)
    named = 2 <= len(set(metadata.classes)) == len(metadata.classes) >= metadata.labels_per_image
    parts = metadata.fingerprints.keys() <= set(Splits._fields)
    if metadata.network is not None and re.fullmatch(r"[\w.<>]+", metadata.network) is None:
        remedy = "Train or copy the run anew."
        raise input_error(str(path), "the name of a class as its network", repr(metadata.network)[:80], remedy)
    if not one_kind or not named or not parts or min([*sizes, metadata.labels_per_image]) < 1:
        expected = "two classes or more, the size of images or of a vocabulary, and sums of known parts"
        raise input_error(str(path), expected, "others", "Train or copy the run anew.")
    return metadata


def load_resolved(path: Path) -> TrainConfig:
    """Read the config of a run. Raises an `InputError` for invalid or missing options."""
    config = load_config(path)
    check_imports(str(path), config)
    check_given(config)
    missing = [name for name in COMPLETE if getattr(config, name) is None]
    if missing:
        raise input_error(str(path), "all options of a run", f"no {missing[0]}", "Train or copy the run anew.")
    return config


def load_metrics(path: Path) -> list[dict[str, str]]:
    """Read the rows of a table of metrics, one for each epoch, with a number in every cell."""
    try:
        rows = list(csv.DictReader(io.StringIO(read_text(path), newline="")))
        for row in rows:
            _ = [float(value) for value in row.values()]
    except (OSError, ValueError, TypeError, csv.Error) as error:
        raise input_error(str(path), "a table of metrics", error, "Train or copy the run anew.") from None
    if any(list(row) != METRICS for row in rows):
        raise input_error(str(path), f"the columns {', '.join(METRICS)}", "others", "Train or copy the run anew.")
    return rows
