"""Checks by `fit` before training: that a network returns capsules, and which images it takes."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from torchcaps._core.errors import InputError, input_error, shape_text
from torchcaps._core.types import Capsules
from torchcaps.analysis.evaluate import eval_mode
from torchcaps.data import ArraySet
from torchcaps.layers import RoutedLayer
from torchcaps.models import ImageModel, readout_of


def first_answer(model: nn.Module, data: Any) -> Capsules:
    """The output of the network for two examples; an `InputError` if it lacks one activation for each class."""
    owner = type(model).__name__
    few = data.batch(torch.arange(min(2, len(data))))
    last: list[RoutedLayer] = []
    hooks = [
        module.register_forward_hook(lambda layer, *_: last.append(layer))
        for module in model.modules()
        if isinstance(module, RoutedLayer)
    ]
    try:
        with torch.no_grad(), eval_mode(model) as device:
            answer = model(few.inputs.to(device))
    except (InputError, torch.OutOfMemoryError):
        raise
    except (IndexError, RuntimeError, TypeError, ValueError) as error:
        shape = f"{shape_text(few.inputs.shape)} of {few.inputs.dtype} ({str(error).splitlines()[0].rstrip('. ')})"
        remedy = "Give images as floats [n c h w], or change its forward."
        raise input_error(owner, "inputs that its forward takes", shape, remedy) from error
    finally:
        for hook in hooks:
            hook.remove()
    if not isinstance(answer, Capsules):
        remedy = "Return what the last capsule layer gives."
        raise input_error(owner, "a network that returns Capsules", f"a {type(answer).__name__}", remedy)
    if answer.activations.ndim != 2 or len(answer.activations) != len(few.inputs) or answer.activations.shape[1] < 2:
        got = shape_text(answer.activations.shape)
        remedy = "Flatten grids, and end with a layer of one capsule for each class."
        raise input_error(owner, f"activations [b y] = ({len(few.inputs)}, classes)", got, remedy)
    if last and last[-1].routing.readout != readout_of(model) and not hasattr(model, "readout"):
        remedy = f"Define the layer of the classes last, or set readout = {last[-1].routing.readout!r} in the network."
        raise input_error(owner, "the capsule layer that is called last to be defined last", "another order", remedy)
    return answer


def image_shape_of(model: nn.Module, train: Any) -> tuple[int, int, int] | None:
    """The image shape; also for arrays, if one of our networks takes them as images from 0 to 1."""
    if train.kind == "images":
        shape: tuple[int, int, int] = train.image_shape
        return shape
    if train.kind != "arrays" or not isinstance(model, ImageModel):
        return None
    some = train.inputs if isinstance(train, ArraySet) else train.batch(torch.arange(min(64, len(train)))).inputs
    inside = some.is_floating_point() and float(some.amin()) >= 0 and float(some.amax()) <= 1
    return model.image_shape if inside else None
