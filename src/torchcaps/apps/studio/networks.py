"""The networks that the studio shows: those that ship with the package, or a user's runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchcaps._core.errors import input_error, shape_text
from torchcaps.analysis.places import receptive_fields
from torchcaps.data import Examples, load_dataset
from torchcaps.models import CapsuleModel, ImageModel
from torchcaps.models.pretrained import PRETRAINED, load_pretrained, pretrained_metadata
from torchcaps.runs.card import test_result
from torchcaps.runs.parts import parts_for
from torchcaps.runs.run import Run


@dataclass(frozen=True)
class Network:
    """A trained network for images. kind: the name of its model; load: returns images to show.

    The images are the test part of a run. For pretrained networks of the package they are digits of mnist-5k, which may
    be among their training data.
    """

    name: str
    title: str
    model: ImageModel
    kind: str
    classes: tuple[str, ...]
    accuracy: float | None
    load: Callable[[], Examples]

    @cached_property
    def data(self) -> Examples:
        """The images to show; loaded on first use."""
        return self.load()

    @cached_property
    def placed(self) -> bool:
        """Whether its parts have positions in the image, more than one."""
        return isinstance(self.model, CapsuleModel) and len(receptive_fields(self.model).flatten(0, 1)) > 1

    def describe(self) -> dict[str, Any]:
        """The data that the page needs about it."""
        layers = self.model.routed_layers if isinstance(self.model, CapsuleModel) else []
        routing = layers[-1].routing if layers else None
        return {
            "name": self.name,
            "title": self.title,
            "classes": list(self.classes),
            "shape": list(self.model.image_shape),
            "decoder": self.model.decoder is not None,
            "model": self.kind,
            "routing": None if routing is None else routing.name,
            "iterations": None if routing is None else routing.iterations,
            "accuracy": self.accuracy,
            "placed": self.placed,
        }

    def image(self, pixels: Any) -> Tensor:
        """An image [c h w] from 0 to 1, from rows of pixels from 0 to 255, or such rows for each channel."""
        expected, remedy = f"pixels {shape_text(self.model.image_shape)} for {self.name}", "Send an image of this size."
        try:
            image = torch.tensor(pixels, dtype=torch.float32)
        except ValueError:
            raise input_error("studio", expected, "rows of different lengths", remedy) from None
        image = image[None] if image.ndim == 2 else image
        if tuple(image.shape) != self.model.image_shape:
            raise input_error("studio", expected, shape_text(image.shape), remedy)
        return image / 255

    def pixels(self, image: Tensor) -> Any:
        """The inverse: rows of integers, for each channel if there are several."""
        whole = (image.detach().clamp(0, 1) * 255).round().int()
        return (whole[0] if len(whole) == 1 else whole).tolist()


def shipped_networks() -> list[Network]:
    """All pretrained networks of the package."""
    return [_shipped(name) for name in PRETRAINED]


def _shipped(name: str) -> Network:
    metadata = pretrained_metadata(name)
    return Network(
        name,
        metadata["title"],
        load_pretrained(name),
        metadata["model"],
        tuple(metadata["classes"]),
        metadata["accuracy"],
        lambda: load_dataset("mnist-5k").test,
    )


def run_networks(folders: Sequence[Path], data_dir: Path | None = None) -> list[Network]:
    """The networks of these runs; an `InputError` for runs that are not on images."""
    networks: list[Network] = []
    for folder in folders:
        run = Run.open(folder)
        if run.metadata.kind != "images":
            remedy = "Try torchcaps explain." if run.metadata.kind == "texts" else "Choose another run."
            raise input_error(str(folder), "a run on images", f"one on {run.metadata.kind}", remedy)
        names = {network.name for network in networks}
        name = stem = folder.resolve().name
        number = 1
        while name in names:
            number += 1
            name = f"{stem}-{number}"
        kind = run.model_name
        title = f"{name}: {Path(run.config.data).name}, {kind}"
        networks.append(
            Network(
                name,
                title,
                run.load_model(),
                kind,
                run.metadata.classes,
                _accuracy(run),
                lambda run=run: parts_for(run, None, data_dir).test,  # type: ignore[misc]
            )
        )
    return networks


def _accuracy(run: Run) -> float | None:
    """The test accuracy, if `torchcaps evaluate` has saved it."""
    found = test_result(run)
    return None if found is None else found["accuracy"]
