"""Answers for pictures in files and for texts: the class, how active it is, and whether a reconstruction fits."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from torchcaps.data import Batch, Columns, is_table, pictures_in, read_picture, texts_in
from torchcaps.errors import complaint
from torchcaps.evaluate import misfits, named_classes, top_classes
from torchcaps.models import ImageModel
from torchcaps.runs import Run


@dataclass(frozen=True)
class Prediction:
    """The answer for one file. confidence: the activation of the class, from 0 to 1; fits: None without a decoder."""

    file: str
    labels: tuple[str, ...]
    confidence: tuple[float, ...]
    fits: bool | None


@dataclass(frozen=True)
class TextPrediction:
    """The answer for one text: its classes, the most active first, and how active they are, from 0 to 1."""

    text: str
    labels: tuple[str, ...]
    confidence: tuple[float, ...]


def collect(files: Sequence[Path], owner: str = "predict") -> list[Path]:
    """The pictures named, and those in the folders named."""
    found: list[Path] = []
    for path in files:
        if not path.exists():
            raise complaint(owner, "files or folders of pictures", f"{path}, which is not there", "Check the name.")
        found += pictures_in(path) if path.is_dir() else [path]
    if not found:
        raise complaint(owner, "pictures", "folders without any", "Name files, or folders that hold pictures.")
    return found


def read_pictures(
    run: Run, files: Sequence[Path], batch_size: int = 64, owner: str = "predict"
) -> Iterator[tuple[list[str], torch.Tensor]]:
    """Names and images [b c h w] as the run wants them; files that cannot be read are named in a warning."""
    if run.facts.image_shape is None:
        raise complaint(owner, "a run on images for pictures", "a run on texts", "Use predict_texts.")
    channels, height, width = run.facts.image_shape
    if channels not in (1, 3):
        remedy = "Predict from an array with run.load_model()."
        raise complaint(owner, "a run on grey or colour pictures", f"{channels} channels", remedy)
    paths = collect(files, owner)
    bad: list[str] = []
    for start in range(0, len(paths), batch_size):
        named: list[tuple[Path, np.ndarray]] = []
        for path in paths[start : start + batch_size]:
            try:
                named.append((path, read_picture(path, (height, width), colour=channels == 3)))
            except Exception as error:  # Pillow raises many kinds for broken files
                bad.append(f"{path} ({error})")
        if named:
            images = torch.from_numpy(np.stack([picture for _, picture in named])).movedim(-1, 1).float() / 255
            yield [str(path) for path, _ in named], images
    if len(bad) == len(paths):
        raise complaint(owner, "readable pictures", bad[0], "Check the files.")
    if bad:
        warnings.warn(f"left out {len(bad)} of {len(paths)} files that cannot be read: {bad[0]}", stacklevel=2)


def predict(
    run: Run, files: Sequence[Path], *, batch_size: int = 64, device: torch.device | str = "cpu"
) -> list[Prediction]:
    """An answer for each picture; those that cannot be read are left out, counted and named in a warning."""
    model = run.load_model().to(device)
    answers: list[Prediction] = []
    for names, images in read_pictures(run, files, batch_size):
        answers += _answers(run, model, images.to(device), names)
    return answers


@torch.no_grad()
def _answers(run: Run, model: ImageModel, images: torch.Tensor, names: list[str]) -> list[Prediction]:
    capsules = model(images)
    count = run.facts.labels_per_image
    best = top_classes(capsules.activations, count)
    active = capsules.activations.gather(1, best)
    misfit = misfits(model, Batch(images, best), capsules)
    limit = run.facts.fits
    fits = [None] * len(names) if misfit is None or limit is None else (misfit <= limit).tolist()
    return [
        Prediction(name, tuple(run.facts.classes[row] for row in rows), tuple(round(v, 4) for v in values), fit)
        for name, rows, values, fit in zip(names, best.tolist(), active.tolist(), fits, strict=True)
    ]


@torch.no_grad()
def predict_texts(
    run: Run, texts: Sequence[str], *, batch_size: int = 64, device: torch.device | str = "cpu"
) -> list[TextPrediction]:
    """An answer for each text: its class; or all classes above a half, where any number of them may be true."""
    if run.facts.vocabulary is None:
        raise complaint("predict", "a run on texts for texts", "a run on images", "Name picture files.")
    model = run.load_model().to(device)
    vocabulary = run.words()
    answers: list[TextPrediction] = []
    for start in range(0, len(texts), batch_size):
        few = texts[start : start + batch_size]
        activations = model(vocabulary.read(few, run.config.max_length).to(device)).activations.cpu()
        for text, row in zip(few, activations, strict=True):
            named = named_classes(row, run.facts.many)
            labels = tuple(run.facts.classes[place] for place in named)
            answers.append(TextPrediction(text, labels, tuple(round(float(row[place]), 4) for place in named)))
    return answers


def collect_texts(inputs: Sequence[str], columns: Columns, lines: Iterable[str], owner: str = "predict") -> list[str]:
    """The texts named: files of them (tables, or a text in each line), `lines` for -, and whatever else as it is."""
    texts: list[str] = []
    for each in inputs:
        path = Path(each)
        if each == "-":
            texts += [line.rstrip("\r\n").encode("utf-8", "replace").decode("utf-8") for line in lines]
        elif os.path.isfile(each):
            texts += texts_in(path, columns)
        elif os.path.isdir(each) or (each and (is_table(path) or path.suffix == ".txt")):
            got = f"{each}, which is " + ("a folder" if os.path.isdir(each) else "not there")
            raise complaint(owner, "texts, or files of them", got, "Check the name.")
        else:
            texts.append(each)
    if not texts:
        raise complaint(owner, "texts", "none", "Give some, name files, or - for standard input.")
    return texts
