"""The Lightning module of training: losses, optimizer, order of examples, and metrics of each epoch."""

from __future__ import annotations

import math
import multiprocessing
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Sampler

from torchcaps._core.device import choose_device
from torchcaps._core.errors import input_error
from torchcaps._core.types import Capsules
from torchcaps.analysis.evaluate import hits
from torchcaps.data import AUGMENTATIONS, Batch, DatasetExamples, Examples
from torchcaps.data.disk_store import Floats, Stack
from torchcaps.losses import READOUTS, Answer, class_loss, reconstruction_loss, spread_margin
from torchcaps.models import ImageModel, readout_of
from torchcaps.models.encoders import Encoder
from torchcaps.runs.config import TrainConfig, required
from torchcaps.train.distributed import Member, summed
from torchcaps.train.features import encoded
from torchcaps.train.rates import learning_rate_factor, parameter_groups


class BatchShard(NamedTuple):
    """The part of a batch that one process computes.

    weight: the factor of its mean loss, such that the mean over processes is the mean over examples; 0 if the process
    only takes part in communication. weights: of its examples [b]; None for equal ones.
    """

    batch: Batch
    weight: float
    weights: Tensor | None = None


class ShardedBatchSampler(Sampler[tuple[Tensor, float]]):
    """The rows of each batch, in order, and their weight; for several processes, the shard of one.

    A step takes `accumulate` batches. If a batch is smaller than the number of processes, the processes without an
    example get one of weight zero, because all must take part in every step.
    """

    seed = epoch = 0

    def __init__(self, data: Examples, batch_size: int, accumulate: int = 1, member: Member | None = None) -> None:
        self.size, self.batch_size, self.step = len(data), batch_size, batch_size * accumulate
        self.member = member or Member()

    def __len__(self) -> int:
        return math.ceil(self.size / self.batch_size)

    def rows(self) -> Tensor:
        return torch.arange(self.size)

    def __iter__(self) -> Iterator[tuple[Tensor, float]]:
        rank, world = self.member
        for step in self.rows().split(self.step):
            for batch in step.split(self.batch_size):
                own = batch[rank::world]
                weight = world * (self.step // self.batch_size) * len(own) / len(step)
                yield (own if len(own) else batch[:1]), weight


class EpochOrder(ShardedBatchSampler):
    """A random order that depends only on the seed and the epoch, for any number of processes.

    Steps consist of texts of similar length, to reduce padding.
    """

    def __init__(
        self, data: Examples, batch_size: int, seed: int, accumulate: int = 1, member: Member | None = None
    ) -> None:
        super().__init__(data, batch_size, accumulate, member)
        self.seed = seed
        self.lengths: Tensor | None = getattr(data, "lengths", None)  # of texts

    def set_epoch(self, epoch: int) -> None:  # called by Lightning
        self.epoch = epoch

    def rows(self) -> Tensor:
        generator = torch.Generator().manual_seed(draw_seed(self.seed, self.epoch))
        order = torch.randperm(self.size, generator=generator)
        if self.lengths is None:
            return order
        chunks = order.split(20 * self.step)
        order = torch.cat([chunk[self.lengths[chunk].argsort(stable=True)] for chunk in chunks])
        steps = order.split(self.step)
        places = torch.randperm(len(steps), generator=generator).tolist()
        return torch.cat(
            [steps[place] for place in places if len(steps[place]) == self.step]
            + [step for step in steps if len(step) < self.step]
        )


def batched(values: list[float], count: int) -> list[list[float]]:
    """Split values into chunks of `count`; an incomplete rest is dropped."""
    return [values[start : start + count] for start in range(0, len(values) - count + 1, count)]


def draw_seed(seed: int, number: int) -> int:
    """The seed of all random numbers of one step, or of the order of one epoch."""
    return seed * 100_000_007 + number


class _Shares(Dataset[BatchShard]):
    """Rows of a data set, fetched a batch at a time; a Dataset that draws at random draws by the seed and the epoch."""

    def __init__(self, data: Examples, order: ShardedBatchSampler, weights: Tensor | None) -> None:
        self.data, self.order, self.weights = data, order, weights

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, item: tuple[Tensor, float]) -> BatchShard:
        rows, weight = item
        weights = None if self.weights is None else self.weights[rows]
        if isinstance(self.data, DatasetExamples):
            return BatchShard(self.data.batch(rows, draw_seed(self.order.seed, self.order.epoch)), weight, weights)
        return BatchShard(self.data.batch(rows), weight, weights)


