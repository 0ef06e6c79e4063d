"""Preparation of a model for training, and training in memory without a run folder."""

from __future__ import annotations

import logging
import math
import sys
import warnings

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from torchcaps._core.errors import input_error
from torchcaps._core.neutral import terminal
from torchcaps.data import Examples
from torchcaps.models import Model, calibrate
from torchcaps.models.encoders import Encoder
from torchcaps.runs.config import TrainConfig, required
from torchcaps.train.distributed import Member
from torchcaps.train.features import encoded
from torchcaps.train.module import BatchShard, EpochOrder, TrainingModule, loader


def prepare(
    model: nn.Module,
    data: Examples,
    config: TrainConfig,
    member: Member | None = None,
    *,
    calibrated: bool = False,
    weights: Tensor | None = None,
    encoder: Encoder | None = None,
) -> tuple[TrainingModule, DataLoader[BatchShard]]:
    """The training module of a model and its batches. weights: of the examples [n], beside those of their classes.

    The model is calibrated to the data, unless `calibrated` is True or the preset is "paper" or "code". encoder: a
    frozen one that encodes every batch for the model.
    """
    if config.preset not in ("paper", "code") and not calibrated:
        few = data.batch(torch.arange(min(64, len(data))))
        calibrate(model, (few if encoder is None else encoded(encoder, few)).inputs)
    if config.compile:
        model.compile()
    order = EpochOrder(data, required(config.batch_size), config.seed, config.accumulate, member)
    steps = math.ceil(len(order) / config.accumulate) * required(config.epochs)
    if config.balance:
        balanced = class_weights(data)
        weights = balanced if weights is None else balanced * weights
    return TrainingModule(model, config, steps, encoder), loader(data, order, config, weights)


def class_weights(data: Examples) -> Tensor:
    """A weight for each example [n], with which every class weighs the same; one on average."""
    labels = getattr(data, "labels", None)
    if not isinstance(labels, Tensor) or labels.ndim != 1:
        got = (
            "several for an example" if isinstance(labels, Tensor) else "labels that are only known when they are read"
        )
        raise input_error("--balance", "one known label for each example", got, "Drop --balance.")
    counts = labels.bincount(minlength=len(data.classes)).float()
    return (len(labels) / (counts[labels] * (counts > 0).sum())).float()


def fit_model(
    model: Model, data: Examples, config: TrainConfig, *, verbose: bool = False, weights: Tensor | None = None
) -> None:
    """Train a model in place with a complete config, on all of the data. It keeps the weights of the last epoch.

    verbose: show a bar. weights: of the examples [n], one on average.
    """
    module, batches = prepare(model, data, config, weights=weights)
    with warnings.catch_warnings():
        quiet()
        trainer = pl.Trainer(
            max_epochs=config.epochs,
            accelerator=config.device,
            devices=1,
            accumulate_grad_batches=config.accumulate,
            logger=False,
            callbacks=[_Bar()] if verbose else None,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(module, batches)
    model.cpu().eval()


class _Bar(pl.Callback):
    """A bar on standard error, with the loss and accuracy of each epoch."""

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        from tqdm.auto import tqdm

        self.bar = tqdm(total=trainer.max_epochs, desc="epochs", file=terminal(sys.stderr))

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        assert isinstance(module, TrainingModule)
        loss, accuracy = module.means("train")
        self.bar.set_postfix(loss=f"{loss:.4f}", accuracy=f"{accuracy:.2%}")
        self.bar.update()

    def on_train_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.bar.close()


def quiet() -> None:
    """Ignore Lightning's warnings about loaders and loggers, which do not apply here."""
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning.*")
    warnings.filterwarnings("ignore", message=".*LeafSpec.*")
