"""Trained networks from run folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar, overload

import torch

from torchcaps.models import ImageModel, TextModel
from torchcaps.runs.run import GIVE_THE_SAME, Run

Network = TypeVar("Network", bound=torch.nn.Module)


@overload
def load(folder: Path | str) -> ImageModel | TextModel: ...


@overload
def load(folder: Path | str, model: Network) -> Network: ...


def load(folder: Path | str, model: torch.nn.Module | None = None) -> Any:
    """Load the trained model of a run folder, in evaluation mode.

    folder: of the run. model: a network to load the weights into, needed for runs of networks from Python.
    """
    run = Run.open(folder)
    return run.load_model() if model is None else run.load_into(model, GIVE_THE_SAME)
