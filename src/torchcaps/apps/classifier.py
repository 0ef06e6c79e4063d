"""A trained run as a classifier in Python, which keeps its network between calls."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchcaps._core.device import choose_device
from torchcaps._core.errors import check_count, input_error, shape_text
from torchcaps.analysis.predict import Prediction
from torchcaps.apps.inference import answers
from torchcaps.data.pictures import decode, resized, to_gray
from torchcaps.runs.run import Run


class Classifier:
    """A trained run that answers: `Classifier.load("runs/mine").predict("new.png")`.

    run: the run. device: "auto", "cpu", "cuda" or "mps".
    """

    def __init__(self, run: Run, device: str = "auto") -> None:
        self.run = run
        self.device = choose_device("Classifier", device)
        self.model = run.load_model().to(self.device)

    @classmethod
    def load(cls, folder: str | Path, device: str = "auto") -> Classifier:
        """The classifier of a run folder. folder: written by `train` or `fit`. device: as for the class."""
        return cls(Run.open(folder), device)

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes."""
        return self.run.metadata.classes

    def predict(self, inputs: Any, *, batch_size: int = 64) -> list[Prediction]:
        """Predict each input: its classes, their activations, and calibrated probabilities if the run has them.

        inputs: for pictures, one or several of: paths of files or folders, pictures of Pillow, arrays or tensors in any
        size, [h w] or [h w c] of bytes; or a batch as `torchcaps.predict` takes it, which has the size of the network.
        For texts, one or several strings. batch_size: inputs in a batch.
        """
        check_count("Classifier.predict", "batch_size", batch_size)
        pictures = list(_pictures(inputs)) if self.run.metadata.kind == "images" else []
        given = self._resized(pictures) if pictures else inputs
        return answers(self.run, self.model, given, self.device, batch_size)

    def _resized(self, pictures: list[Any]) -> Tensor:
        """Pictures as the network takes them, [n c h w] of bytes."""
        assert self.run.metadata.image_shape is not None
        channels, height, width = self.run.metadata.image_shape
        if channels not in (1, 3):
            remedy = "Give a batch [n c h w] of its size."
            raise input_error("Classifier.predict", "a run on gray or color pictures", f"{channels} channels", remedy)
        found = []
        for picture in pictures:
            pixels = np.asarray(resized(decode(picture), (height, width), self.run.config.fit))
            found.append(pixels if channels == 3 else to_gray(pixels))
        return torch.from_numpy(np.stack(found)).movedim(-1, 1).contiguous()


def _pictures(inputs: Any) -> Iterator[Any]:
    """Pictures of Pillow: the inputs, if they are such, or arrays of single pictures; nothing for other inputs."""
    several = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
    if not several or not all(_is_picture(each) for each in several):
        return
    for each in several:
        yield each if hasattr(each, "getbands") else _as_picture(each)


def _is_picture(each: Any) -> bool:
    return hasattr(each, "getbands") or (isinstance(each, np.ndarray | Tensor) and each.ndim in (2, 3) and _last(each))


def _last(each: Any) -> bool:
    """Whether an array is one picture, [h w] or [h w c], and not a batch [n h w] or a picture [c h w]."""
    return each.ndim == 2 or (each.shape[-1] in (1, 3, 4) and each.shape[0] > 4)


def _as_picture(array: Any) -> Any:
    from PIL import Image

    pixels = np.asarray(array)
    if pixels.dtype != np.uint8:
        expected, got = "pictures as bytes [h w] or [h w c]", f"{pixels.dtype} {shape_text(pixels.shape)}"
        raise input_error("Classifier.predict", expected, got, "Convert them: (255 * x).astype('uint8').")
    return Image.fromarray(pixels[..., 0] if pixels.ndim == 3 and pixels.shape[-1] == 1 else pixels)
