"""Predictions for pictures in files and for texts: the class, its activation, and whether a reconstruction fits."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from torchcaps._core.errors import input_error
from torchcaps.analysis.calibration import probabilities
from torchcaps.analysis.evaluate import named_classes, reconstruction_errors, top_classes
from torchcaps.data import Batch, Columns, cells_in, is_table, padded, pictures_in, read_picture
from torchcaps.data.rows import Row
from torchcaps.models import readout_of
from torchcaps.models.textmodel import UNKNOWN
from torchcaps.runs.metadata import RunMetadata
from torchcaps.runs.run import Run


@dataclass(frozen=True)
class Prediction:
    """The prediction for one input: its classes, the most active first, and their activations, from 0 to 1.

    source: the file, the text, or the row of an array. fits: whether the reconstruction error is at most the 99 %
    quantile of validation images; None without a decoder. probabilities: those of
    the classes, calibrated on the validation part of the run; None where an example may have several classes. likely:
    all classes with their probabilities, the most likely first. unknown: of a text, the share of its words that are
    not in the vocabulary, 1 if it has no words; None for other inputs.
    """

    source: str
    labels: tuple[str, ...]
    confidence: tuple[float, ...]
    fits: bool | None = None
    probabilities: tuple[float, ...] | None = None
    likely: tuple[tuple[str, float], ...] = ()
    unknown: float | None = None


def collect(files: Sequence[Path], owner: str = "predict") -> list[str]:
    """The given pictures, and those in the given folders."""
    found: list[str] = []
    for path in files:
        if not path.exists():
            raise input_error(owner, "files or folders of pictures", f"{path}, which is not there", "Check the name.")
        found += pictures_in(path) if path.is_dir() else [str(path)]
    if not found:
        raise input_error(owner, "pictures", "folders without any", "Name files, or folders that hold pictures.")
    return found


def read_pictures(
    run: Run, files: Sequence[Path], batch_size: int = 64, owner: str = "predict"
) -> Iterator[tuple[list[str], Tensor]]:
    """Names and images [b c h w] as the run needs them; a warning names files that cannot be read."""
    if run.metadata.image_shape is None:
        got = f"a run on {run.metadata.kind}"
        raise input_error(owner, "a run on images for pictures", got, "Give what the network reads.")
    channels, height, width = run.metadata.image_shape
    if channels not in (1, 3):
        remedy = "Predict from an array with run.load_model()."
        raise input_error(owner, "a run on gray or color pictures", f"{channels} channels", remedy)
    paths = collect(files, owner)
    bad: list[str] = []
    for start in range(0, len(paths), batch_size):
        named: list[tuple[str, np.ndarray]] = []
        for path in paths[start : start + batch_size]:
            try:
                named.append((path, read_picture(Path(path), (height, width), color=channels == 3, fit=run.config.fit)))
            except Exception as error:  # Pillow raises many kinds for broken files
                bad.append(f"{path} ({error})")
        if named:
            images = torch.from_numpy(np.stack([picture for _, picture in named])).movedim(-1, 1).float() / 255
            yield [path for path, _ in named], images
    if len(bad) == len(paths):
        raise input_error(owner, "readable pictures", bad[0], "Check the files.")
    if bad:
        warnings.warn(f"left out {len(bad)} of {len(paths)} files that cannot be read: {bad[0]}", stacklevel=2)


def full_picture(run: Run, path: Path, most: int = 800) -> Tensor:
    """What a network sees of a picture, [c h w] from 0 to 1, at up to `most` pixels a side."""
    assert run.metadata.image_shape is not None
    channels, *shown = run.metadata.image_shape
    fit = run.config.fit
    if fit == "stretch":  # the whole picture, in its own proportions
        shown = list(read_picture(path, None).shape[:2])
    scale = most / max(shown)
    if fit == "stretch":
        scale = min(1.0, scale)
    size = max(1, round(shown[0] * scale)), max(1, round(shown[1] * scale))
    pixels = read_picture(path, size, color=channels == 3, fit=fit)
    return torch.from_numpy(pixels).movedim(-1, 0).float() / 255


def picture_answers(run: Run, model: nn.Module, files: Sequence[Path], batch_size: int = 64) -> Iterator[Prediction]:
    """Iterate over predictions of pictures; a warning counts and names those that cannot be read.

    model: the trained network of the run, on the device to compute on.
    """
    device = next(model.parameters()).device
    for names, images in read_pictures(run, files, batch_size):
        yield from network_answers(model, images.to(device), names, run.metadata.classes, run.metadata)


@torch.no_grad()
def network_answers(
    network: nn.Module,
    inputs: Tensor,
    names: Sequence[str],
    classes: Sequence[str] | None = None,
    metadata: RunMetadata | None = None,
) -> list[Prediction]:
    """The predictions of a network for a batch of its inputs.

    classes: their names; default: their numbers. metadata: of the network's run, if it has one.
    """
    capsules = network(inputs)
    classes = [str(number) for number in range(capsules.activations.shape[1])] if classes is None else classes
    if metadata is not None and metadata.many:
        return _named(capsules.activations.cpu(), names, classes, many=True)
    best = top_classes(capsules.activations, 1 if metadata is None else metadata.labels_per_image)
    active = capsules.activations.gather(1, best)
    error = reconstruction_errors(network, Batch(inputs, best), capsules)
    limit = None if metadata is None else metadata.fits
    fits = [None] * len(names) if error is None or limit is None else (error <= limit).tolist()
    found = [
        Prediction(name, tuple(classes[row] for row in rows), tuple(round(v, 4) for v in values), fit)
        for name, rows, values, fit in zip(names, best.tolist(), active.tolist(), fits, strict=True)
    ]
    return _with_probabilities(found, network, capsules.activations, classes, metadata)


def _named(activations: Tensor, sources: Sequence[str], classes: Sequence[str], *, many: bool) -> list[Prediction]:
    found = []
    for source, row in zip(sources, activations, strict=True):
        named = named_classes(row, many)
        labels = tuple(classes[place] for place in named)
        found.append(Prediction(source, labels, tuple(round(float(row[place]), 4) for place in named)))
    return found


def _with_probabilities(
    found: list[Prediction], network: nn.Module, activations: Tensor, classes: Sequence[str], of: RunMetadata | None
) -> list[Prediction]:
    """The same predictions with probabilities, if the run has a temperature for them."""
    if of is None or of.temperature is None:
        return found
    shares, order = probabilities(activations.cpu(), readout_of(network), of.temperature).sort(-1, descending=True)
    ranked: list[Prediction] = []
    for each, row, places in zip(found, shares.tolist(), order.tolist(), strict=True):
        likely = {classes[place]: round(share, 4) for place, share in zip(places, row, strict=True)}
        chosen = tuple(likely[label] for label in each.labels)
        ranked.append(replace(each, probabilities=chosen, likely=tuple(likely.items())))
    return ranked


def text_answers(run: Run, model: nn.Module, texts: Iterable[str], batch_size: int = 64) -> Iterator[Prediction]:
    """Iterate over predictions of texts: the class, or all classes above one half for multi-label runs.

    model: see `picture_answers`.
    """
    if run.metadata.kind != "texts":
        got = f"a run on {run.metadata.kind}"
        raise input_error("predict", "a run on texts for texts", got, "Give what the network reads.")
    device = next(model.parameters()).device
    vocabulary, longest = run.words(), run.config.max_length
    rest, cut, count = iter(texts), 0, 0
    while few := list(islice(rest, batch_size)):
        rows = vocabulary.encode(few, longest)
        cut, count = cut + sum(longest is not None and len(row) > longest for row in rows), count + len(few)
        rows = [row[:longest] for row in rows]
        with torch.no_grad():
            activations = model(padded(rows).to(device)).activations.cpu()
        named = _named(activations, few, run.metadata.classes, many=run.metadata.many)
        found = _with_probabilities(named, model, activations, run.metadata.classes, run.metadata)
        for answer, row in zip(found, rows, strict=True):
            share = float((row == UNKNOWN).float().mean()) if len(row) else 1.0
            yield replace(answer, unknown=round(share, 4))
    if cut:
        what = f"{cut:,} of {count:,} texts are longer than {longest} words; the rest of them is not read"
        warnings.warn(what, stacklevel=2)


def collect_texts(
    inputs: Sequence[str], columns: Columns, lines: Iterable[str], owner: str = "predict"
) -> Iterator[tuple[str, Row]]:
    """The given texts: those in files (tables, or a text in each line), `lines` for -, and any other string itself.

    Each comes with all cells of its row of a table.
    """
    for each in inputs:
        named = bool(each) and (is_table(Path(each)) or Path(each).suffix == ".txt")
        if os.path.isdir(each) or (named and not os.path.isfile(each)):
            got = f"{each}, which is " + ("a folder" if os.path.isdir(each) else "not there")
            raise input_error(owner, "texts, or files of them", got, "Check the name.")
    texts = chain.from_iterable(_texts_of(each, columns, lines) for each in inputs)
    first = next(texts, None)
    if first is None:
        raise input_error(owner, "texts", "none", "Give some, name files, or - for standard input.")
    return chain([first], texts)


def _texts_of(each: str, columns: Columns, lines: Iterable[str]) -> Iterable[tuple[str, Row]]:
    if each == "-":
        return ((line.rstrip("\r\n").encode("utf-8", "replace").decode("utf-8"), {}) for line in lines)
    return cells_in(Path(each), columns) if os.path.isfile(each) else [(each, {})]
