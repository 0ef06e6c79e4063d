"""Training of a run from its config, and resuming of interrupted runs."""

from __future__ import annotations

import dataclasses
import os
import warnings
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Literal

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader

from torchcaps._core.device import choose_device
from torchcaps._core.errors import input_error
from torchcaps._core.locks import locked
from torchcaps._core.memory import keep_memory
from torchcaps.analysis.calibration import validated
from torchcaps.analysis.vitals import EXAMPLES, vitals
from torchcaps.data import Splits, Vocabulary, read_vectors
from torchcaps.losses import loss_of_classes
from torchcaps.models import Model, TextModel, readout_of
from torchcaps.models.encoders import encoder_of
from torchcaps.runs.card import write_card
from torchcaps.runs.config import TrainConfig, required
from torchcaps.runs.recipes import check_given
from torchcaps.runs.run import Run
from torchcaps.runs.rundata import read_data
from torchcaps.runs.runfolders import check_new, next_folder
from torchcaps.train import distributed
from torchcaps.train.conditions import conditions, differences
from torchcaps.train.features import encoded, split_encoder
from torchcaps.train.log import logged, say, write_log
from torchcaps.train.module import BatchShard, ShardedBatchSampler, TrainingModule, loader
from torchcaps.train.plan import checked, draft, planned
from torchcaps.train.prepare import prepare, quiet
from torchcaps.train.progress import Progress, WholeFiles
from torchcaps.train.summary import closing_lines, run_summary

PRECISIONS: dict[str, Literal["32-true", "16-mixed", "bf16-mixed"]] = {
    "float32": "32-true",
    "float16": "16-mixed",
    "bfloat16": "bf16-mixed",
}
MANY = 60  # a message is shown if a recipe leads to more epochs


def train(config: TrainConfig, *, compare: bool = False) -> Run:
    """Train with these options and return the finished run. Ctrl-C ends it early, with the best weights so far.

    compare: end with a sentence if validation was still rising, or if a classifier that takes seconds is as good.
    With several devices, child processes train while this one waits for them. Under torchrun, the first process creates
    the run, and the others join it.
    """
    if distributed.this_process().rank:
        return resume(distributed.wait_for_folder())
    if distributed.is_other_node(config):
        check_given(config)
        distributed.check_processes(config)
        return _together(required(config.out), config)
    with ExitStack() as held:
        run, parts, model = _begin(checked(config), held)
        if not distributed.asked(config):
            distributed.announce_folder(run.folder)
            run = fit_run(run, parts, model)
            for line in closing_lines(run, parts) if compare else ():
                say(line, run.log, error=True)
            return run
    del parts, model  # the child processes load their own, and the first of them takes the lock
    return _together(run.folder, config)


def _together(folder: Path, config: TrainConfig, data_dir: Path | None = None) -> Run:
    distributed.start(partial(resume, data_dir=data_dir), folder, config)
    return Run.open(folder)


def _begin(config: TrainConfig, held: ExitStack) -> tuple[Run, Splits, Model]:
    """A new run folder, which stays locked until `held` is closed, its data and its network."""
    asked = config
    config, parts = planned(config, read_data(config))
    many = asked.epochs is None and required(config.epochs) > MANY
    folder = config.out or next_folder(config)
    config = dataclasses.replace(config, out=folder)
    if distributed.this_process().world > 1:
        devices, nodes = distributed.sizes()
        config = dataclasses.replace(config, devices=devices, nodes=nodes)
    train = parts.train
    if train.kind != "texts" or config.encoder is not None:
        run, model = draft(config, parts)
        _tell_of_many(config, parts, many)
        lock_new(folder, held)
        run = run.begin(parts, getattr(run.encoder, "vocabulary", None))
        return run, run.readable(parts), model
    vectors = None if config.vectors is None else read_vectors(config.vectors)
    more = () if vectors is None else vectors.words
    tokens = required(config.tokens)
    vocabulary = Vocabulary.build(train.texts, more, longest=config.max_length, tokens=tokens)
    run, model = draft(config, parts, len(vocabulary), None if vectors is None else vectors.vectors.shape[1])
    _tell_of_many(config, parts, many)
    lock_new(folder, held)
    run = run.begin(parts, vocabulary)
    return run, run.readable(parts), model


