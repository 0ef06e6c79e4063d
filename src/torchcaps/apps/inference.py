"""Evaluation and prediction in Python: of a run, a run folder, or any network that returns capsules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from torchcaps._core.device import choose_device
from torchcaps._core.errors import check_choice, check_count, input_error
from torchcaps.analysis.evaluate import Evaluation, eval_mode
from torchcaps.analysis.evaluate import evaluate as evaluate_examples
from torchcaps.analysis.predict import Prediction, network_answers, picture_answers, text_answers
from torchcaps.data import Splits, TextSet
from torchcaps.data.own import as_examples, as_inputs, with_classes
from torchcaps.runs.parts import parts_for
from torchcaps.runs.run import Run

Subject = Run | Path | str | nn.Module


def evaluate(
    subject: Subject,
    data: Any = None,
    *,
    part: str = "test",
    classes: Sequence[str] | None = None,
    batch_size: int = 64,
    device: str = "auto",
) -> Evaluation:
    """Evaluate on labeled data: accuracy with its confidence interval, confusion matrix, recall and precision.

    subject: a run, its folder, or a network. data: as for `fit`; default: the `part` ("train", "validation" or "test")
    of the run's own. classes: the names of the classes, for a network with data that have none. batch_size: examples in
    a batch. device: "auto", "cpu", "cuda" or "mps".
    """
    check_count("evaluate", "batch_size", batch_size)
    chosen = choose_device("evaluate", device)
    run = _run_of(subject)
    network = run.load_model() if run is not None else subject
    assert isinstance(network, nn.Module)
    if data is None:
        if run is None:
            raise input_error("evaluate", "data beside a network", "none", "Give (inputs, labels) or a Dataset.")
        check_choice("evaluate", "part", part, ["train", "validation", "test"])
        examples = getattr(run.load_parts(), part)
    elif isinstance(data, str | Path):
        if run is None:
            raise input_error("evaluate", "a run for files", "a network alone", "Give (inputs, labels) or a Dataset.")
        examples = parts_for(run, str(data)).test
    else:
        examples = as_examples("evaluate", data, classes, None if run is None else run.metadata.classes)
        examples = _readable(run, examples)
    if not len(examples):
        raise input_error("evaluate", f"examples in the {part} part", "none", "Give data, or another part.")
    before = _device_of(network)
    try:
        return evaluate_examples(network.to(chosen), examples, batch_size=batch_size)
    finally:
        network.to(before)


def predict(
    subject: Subject, inputs: Any, *, batch_size: int = 64, device: str = "auto", classes: Sequence[str] | None = None
) -> list[Prediction]:
    """Predict each input: its classes in the order of their activations, the most active first.

    subject: a run, its folder, or a network. inputs: for a run on images, files or folders of pictures, or images
    [n c h w] or [n h w] as bytes or as floats from 0 to 1; for a run on texts, a list of texts; for any other network
    what it takes, as an array or a tensor [n ...]. classes: the names of the classes, for a network without a run.
    batch_size: inputs in a batch. device: "auto", "cpu", "cuda" or "mps".
    """
    check_count("predict", "batch_size", batch_size)
    chosen = choose_device("predict", device)
    run = _run_of(subject)
    network = run.load_model() if run is not None else subject
    assert isinstance(network, nn.Module)
    before = _device_of(network)
    try:
        return answers(run, network.to(chosen), inputs, chosen, batch_size, classes)
    finally:
        network.to(before)


def answers(
    run: Run | None,
    network: nn.Module,
    inputs: Any,
    device: torch.device,
    batch_size: int = 64,
    classes: Sequence[str] | None = None,
) -> list[Prediction]:
    """The predictions of a network that is on this device; the other arguments are those of `predict`.

    run: the one that trained it, if any.
    """
    if isinstance(inputs, Iterator) or (isinstance(inputs, np.ndarray) and inputs.dtype.kind in "UO"):
        inputs = list(inputs)
    if run is not None and run.metadata.kind == "texts" and _is_strings(inputs):
        return list(text_answers(run, network, [inputs] if isinstance(inputs, str) else list(inputs), batch_size))
    if run is not None and _is_paths(inputs):
        files = [inputs] if isinstance(inputs, str | Path) else inputs
        return list(picture_answers(run, network, [Path(file) for file in files], batch_size))
    given = as_inputs("predict", inputs)
    if run is not None and run.metadata.kind == "images":
        given = _as_images(given)
    metadata = None if run is None else run.metadata
    known = (classes or getattr(network, "class_names", None)) if metadata is None else metadata.classes
    found: list[Prediction] = []
    with eval_mode(network):
        for start in range(0, len(given), batch_size):
            few = given[start : start + batch_size].to(device)
            names = [str(start + row) for row in range(len(few))]
            found += network_answers(network, few, names, known, metadata)
    return found


def _device_of(network: nn.Module) -> torch.device:
    return next(network.parameters(), torch.empty(0)).device


def _run_of(subject: Subject) -> Run | None:
    if isinstance(subject, nn.Module):
        return None
    return subject if isinstance(subject, Run) else Run.open(subject)


def _readable(run: Run | None, examples: Any) -> Any:
    """The data with labels of the run's classes, and with its vocabulary if they are texts."""
    if run is None:
        return examples
    if isinstance(examples, TextSet) and examples.vocabulary is None:
        examples = run.readable(Splits(examples, None, None)).train
    return with_classes("evaluate", examples, run.metadata.classes)


def _is_strings(inputs: Any) -> bool:
    several = isinstance(inputs, Iterable) and not isinstance(inputs, Tensor | np.ndarray)
    return isinstance(inputs, str) or (several and all(isinstance(each, str) for each in inputs))


def _is_paths(inputs: Any) -> bool:
    several = isinstance(inputs, list | tuple) and len(inputs) > 0
    return isinstance(inputs, str | Path) or (several and all(isinstance(each, str | Path) for each in inputs))


def _as_images(given: Tensor) -> Tensor:
    """Images from 0 to 1, [n c h w]: bytes are divided by 255; an `InputError` for other values."""
    if given.dtype == torch.uint8:
        given = given.float() / 255
    if not given.is_floating_point() or not len(given) or float(given.amax()) > 1 or float(given.amin()) < 0:
        got = f"{given.dtype}" + (f" from {float(given.min()):g} to {float(given.max()):g}" if len(given) else "")
        remedy = "Divide by 255, or convert to uint8."
        raise input_error("predict", "images as bytes, or as floats from 0 to 1", got, remedy)
    return given.unsqueeze(1) if given.ndim == 3 else given
