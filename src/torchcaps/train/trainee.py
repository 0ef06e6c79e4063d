"""A model in training: its losses, its optimiser, the order of its examples, and what is counted in each epoch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, nll_loss, one_hot
from torch.utils.data import DataLoader, Dataset, Sampler

from torchcaps.config import TrainConfig, filled
from torchcaps.data import AUGMENTATIONS, Batch, Examples, TextSet
from torchcaps.errors import complaint
from torchcaps.evaluate import hits
from torchcaps.layers import VoteTransform
from torchcaps.losses import margin_loss, reconstruction_loss, spread_loss, spread_margin
from torchcaps.models import ImageModel, Model
from torchcaps.types import Capsules


def class_loss(
    kind: str, model: Model, capsules: Capsules, labels: Tensor, margin: float = 0.9, down_weight: float = 0.5
) -> Tensor:
    """The loss on the classes: labels [b], [b n] where each image shows n things, or truth values [b y].

    Several things are learned with the margin loss; where activations share one among them, so that two cannot both be
    near one, by plain networks with a sigmoid for each class, and by other routings not at all.
    """
    activations = capsules.activations
    if labels.ndim == 2:
        truth = labels if labels.dtype == torch.bool else one_hot(labels, activations.shape[-1]).sum(1)
        if model.loss == "cross-entropy":
            return binary_cross_entropy_with_logits(capsules.poses.squeeze(-1), truth.to(capsules.poses.dtype))
        if model.loss == "nll":
            remedy = "Choose dynamic, entropy, attention, inverted, em, heinsen or variational."
            raise complaint("train", "a routing whose parents do not share one", "one that does", remedy)
        return margin_loss(activations, truth, down_weight=down_weight)
    if kind == "margin":
        return margin_loss(activations, labels, down_weight=down_weight)
    if kind == "spread":
        return spread_loss(activations, labels, margin)
    if kind == "nll":
        return nll_loss(activations.clamp(min=1e-12).log(), labels)
    logits = capsules.poses.squeeze(-1) if model.loss == "cross-entropy" else torch.logit(activations, eps=1e-6)
    return cross_entropy(logits, labels)


def learning_rate_factor(schedule: str, step: int, steps: int) -> float:
    """The learning rate at a step, as a share of the highest.

    "one-cycle" (Smith 2018): a cosine from 1/25 up in three tenths of the steps, then a cosine down to nearly zero;
    "exponential" (Sabour 2017): 0.96 in every 2,000 steps; "constant".
    """
    if schedule == "constant":
        return 1.0
    if schedule == "exponential":
        return max(1e-3, 0.96 ** (step / 2000))
    rise = max(1, round(0.3 * steps))
    if step < rise:
        return 1 / 25 + (1 - 1 / 25) * (1 - math.cos(math.pi * step / rise)) / 2
    fall = min(1.0, (step - rise) / max(1, steps - rise))
    return 1e-5 + (1 - 1e-5) * (1 + math.cos(math.pi * fall)) / 2


def parameter_groups(model: nn.Module, lr: float) -> list[dict[str, Any]]:
    """Parameters with their rates. Adam moves all weights alike; votes that start larger move in proportion."""
    groups, taken = [], set()
    for votes in (module for module in model.modules() if isinstance(module, VoteTransform)):
        factor = max(1.0, votes.std * math.sqrt(votes.fan_in()))
        groups.append({"params": list(votes.parameters()), "lr": lr * factor})
        taken |= set(votes.parameters())
    return [*groups, {"params": [p for p in model.parameters() if p not in taken and p.requires_grad], "lr": lr}]


class EpochOrder(Sampler[int]):
    """A random order that depends on the seed and the epoch alone.

    Texts of about the same length come together, in batches of so many, so that little is spent on padding.
    """

    def __init__(self, data: Examples, batch_size: int, seed: int) -> None:
        self.size, self.seed, self.epoch = len(data), seed, 0
        self.lengths = data.lengths if isinstance(data, TextSet) else None
        self.batch_size = batch_size

    def set_epoch(self, epoch: int) -> None:  # called by Lightning
        self.epoch = epoch

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(draw_seed(self.seed, self.epoch))
        order = torch.randperm(self.size, generator=generator)
        if self.lengths is not None:
            chunks = order.split(20 * self.batch_size)
            order = torch.cat([chunk[self.lengths[chunk].argsort(stable=True)] for chunk in chunks])
            batches = order.split(self.batch_size)
            places = torch.randperm(len(batches), generator=generator).tolist()
            order = torch.cat(
                [batches[place] for place in places if len(batches[place]) == self.batch_size]
                + [batch for batch in batches if len(batch) < self.batch_size]
            )
        return (row for batch in order.split(self.batch_size) for row in batch.tolist())


def draw_seed(seed: int, number: int) -> int:
    """The seed of everything drawn in one step, or of the order of one epoch."""
    return seed * 100_000_007 + number


class _Rows(Dataset[Batch]):
    """Rows of a data set, fetched a batch at a time."""

    def __init__(self, data: Examples) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitems__(self, rows: list[int]) -> Batch:
        return self.data.batch(torch.tensor(rows))


def loader(data: Examples, batch_size: int, order: Sampler[int] | None = None) -> DataLoader[Batch]:
    return DataLoader(_Rows(data), batch_size, sampler=order, collate_fn=lambda batch: batch)


class Trainee(pl.LightningModule):
    """A model with its losses, its optimiser and what is counted in each epoch."""

    def __init__(self, model: Model, config: TrainConfig, steps: int) -> None:
        super().__init__()
        self.model = model
        for module in model.modules():  # convolutions are faster so, on a CPU too
            if isinstance(module, nn.Conv2d):
                module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.config = config
        self.steps = steps
        self.kind = config.loss or model.loss
        self.augment = AUGMENTATIONS[config.augment or "none"]
        self.sums = {part: torch.zeros(3, dtype=torch.float64) for part in ("train", "validation")}

    def configure_optimizers(self) -> Any:
        config = self.config
        groups = parameter_groups(self.model, filled(config.lr))
        optimizer = torch.optim.AdamW(groups, weight_decay=filled(config.weight_decay), fused=True)

        def factor(step: int) -> float:
            return learning_rate_factor(filled(config.schedule), step, self.steps)

        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def loss_of(self, batch: Batch, capsules: Capsules) -> Tensor:
        steps = 50_000 if self.config.preset == "paper" else max(1, self.steps // 2)
        margin = spread_margin(self.global_step, steps=steps)
        down_weight = 0.5 if self.config.down_weight is None else self.config.down_weight
        loss = class_loss(self.kind, self.model, capsules, batch.labels, margin, down_weight)
        if self.config.reconstruction and isinstance(self.model, ImageModel):
            drawn = self.model.reconstruct(capsules, batch.labels)
            wanted = batch.inputs if batch.parts is None else batch.parts
            loss = loss + reconstruction_loss(drawn, wanted, self.config.reconstruction)
        return loss

    def on_train_epoch_start(self) -> None:
        self.sums["train"].zero_()

    def training_step(self, batch: Batch, index: int) -> Tensor:
        torch.manual_seed(draw_seed(self.config.seed, self.global_step))
        if isinstance(self.model, ImageModel):
            images = self.augment(batch.inputs).contiguous(memory_format=torch.channels_last)
            batch = batch._replace(inputs=images)
        capsules = self.model(batch.inputs)
        loss = self.loss_of(batch, capsules)
        if not torch.isfinite(loss):
            self._stop("loss", float(loss.detach()))
        self._count("train", loss, capsules, batch)
        return loss

    def configure_gradient_clipping(self, optimizer: Any, *args: Any, **more: Any) -> None:
        norm = torch.nn.utils.get_total_norm([p.grad for p in self.parameters() if p.grad is not None])
        if not torch.isfinite(norm) and self.trainer.precision == "32-true":  # float16 meets it by scaling the loss
            self._stop("gradient", float(norm))

    def _stop(self, what: str, value: float) -> None:
        step, epoch = self.global_step, self.current_epoch + 1
        remedy = f"Try a lower --lr than {self.config.lr:g}; the weights from before are kept."
        raise complaint("train", f"a finite {what}", f"{value} at step {step} in epoch {epoch}", remedy)

    def on_validation_epoch_start(self) -> None:
        self.sums["validation"].zero_()

    def validation_step(self, batch: Batch, index: int) -> None:
        capsules = self.model(batch.inputs)
        self._count("validation", self.loss_of(batch, capsules), capsules, batch)

    def _count(self, part: str, loss: Tensor, capsules: Capsules, batch: Batch) -> None:
        size = len(batch.inputs)
        right = hits(capsules.activations.detach(), batch.labels).sum()
        self.sums[part] += torch.tensor([float(loss.detach()) * size, float(right), size], dtype=torch.float64)

    def means(self, part: str) -> tuple[float, float]:
        """Mean loss and accuracy of the epoch so far."""
        loss, right, count = self.sums[part].tolist()
        return (loss / count, right / count) if count else (math.nan, math.nan)
