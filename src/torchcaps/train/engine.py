"""Training a run from its config, and going on with one that was interrupted."""

from __future__ import annotations

import ctypes
import dataclasses
import logging
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any, Literal

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader

from torchcaps.config import TrainConfig, complete, filled
from torchcaps.data import AUGMENTATIONS, Batch, ImageSet, Splits, make_parts, split
from torchcaps.errors import InputError, check_choice, complaint
from torchcaps.evaluate import evaluate
from torchcaps.models import CapsuleModel, calibrate
from torchcaps.runs import Run, next_folder, read_data
from torchcaps.train.progress import Progress
from torchcaps.train.trainee import EpochOrder, Trainee, loader

PRECISIONS: dict[str, Literal["32-true", "16-mixed", "bf16-mixed"]] = {
    "float32": "32-true",
    "float16": "16-mixed",
    "bfloat16": "bf16-mixed",
}


def train(config: TrainConfig) -> Run:
    """Train as the config says and return the finished run. Ctrl-C ends it early, with the best weights so far."""
    _check_first(config)
    parts = _limit(
        make_parts(read_data(config), validation=config.validation, test=config.test, seed=config.seed), config
    )
    config = complete(config, len(parts.train))
    check_choice("train", "augment", config.augment, list(AUGMENTATIONS))
    if parts.train.labels_per_image > 1 and (config.augment != "none" or config.loss not in (None, "margin")):
        got = f"augment {config.augment} and loss {config.loss}"
        remedy = "Leave --augment and --loss out."
        raise complaint("train", "no augmentation and the margin loss for images of several things", got, remedy)
    folder = config.out or next_folder(config)
    return _fit(Run.create(folder, dataclasses.replace(config, out=folder), parts), parts)


def resume(folder: Path) -> Run:
    """Go on with a run that was interrupted, as if it had not been."""
    run = Run.open(folder)
    return _fit(run, _limit(run.load_parts(), run.config))


def _limit(parts: Splits, config: TrainConfig) -> Splits:
    if config.limit is None or config.limit >= len(parts.train) or not isinstance(parts.train, ImageSet):
        return parts
    return parts._replace(train=split(parts.train, [config.limit], config.seed)[0])


def _check_first(config: TrainConfig) -> None:
    """What should be known before any data are read."""
    check_choice("train", "device", config.device, ["auto", "cpu", "cuda", "mps"])
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there.get(config.device, True):
        raise complaint("train", f"a device {config.device}", "none on this machine", "Drop --device.")
    on_cpu = config.device == "cpu" or (config.device == "auto" and not any(there.values()))
    if config.precision == "float16" and on_cpu:
        raise complaint("train", "a GPU for float16", "a CPU", "Leave --precision out: float32 is right for a CPU.")
    if config.precision == "bfloat16" and on_cpu:
        # Some processors announce bfloat16 and die of it, so another process tries.
        trial = "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); torch.nn.Linear(64, 64).bfloat16()(a) @ a"
        if subprocess.run([sys.executable, "-c", trial], capture_output=True).returncode:
            remedy = "Leave --precision out: float32 is right for a CPU."
            raise complaint("train", "a processor that computes in bfloat16", "one that does not", remedy)


def _fit(run: Run, parts: Splits) -> Run:
    config = run.config
    torch.manual_seed(config.seed)
    model = run.new_model()
    _keep_memory()
    if config.preset != "paper" and isinstance(model, CapsuleModel):
        calibrate(model, parts.train.batch(torch.arange(min(64, len(parts.train)))).images)
    order = EpochOrder(len(parts.train), config.seed)
    batches = loader(parts.train, filled(config.batch_size), order)
    trainee = Trainee(model, config, steps=len(batches) * filled(config.epochs))
    progress = Progress(run)
    with warnings.catch_warnings():
        _quiet()
        trainer = _trainer(run, progress)
        _go(trainer, trainee, batches, parts, run, progress)
    return _finish(run, parts)


def _trainer(run: Run, progress: Progress) -> pl.Trainer:
    config = run.config
    return pl.Trainer(
        max_epochs=config.epochs,
        accelerator=config.device,
        devices=1,
        precision=PRECISIONS[config.precision],
        logger=_tensorboard(run) if config.tensorboard else False,
        callbacks=[progress],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )


def _go(
    trainer: pl.Trainer, trainee: Trainee, batches: DataLoader[Batch], parts: Splits, run: Run, progress: Progress
) -> None:
    checkpoint = run.checkpoint if run.checkpoint.exists() else None
    try:
        trainer.fit(
            trainee,
            batches,
            loader(parts.validation, 256) if len(parts.validation) else None,
            ckpt_path=checkpoint,
            weights_only=True,
        )
    except SystemExit:  # how Lightning ends after Ctrl-C
        raise KeyboardInterrupt from None
    except InputError:
        raise
    except (RuntimeError, OSError, EOFError, KeyError, ValueError, pickle.UnpicklingError) as error:
        if checkpoint is None or progress.began:
            raise
        reason = str(error).splitlines()[0][:200]
        remedy = f"Delete it to begin anew; {run.weights} still holds the best weights."
        raise complaint(str(checkpoint), "a checkpoint of this run", reason, remedy) from None


def _finish(run: Run, parts: Splits) -> Run:
    """Write down what a usual reconstruction error is, so that `predict` can tell an image that does not fit."""
    model = run.load_model()
    if model.decoder is None or not len(parts.validation):
        return run
    misfit = evaluate(model, parts.validation).misfit
    return run if misfit is None else run.with_facts(fits=float(misfit.quantile(0.99)))


def _tensorboard(run: Run) -> Any:
    try:
        from lightning.pytorch.loggers import TensorBoardLogger

        return TensorBoardLogger(run.folder, name="tensorboard", version="")
    except ModuleNotFoundError:
        remedy = "Run: pip install tensorboard."
        raise complaint("--tensorboard", "the package tensorboard", "it not installed", remedy) from None


def _keep_memory() -> None:
    """Ask glibc not to hand memory back after every operation: page faults took two thirds of EM routing's time."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # another C library
        return
    mallopt(-4, 0)  # M_MMAP_MAX
    mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD


def _quiet() -> None:
    """Lightning's advice on loaders and loggers does not apply: batches are made in memory, metrics are ours."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning.*")
    warnings.filterwarnings("ignore", message=".*LeafSpec.*")
