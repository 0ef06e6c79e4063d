"""Answers for pictures in files: the class, how active it is, and whether the reconstruction fits the picture."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from torchcaps.data import Batch, pictures_in, read_picture
from torchcaps.errors import complaint
from torchcaps.evaluate import misfits, top_classes
from torchcaps.models import ImageModel
from torchcaps.runs import Run


@dataclass(frozen=True)
class Prediction:
    """The answer for one file. confidence: the activation of the class, from 0 to 1; fits: None without a decoder."""

    file: str
    labels: tuple[str, ...]
    confidence: tuple[float, ...]
    fits: bool | None


def collect(files: Sequence[Path]) -> list[Path]:
    """The pictures named, and those in the folders named."""
    found: list[Path] = []
    for path in files:
        if not path.exists():
            raise complaint("predict", "files or folders of pictures", f"{path}, which is not there", "Check the name.")
        found += pictures_in(path) if path.is_dir() else [path]
    if not found:
        raise complaint("predict", "pictures", "folders without any", "Name files, or folders that hold pictures.")
    return found


def predict(
    run: Run, files: Sequence[Path], *, batch_size: int = 64, device: torch.device | str = "cpu"
) -> list[Prediction]:
    """An answer for each picture; those that cannot be read are left out, counted and named in a warning."""
    model = run.load_model().to(device)
    channels, height, width = run.facts.image_shape
    if channels not in (1, 3):
        remedy = "Predict from an array with run.load_model()."
        raise complaint("predict", "a run on grey or colour pictures", f"{channels} channels", remedy)
    paths = collect(files)
    answers: list[Prediction] = []
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
            answers += _answers(run, model, images.to(device), [str(path) for path, _ in named])
    if bad and not answers:
        raise complaint("predict", "readable pictures", bad[0], "Check the files.")
    if bad:
        warnings.warn(f"left out {len(bad)} of {len(paths)} files that cannot be read: {bad[0]}", stacklevel=2)
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
