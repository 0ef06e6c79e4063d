"""Learning rates: their schedules, and the rate of each group of parameters."""

from __future__ import annotations

import math
from typing import Any

from torch import nn

from torchcaps.layers import VoteTransform
from torchcaps.models.encoders import encoder_of
from torchcaps.models.evidence import WordEvidence


def learning_rate_factor(schedule: str, step: int, steps: int, epochs: int = 1) -> float:
    """The learning rate at a step, as a fraction of the highest.

    "one-cycle" (Smith 2018): a cosine from 1/25 up in three tenths of the steps, then a cosine down to nearly zero;
    "exponential" (Sabour 2017): 0.96 in every 2,000 steps; "slow-exponential" (Hinton 2018): in every 20,000;
    "epoch-exponential" (Mazzia 2021): 0.97 after every epoch, down to a tenth; "constant". steps, epochs: of all of
    the training.
    """
    if schedule == "epoch-exponential":
        return max(0.1, 0.97 ** (step * epochs // max(1, steps)))
    if schedule == "constant":
        return 1.0
    if schedule in ("exponential", "slow-exponential"):
        return max(1e-3, 0.96 ** (step / (2000 if schedule == "exponential" else 20_000)))
    rise = max(1, round(0.3 * steps))
    if step < rise:
        return 1 / 25 + (1 - 1 / 25) * (1 - math.cos(math.pi * step / rise)) / 2
    fall = min(1.0, (step - rise) / max(1, steps - rise))
    return 1e-5 + (1 - 1e-5) * (1 + math.cos(math.pi * fall)) / 2


def parameter_groups(
    model: nn.Module, lr: float, encoder_lr: float | None = None, *, weight_decay: float = 0.0
) -> list[dict[str, Any]]:
    """Parameters with their learning rates, which are scaled for vote transforms with larger initial weights.

    encoder_lr: that of a pretrained encoder. weight_decay: of AdamW; that of `WordEvidence` is a multiple of it.
    """
    groups, taken = [], set()
    for votes in (module for module in model.modules() if isinstance(module, VoteTransform)):
        factor = max(1.0, votes.std * math.sqrt(votes.fan_in()))
        groups.append({"params": list(votes.parameters()), "lr": lr * factor})
        taken |= set(votes.parameters())
    for evidence in (module for module in model.modules() if isinstance(module, WordEvidence)):
        groups.append({"params": list(evidence.parameters()), "lr": lr, "weight_decay": evidence.decay * weight_decay})
        taken |= set(evidence.parameters())
    encoder = encoder_of(model)
    if encoder_lr is not None and encoder is not None:
        groups.append({"params": list(encoder.parameters()), "lr": encoder_lr})
        taken |= set(encoder.parameters())
    return [*groups, {"params": [p for p in model.parameters() if p not in taken and p.requires_grad], "lr": lr}]
