"""Data for evaluating a run: its own, or other data with its classes."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from torchcaps._core.errors import input_error, shape_text
from torchcaps.data import DATASETS, Labeled, Splits, in_classes, open_data
from torchcaps.data.pictures import parse_size
from torchcaps.runs.run import Run
from torchcaps.runs.rundata import columns_of


def parts_for(run: Run, source: str | None = None, data_dir: Path | None = None) -> Splits:
    """The run's own data, or others in the run's classes, and of its image shape.

    A moved copy of the run's own data keeps the split of the run; of other files, all are for testing.
    """
    config = run.config
    if source is None:
        return run.load_parts(data_dir=data_dir)
    size, color = parse_size("--size", config.size), None
    if run.metadata.image_shape is not None:  # only for images
        channels, height, width = run.metadata.image_shape
        color = {1: False, 3: True}.get(channels)
        if source not in DATASETS and size is None:
            size = height, width
    folder, allowed = run.data_folder(data_dir)
    with allowed:
        data = open_data(source, folder=folder, size=size, fit=config.fit, color=color, columns=columns_of(config))
    if source.endswith("-5k") and config.data in ("mnist", "multimnist", "translated", "affnist"):
        warnings.warn(f"the digits of {source} are among those that {config.data} trains on: no test", stacklevel=2)
    if isinstance(data, Labeled):
        own = run.own_parts(data) if config.data not in DATASETS else None
        if own is not None:
            return own
        data = Splits(data, data, data)
    _check_kind(run, source, data.test)
    named = {word: part for word, part in data._asdict().items() if part is not None}
    return run.readable(
        Splits(**{word: in_classes(source, part, run.metadata.classes) for word, part in named.items()})
    )


def _check_kind(run: Run, source: str, data: Any) -> None:
    """Raise an `InputError` if data are of another kind or image shape than the network's."""
    shape, kind = run.metadata.image_shape, run.metadata.kind
    if data.kind != kind:
        raise input_error(source, f"{kind}, like the data of this run", data.kind, "Choose other data.")
    if shape is not None and data.image_shape != shape:
        got = shape_text(data.image_shape)
        raise input_error(source, f"images {shape_text(shape)}", got, "Choose data of this shape.")
    if kind == "texts" and data.many != run.metadata.many:
        expected = "any number of labels for each text" if run.metadata.many else "one label for each text"
        raise input_error(source, expected, "the other kind", "Choose other data.")