def _tell_of_many(config: TrainConfig, parts: Splits, many: bool) -> None:
    if many:
        say(
            f"{len(parts.train):,} training examples are few: {config.epochs:,} epochs. --epochs N or --patience N end "
            "sooner, as does Ctrl-C, which keeps the best weights.",
            error=True,
        )


def lock_new(folder: Path, held: ExitStack) -> None:
    """Create a folder and lock it. Raises an `InputError` if it has content."""
    check_new(folder)
    try:
        held.enter_context(locked(folder))
    except OSError as error:
        raise input_error(str(folder), "a folder to write to", error, "Choose another --out.") from None


def resume(folder: Path, devices: int | None = None, nodes: int | None = None, data_dir: Path | None = None) -> Run:
    """Resume an interrupted run; the result is the same as without the interruption.

    devices, nodes: other numbers of processes than before. data_dir: where data sets by name are now; missing ones are
    downloaded there.
    """
    run = Run.open(folder)
    if run.metadata.in_python or run.config.model is None:
        got = "one whose network or data were given in Python"
        raise input_error(str(folder), "a run of torchcaps train", got, f"Go on there: {run.how_to_resume}")
    if run.metadata.stopped:
        write_card(run)
        return run
    if not distributed.joined():
        began = run.config
        config = dataclasses.replace(began, devices=devices or began.devices, nodes=nodes or began.nodes)
        check_given(config)
        distributed.check_processes(config)
        if distributed.asked(config):
            return _together(folder, config, data_dir)
    if distributed.this_process().rank:
        # The first process writes, and holds the lock.
        return fit_run(run, run.load_parts(data_dir=data_dir), run.new_model())
    with locked(folder) as lost:
        if lost is not None:
            say(f"{lost} ended before it could finish this run; it goes on from its last epoch.", run.log, error=True)
        return fit_run(run, run.load_parts(data_dir=data_dir), run.new_model())


def fit_run(run: Run, parts: Splits, model: nn.Module, *, calibrated: bool = False) -> Run:
    """Train the network of a run on these parts, or resume its training, and return the finished run.

    calibrated: the network is already calibrated to the data, or trained.
    """
    try:
        if distributed.this_process().rank:
            return _fit_whole(run, parts, model, calibrated)
        with logged(run.log):
            for line in [] if run.checkpoint.exists() else run_summary(parts, run.config, encoder_of(model)):
                say(line, run.log, error=line.startswith("warning"))
            return _fit_whole(_under_conditions(run), parts, model, calibrated)
    except OSError as error:
        remedy = f"Make room, then go on: {run.how_to_resume}"
        got = error.strerror or str(error)
        raise input_error("train", f"to write {error.filename or run.folder}", got, remedy) from None


def _under_conditions(run: Run) -> Run:
    """Record the conditions of a new run; report a change of conditions of a resumed one."""
    now = conditions(choose_device("train", run.config.device).type)
    begins = not run.checkpoint.exists()
    listed = ", ".join(f"{name} {value}" for name, value in now.items())
    write_log(run.log, f"process {os.getpid()} {'begins' if begins else 'goes on'}: {listed}")
    if begins:
        return run.with_metadata(conditions=now)
    other = differences(run.metadata.conditions, now)
    if other:
        said = "The run goes on under other conditions, so that its last bits may differ from those of one that was"
        say(f"{said} not interrupted: {'; '.join(other)}.", run.log, error=True)
    return run


