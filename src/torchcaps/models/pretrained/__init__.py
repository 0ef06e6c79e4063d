"""Trained networks that are part of the package. `scripts/pretrain.py` trains them again.

Each has a folder: metadata.json (description and test accuracy), config.json (every option of its training, for
`torchcaps train --config`) and model.safetensors (the weights in float16).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from torchcaps._core.errors import check_choice
from torchcaps.models import ImageModel, create_model

FOLDER = Path(__file__).parent
PRETRAINED = tuple(sorted(path.parent.name for path in FOLDER.glob("*/metadata.json")))


def pretrained_metadata(name: str) -> dict[str, Any]:
    """The metadata of a trained network: its title, model, options, image_shape, classes, data and test accuracy."""
    check_choice("load_pretrained", "name", name, PRETRAINED)
    metadata: dict[str, Any] = json.loads((FOLDER / name / "metadata.json").read_text())
    return metadata


def load_pretrained(name: str = "mnist-efficient") -> ImageModel:
    """Load a trained network by name, in evaluation mode, without a download. `PRETRAINED` lists the names."""
    metadata = pretrained_metadata(name)
    options: dict[str, Any] = {
        word: tuple(value) if isinstance(value, list) else value for word, value in metadata["options"].items()
    }
    channels, height, width = metadata["image_shape"]
    model = create_model(
        metadata["model"], classes=len(metadata["classes"]), image_shape=(channels, height, width), **options
    )
    model.load_state_dict(load_file(FOLDER / name / "model.safetensors"))  # copied into float32
    return model.eval()


__all__ = ["FOLDER", "PRETRAINED", "load_pretrained", "pretrained_metadata"]
