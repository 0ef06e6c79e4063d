"""Probabilities from activations: a softmax of their logits with a temperature that the validation part chooses.

Guo, Pleiss, Sun, Weinberger 2017, "On Calibration of Modern Neural Networks".
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import nll_loss

from torchcaps.analysis.evaluate import batches, eval_mode, evaluate
from torchcaps.data import Examples
from torchcaps.models import readout_of
from torchcaps.models.base import draws

SHARES = ("share", "logit")  # kinds of activations that sum to one over classes
LOWEST = 1e-6  # distance of an activation from 0 and 1
TEMPERATURES = torch.logspace(-1.5, 1.5, 301, dtype=torch.float64)
TELLING = 0.5  # of images without their own class, that must be above the limit of reconstruction errors
FEWEST = 20  # validation examples that choose a temperature


def probabilities(activations: Float[Tensor, "*b y"], readout: str, temperature: float = 1.0) -> Float[Tensor, "*b y"]:
    """The probability of each class. readout: the kind of the activations, a key of `losses.READOUTS`."""
    return (_logits(activations.double(), readout) / temperature).softmax(-1).to(activations.dtype)


def _logits(activations: Tensor, readout: str) -> Tensor:
    return activations.clamp(min=1e-12).log() if readout in SHARES else torch.logit(activations, eps=LOWEST)


def best_temperature(activations: Float[Tensor, "n y"], labels: Tensor, readout: str) -> float:
    """The temperature with the lowest negative log-likelihood of the labels [n], from 0.03 to 32."""
    logits = _logits(activations.double(), readout)
    losses = torch.stack([nll_loss((logits / t).log_softmax(-1), labels) for t in TEMPERATURES])
    return float(TEMPERATURES[losses.argmin()])


def calibration_error(likely: Float[Tensor, "n y"], labels: Tensor, bins: int = 10) -> float:
    """The expected calibration error: how far confidence and accuracy differ, averaged over bins of confidence."""
    confidence, said = likely.max(-1)
    right = (said == labels).to(likely.dtype)
    place = (confidence * bins).long().clamp(max=bins - 1)
    gaps = [(right[place == number] - confidence[place == number]).sum().abs() for number in range(bins)]
    return float(torch.stack(gaps).sum() / len(labels))


@torch.no_grad()
def tells_unknown(model: nn.Module, validation: Examples, limit: float) -> float:
    """The share of images whose reconstruction error exceeds the limit if the capsule of their own class is left out.

    This stands for pictures of a class that the network does not know: another class has to reconstruct them.
    """
    assert draws(model)
    above, count = 0, 0
    with eval_mode(model) as device:
        for batch in batches(validation, 64):
            if batch.labels.ndim > 1:  # several classes may be true
                return 1.0
            inputs, labels = batch.inputs.to(device), batch.labels.to(device)
            capsules = model(inputs)
            others = capsules.activations.scatter(1, labels.unsqueeze(1), -1.0).argmax(1)
            errors = (model.reconstruct(capsules, others) - inputs).square().flatten(1).mean(1)
            above, count = above + int((errors > limit).sum()), count + len(labels)
    return above / count


def validated(model: nn.Module, validation: Examples) -> dict[str, Any]:
    """What a run stores about its best weights: the 99 % quantile of reconstruction errors, and the temperature.

    The quantile is left out where it could not tell a picture of an unknown class (see `tells_unknown`).
    """
    if not len(validation):
        return {}
    found = evaluate(model, validation)
    errors = found.reconstruction_error
    stored: dict[str, Any] = {}
    if errors is not None:
        limit = float(errors.quantile(0.99))
        if tells_unknown(model, validation, limit) >= TELLING:
            stored["fits"] = limit
    if not found.many and found.labels.shape[-1] == 1 and found.count >= FEWEST:
        stored["temperature"] = best_temperature(found.activations, found.labels[:, 0], readout_of(model))
    return stored
