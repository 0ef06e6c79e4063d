"""Preparation of a model for training, and training in memory without a run folder."""

from __future__ import annotations

import logging
import math
import sys
import warnings

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader

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
    encoder: Encoder | None = None,
) -> tuple[TrainingModule, DataLoader[BatchShard]]:
    """The training module of a model and its batches.

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
    return TrainingModule(model, config, steps, encoder), loader(data, order, config)


def fit_model(model: Model, data: Examples, config: TrainConfig, *, verbose: bool = False) -> None:
    """Train a model in place with a complete config, on all of the data. It keeps the weights of the last epoch."""
    module, batches = prepare(model, data, config)
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