CAN_FORK = "fork" in multiprocessing.get_all_start_methods()
WORKERS = 2  # for a GPU, if examples are loaded one by one


def loader(
    data: Examples, order: ShardedBatchSampler, config: TrainConfig, weights: Tensor | None = None
) -> DataLoader[BatchShard]:
    """A data loader of batches in this order. Batches for a CUDA device are in pinned memory, which it copies from.

    weights: of the examples [n], for the loss.
    """
    device = choose_device("train", config.device).type
    workers = config.workers
    if workers is None:
        workers = WORKERS if device != "cpu" and CAN_FORK and is_loaded(data) else 0
    if workers and not CAN_FORK:
        raise input_error("--workers", "a system with fork", sys.platform, "Drop --workers.")
    return DataLoader(
        _Shares(data, order, weights),
        batch_size=None,
        sampler=order,
        collate_fn=lambda share: share,
        num_workers=workers,
        multiprocessing_context="fork" if workers else None,  # files and Datasets are inherited, not pickled
        pin_memory=device == "cuda",
    )


def is_loaded(data: Examples) -> bool:
    """Whether images, or the items of a Dataset, are loaded one by one when a batch is requested."""
    stored = getattr(data, "features", getattr(data, "images", None))
    return isinstance(data, DatasetExamples) or isinstance(stored, Stack | Floats)