def _fit_whole(run: Run, parts: Splits, model: nn.Module, calibrated: bool) -> Run:
    config = run.config
    keep_memory()
    if isinstance(model, TextModel) and config.vectors is not None and not run.checkpoint.exists():
        generator = torch.Generator().manual_seed(config.seed)
        words = run.words().words
        model.set_vectors(read_vectors(config.vectors).table(words, generator))
    network, seen, encoder = split_encoder(model, parts, config)
    member = distributed.this_process()
    module, batches = prepare(network, seen.train, config, member, calibrated=calibrated, encoder=encoder)
    few = seen.validation if len(seen.validation) else seen.train
    shown = few.batch(torch.arange(min(EXAMPLES, len(few))))
    shown = shown if encoder is None else encoded(encoder, shown)
    loss = loss_of_classes(config.loss, readout_of(model))
    progress = Progress(run, lambda model: vitals(model, shown, loss))
    first = distributed.this_process().rank == 0
    if first and run.weights.exists() and not run.checkpoint.exists():  # restarted: keep the previous weights
        os.replace(run.weights, run.path("model.previous.safetensors"))
    try:
        with warnings.catch_warnings():
            quiet()
            _go(_trainer(run, progress), module, batches, seen, run, progress)
    except KeyboardInterrupt:
        if run.weights.exists():
            _finish(run, parts, model)
            say(f"\nStopped. The best weights so far are in {run.weights}", run.log)
        say(f"Go on with: {run.how_to_resume}", run.log)
        raise
    except Exception as error:
        if distributed.is_loss(error):
            distributed.leave(run.folder)
        raise
    return _finish(run, parts, model, stopped=progress.stopped) if first else run


def _trainer(run: Run, progress: Progress) -> pl.Trainer:
    config = run.config
    devices, nodes = distributed.sizes()
    return pl.Trainer(
        max_epochs=config.epochs,
        accelerator=config.device,
        devices=devices,
        num_nodes=nodes,
        strategy="ddp" if distributed.joined() else "auto",
        use_distributed_sampler=False,
        accumulate_grad_batches=config.accumulate,
        precision=PRECISIONS[config.precision],
        logger=_tensorboard(run) if config.tensorboard else False,
        callbacks=[progress],
        plugins=[WholeFiles()],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )


def _go(
    trainer: pl.Trainer,
    module: TrainingModule,
    batches: DataLoader[BatchShard],
    parts: Splits,
    run: Run,
    progress: Progress,
) -> None:
    checkpoint = run.checkpoint if run.checkpoint.exists() else None
    validation = ShardedBatchSampler(
        parts.validation, required(run.config.batch_size), member=distributed.this_process()
    )
    try:
        trainer.fit(
            module,
            batches,
            loader(parts.validation, validation, run.config) if len(parts.validation) else None,
            ckpt_path=checkpoint,
            weights_only=True,
        )
    except SystemExit:  # how Lightning ends after Ctrl-C
        raise KeyboardInterrupt from None
    except Exception as error:
        if checkpoint is None or progress.began or distributed.is_loss(error):
            raise
        remedy = f"Delete it to begin anew; the best weights so far stay beside it in {run.folder}."
        raise input_error(str(checkpoint), "a checkpoint of this run", "a broken or foreign file", remedy) from None


def _finish(run: Run, parts: Splits, model: nn.Module, stopped: bool = False) -> Run:
    """Load the best weights; write what the validation part tells about them, for `predict`, and the model card."""
    run.load_into(model.cpu())
    run = run.with_metadata(**validated(model, parts.validation))
    if stopped:
        run = run.with_metadata(stopped=True)
    write_card(run)
    return run


def _tensorboard(run: Run) -> Any:
    try:
        from lightning.pytorch.loggers import TensorBoardLogger

        folder = run.path("tensorboard")
        for name in os.listdir(folder) if folder.exists() else ():
            run.path("tensorboard", name)
        return TensorBoardLogger(folder.parent, name="tensorboard", version="")
    except ModuleNotFoundError:
        remedy = "Run: pip install tensorboard."
        raise input_error("--tensorboard", "the package tensorboard", "it not installed", remedy) from None
