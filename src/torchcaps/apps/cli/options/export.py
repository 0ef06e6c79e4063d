"""What export takes. Fields are options, their texts the help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import FlagCreatePairsOff, Positional, arg


@dataclass(frozen=True)
class Export:
    """Write a trained network as one file for other tools, for batches of any size, and try the file.

    It takes images (float32, 0 to 1, [batch, channels, height, width]) or words by number and gives `activations`
    [batch, classes] and `poses`. Classes, shape of images or vocabulary, and version stand in its metadata.
    """

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """The run folder."""
    onnx: FlagCreatePairsOff[bool] = False
    """An ONNX file; this is what is written if nothing is said."""
    torch: FlagCreatePairsOff[bool] = False
    """A program of torch.export (.pt2) instead."""
    out: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """The file to write; left out, model.onnx or model.pt2 in the run folder."""