class TrainingModule(pl.LightningModule):
    """A model with its losses, its optimizer and the metrics of each epoch.

    encoder: a frozen one, whose features the model reads in place of the images of a batch.
    """

    def __init__(self, model: nn.Module, config: TrainConfig, steps: int, encoder: Encoder | None = None) -> None:
        super().__init__()
        self.model = model
        self.frozen = (encoder,)  # in a tuple: not a part of the state that is stored
        self.readout = readout_of(model)
        for module in model.modules():  # convolutions are faster, on a CPU too
            if isinstance(module, nn.Conv2d):
                module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.config = config
        self.steps = steps
        self.kind = config.loss or READOUTS[self.readout]
        self.augment = AUGMENTATIONS[config.augment or "none"]
        self.sums = {part: torch.zeros(3, dtype=torch.float64) for part in ("train", "validation")}
        self.unread: list[tuple[Tensor, int]] = []  # of batches: total, loss and hits on the device; size

    def configure_optimizers(self) -> Any:
        config = self.config
        decay = required(config.weight_decay)
        groups = parameter_groups(self.model, required(config.lr), config.encoder_lr, weight_decay=decay)
        rates = self.trainer.strategy.broadcast([group["lr"] for group in groups])  # processors may round differently
        for group, rate in zip(groups, rates, strict=True):
            group["lr"] = rate
        optimizer = torch.optim.AdamW(groups, weight_decay=decay, fused=True)

        def factor(step: int) -> float:
            return learning_rate_factor(required(config.schedule), step, self.steps, required(config.epochs))

        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def on_fit_start(self) -> None:
        (encoder,) = self.frozen
        if encoder is not None:
            encoder.to(self.device)

    def _answer(self, batch: Batch) -> tuple[Capsules, Batch]:
        """The capsules of a batch, and the batch with its images beside their features."""
        (encoder,) = self.frozen
        if encoder is not None:
            batch = encoded(encoder, batch)
        return self.model(batch.inputs), batch

    def loss_of(self, batch: Batch, capsules: Capsules, weights: Tensor | None = None) -> Tensor:
        """The mean loss of a batch: classes, with weights of examples, and reconstruction if it has a weight."""
        steps = 50_000 if self.config.preset == "paper" else max(1, self.steps // 2)
        margin = spread_margin(self.global_step, steps=steps)
        down_weight = 0.5 if self.config.down_weight is None else self.config.down_weight
        loss = class_loss(self.kind, Answer(capsules, batch.labels, self.readout, margin, down_weight, weights))
        if self.config.reconstruction and isinstance(self.model, ImageModel):
            drawn = self.model.reconstruct(capsules, batch.labels)
            wanted = batch.inputs if batch.parts is None else batch.parts
            loss = loss + reconstruction_loss(drawn, wanted, self.config.reconstruction)
        return loss

    def on_train_epoch_start(self) -> None:
        self.sums["train"].zero_()

    def training_step(self, share: BatchShard, index: int) -> Tensor:
        count = self.config.accumulate
        number = self.global_step * count + index % count  # different random numbers for every batch and process
        torch.manual_seed(draw_seed(self.config.seed, number * self.trainer.world_size + self.global_rank))
        batch, weight, weights = share
        if batch.inputs.ndim == 4 and batch.inputs.is_floating_point():
            images = self.augment(batch.inputs).contiguous(memory_format=torch.channels_last)
            batch = batch._replace(inputs=images)
        capsules, batch = self._answer(batch)
        loss = self.loss_of(batch, capsules, weights)
        total = summed(loss.detach(), self.device)  # if one process must stop, all do
        right = hits(capsules.activations.detach(), batch.labels).sum()
        self.unread.append(
            (torch.stack([total, loss.detach(), right.to(loss.dtype)]), len(batch.inputs) * bool(weight))
        )
        return loss * weight

    def configure_gradient_clipping(self, optimizer: Any, *args: Any, **more: Any) -> None:
        norm = torch.nn.utils.get_total_norm([p.grad for p in self.parameters() if p.grad is not None])
        (found,) = self._read(norm)
        if not math.isfinite(found) and self.trainer.precision == "32-true":  # with float16, the loss scaler handles it
            self._stop("gradient", found)

    def _read(self, *more: Tensor) -> list[float]:
        """Add the results of the last batches to the sums, and return `more` numbers, with one synchronization."""
        unread, self.unread = self.unread, []
        parts = [*(part for part, _ in unread), *(each.detach().reshape(1) for each in more)]
        numbers = torch.cat([part.to(parts[0].dtype) for part in parts]).tolist() if parts else []
        for (total, loss, right), (_, size) in zip(batched(numbers, 3), unread, strict=False):
            if not math.isfinite(total):
                self._stop("loss", total)
            self.sums["train"] += torch.tensor([loss * size, right if size else 0, size], dtype=torch.float64)
        return numbers[3 * len(unread) :]

    def _stop(self, what: str, value: float) -> None:
        step, epoch = self.global_step, self.current_epoch + 1
        remedy = f"Try a lower --lr than {self.config.lr:g}; the weights from before are kept."
        raise input_error("train", f"a finite {what}", f"{value} at step {step} in epoch {epoch}", remedy)

    def on_validation_epoch_start(self) -> None:
        self.sums["validation"].zero_()

    def validation_step(self, share: BatchShard, index: int) -> None:
        batch, weight, _ = share
        capsules, batch = self._answer(batch)
        if weight:
            self._count("validation", self.loss_of(batch, capsules), capsules, batch)

    def _count(self, part: str, loss: Tensor, capsules: Capsules, batch: Batch) -> None:
        size = len(batch.inputs)
        right = hits(capsules.activations.detach(), batch.labels).sum()
        self.sums[part] += torch.tensor([float(loss.detach()) * size, float(right), size], dtype=torch.float64)

    def gather(self) -> None:
        """At the end of an epoch, sum the metrics over all processes."""
        self._read()
        self.sums = {part: summed(own, self.device) for part, own in self.sums.items()}

    def means(self, part: str) -> tuple[float, float]:
        """Mean loss and accuracy of the epoch so far."""
        loss, right, count = self.sums[part].tolist()
        return (loss / count, right / count) if count else (math.nan, math.nan)
