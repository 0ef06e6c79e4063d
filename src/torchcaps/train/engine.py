"""Training a run from its config, and going on with one that was interrupted."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import subprocess
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader

from torchcaps.card import write_card
from torchcaps.config import TrainConfig, filled
from torchcaps.data import AUGMENTATIONS, DATASETS, Labelled, Splits, TextSet, Vocabulary, make_parts, read_vectors
from torchcaps.device import choose_device
from torchcaps.errors import check_choice, complaint
from torchcaps.evaluate import evaluate
from torchcaps.facts import DataFacts
from torchcaps.models import ImageModel, TextModel
from torchcaps.recipes import check_given, complete
from torchcaps.rundata import READ, limit, read_data
from torchcaps.runs import Run, next_folder, refuse_folder
from torchcaps.train import team
from torchcaps.train.prepare import prepare, quiet
from torchcaps.train.progress import Progress, WholeFiles
from torchcaps.train.trainee import Order, Share, Trainee, loader

PRECISIONS: dict[str, Literal["32-true", "16-mixed", "bf16-mixed"]] = {
    "float32": "32-true",
    "float16": "16-mixed",
    "bfloat16": "bf16-mixed",
}
MANY = 60  # epochs that nobody asked for, and that need a word


def train(config: TrainConfig) -> Run:
    """Train as the config says and return the finished run. Ctrl-C ends it early, with the best weights so far.

    With several devices, other processes train while this one waits for them. Where torchrun started this process,
    the first one begins the run, and the others go on with it.
    """
    if team.here().rank:
        return resume(team.hear())
    if team.is_other_node(config):
        check_given(config)
        team.check_team(config)
        return _together(filled(config.out), config)
    run, parts = _begin(_checked(config))
    if team.asked(config):
        del parts  # the processes that train read their own
        return _together(run.folder, config)
    team.tell(run.folder)
    return _fit(run, parts)


def _together(folder: Path, config: TrainConfig) -> Run:
    team.start(resume, folder, config)
    return Run.open(folder)


def _begin(config: TrainConfig) -> tuple[Run, Splits]:
    """A new run folder, and its data."""
    asked = config
    config, parts = _planned(config, read_data(config))
    if asked.epochs is None and filled(config.epochs) > MANY:
        print(
            f"{len(parts.train):,} training examples are few: {config.epochs:,} epochs. --epochs N or --patience N end "
            "sooner, as does Ctrl-C, which keeps the best weights.",
            file=sys.stderr,
            flush=True,
        )
    folder = config.out or next_folder(config)
    config = dataclasses.replace(config, out=folder)
    if team.here().world > 1:
        devices, nodes = team.sizes()
        config = dataclasses.replace(config, devices=devices, nodes=nodes)
    train = parts.train
    if not isinstance(train, TextSet):
        return _draft(config, parts).begin(parts), parts
    vectors = None if config.vectors is None else read_vectors(config.vectors)
    vocabulary = Vocabulary.build(train.texts, () if vectors is None else vectors.words, longest=config.max_length)
    run = _draft(config, parts, len(vocabulary), None if vectors is None else vectors.vectors.shape[1])
    run = run.begin(parts, vocabulary)
    return run, run.readable(parts)


def check_trainable(configs: Iterable[TrainConfig]) -> None:
    """Refuse what `train` would refuse of any of these, before the first is trained."""
    data, source = None, None
    for each in configs:
        config = _checked(dataclasses.replace(each, out=None))
        asked = [getattr(config, name) for name in READ]
        if data is None or asked != source:
            data, source = read_data(config), asked
        _draft(*_planned(config, data))


def _planned(config: TrainConfig, data: Labelled | Splits) -> tuple[TrainConfig, Splits]:
    """The config with every option filled in for these data, and the parts that it uses of them."""
    if config.data in DATASETS and isinstance(data, Splits) and not config.folds:
        for word in ("validation", "test"):
            if getattr(config, word) != getattr(TrainConfig, word):
                raise complaint(f"--{word}", "data without parts of their own", config.data, f"Drop --{word}.")
    fold = None if config.folds is None or config.fold is None else (config.fold, config.folds)
    parts = make_parts(data, validation=config.validation, test=config.test, seed=config.seed, fold=fold)
    parts = limit(parts, config)
    train = parts.train
    texts = isinstance(train, TextSet)
    several = train.labels_per_image > 1 or (texts and train.many)
    return complete(config, len(train), several=several, texts=texts), parts


def _draft(config: TrainConfig, parts: Splits, words: int = 2, word_dim: int | None = None) -> Run:
    """The run before anything is written: what cannot be made is refused, and leaves no folder.

    words, word_dim: of texts, how many the network knows, and the size of their vectors.
    """
    train = parts.train
    facts = DataFacts(train.classes, labels_per_image=train.labels_per_image)
    if isinstance(train, TextSet):
        dim = config.model_options(given=True).get("dim", 50) if word_dim is None else word_dim
        facts = dataclasses.replace(facts, vocabulary=words, word_dim=dim, many=train.many)
    else:
        facts = dataclasses.replace(facts, image_shape=train.image_shape)
    run = Run(config.out or Path(), config, facts)
    model = run.new_model()
    if (facts.many or facts.labels_per_image > 1) and model.loss == "nll":
        remedy = "Choose --routing dynamic, entropy, attention or em."
        raise complaint("train", "a routing whose parents do not share one", "one that does", remedy)
    return run


def resume(folder: Path, devices: int | None = None, nodes: int | None = None) -> Run:
    """Go on with a run that was interrupted, as if it had not been; with other numbers of processes if so asked."""
    run = Run.open(folder)
    if run.facts.stopped:
        write_card(run)
        return run
    if not team.joined():
        began = run.config
        config = dataclasses.replace(began, devices=devices or began.devices, nodes=nodes or began.nodes)
        check_given(config)
        team.check_team(config)
        if team.asked(config):
            return _together(folder, config)
    return _fit(run, run.load_parts())


def _checked(config: TrainConfig) -> TrainConfig:
    """The config with whole paths, so that a run can be evaluated from anywhere, checked before any data are read."""
    check_given(config)
    team.check_team(config)
    if config.augment is not None:
        check_choice("train", "augment", config.augment, list(AUGMENTATIONS))
    if config.out is not None and (config.out / "config.json").exists():
        refuse_folder(config.out)
    on_cpu = choose_device("train", config.device).type == "cpu"
    if config.colour is not None and not Path(config.data).expanduser().is_dir():
        raise complaint("--colour", "a folder of pictures", config.data, "Drop --colour: its images are as they are.")
    if config.precision == "float16" and on_cpu:
        raise complaint("train", "a GPU for float16", "a CPU", "Leave --precision out: float32 is right for a CPU.")
    if config.precision == "bfloat16" and on_cpu:
        # Some processors announce bfloat16 and die of it, so another process tries.
        trial = "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); torch.nn.Linear(64, 64).bfloat16()(a) @ a"
        if subprocess.run([sys.executable, "-c", trial], capture_output=True).returncode:
            remedy = "Leave --precision out: float32 is right for a CPU."
            raise complaint("train", "a processor that computes in bfloat16", "one that does not", remedy)
    if config.data not in DATASETS:
        config = dataclasses.replace(config, data=str(Path(config.data).expanduser().resolve()))
    elif config.text or config.label or config.separator:
        raise complaint("--text, --label, --separator", "a table", config.data, "Drop them: its columns are known.")
    if config.vectors is not None and Path(config.vectors).expanduser().exists():
        config = dataclasses.replace(config, vectors=str(Path(config.vectors).expanduser().resolve()))
    return config


def _fit(run: Run, parts: Splits) -> Run:
    try:
        return _fit_whole(run, parts)
    except OSError as error:
        remedy = f"Make room, then go on: torchcaps train --resume {run.folder}"
        got = error.strerror or str(error)
        raise complaint("train", f"to write {error.filename or run.folder}", got, remedy) from None


def _fit_whole(run: Run, parts: Splits) -> Run:
    config = run.config
    torch.manual_seed(config.seed)
    model = run.new_model()
    _keep_memory()
    if isinstance(model, TextModel) and config.vectors is not None and not run.checkpoint.exists():
        generator = torch.Generator().manual_seed(config.seed)
        words = run.words().words
        model.set_vectors(read_vectors(config.vectors).table(words, generator))
    trainee, batches = prepare(model, parts.train, config, team.here())
    progress = Progress(run)
    first = team.here().rank == 0
    if first and run.weights.exists() and not run.checkpoint.exists():  # begun anew: what there is must not be lost
        os.replace(run.weights, run.folder / "model.previous.safetensors")
    try:
        with warnings.catch_warnings():
            quiet()
            _go(_trainer(run, progress), trainee, batches, parts, run, progress)
    except KeyboardInterrupt:
        if run.weights.exists():
            _finish(run, parts)
            print(f"\nStopped. The best weights so far are in {run.weights}", end="")
        print(f"\nGo on with: torchcaps train --resume {run.folder}", flush=True)
        raise
    except Exception as error:
        if team.is_loss(error):
            team.leave(run.folder)
        raise
    return _finish(run, parts, stopped=progress.stopped) if first else run


def _trainer(run: Run, progress: Progress) -> pl.Trainer:
    config = run.config
    devices, nodes = team.sizes()
    return pl.Trainer(
        max_epochs=config.epochs,
        accelerator=config.device,
        devices=devices,
        num_nodes=nodes,
        strategy="ddp" if team.joined() else "auto",
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
    trainer: pl.Trainer, trainee: Trainee, batches: DataLoader[Share], parts: Splits, run: Run, progress: Progress
) -> None:
    checkpoint = run.checkpoint if run.checkpoint.exists() else None
    validation = Order(parts.validation, filled(run.config.batch_size), member=team.here())
    try:
        trainer.fit(
            trainee,
            batches,
            loader(parts.validation, validation) if len(parts.validation) else None,
            ckpt_path=checkpoint,
            weights_only=True,
        )
    except SystemExit:  # how Lightning ends after Ctrl-C
        raise KeyboardInterrupt from None
    except Exception as error:
        if checkpoint is None or progress.began or team.is_loss(error):
            raise
        remedy = f"Delete it to begin anew; the best weights so far stay beside it in {run.folder}."
        raise complaint(str(checkpoint), "a checkpoint of this run", "a broken or foreign file", remedy) from None


def _finish(run: Run, parts: Splits, stopped: bool = False) -> Run:
    """Write down what a usual reconstruction error is, so that `predict` can tell an image that does not fit, and the
    card."""
    model = run.load_model()
    if isinstance(model, ImageModel) and model.decoder is not None and len(parts.validation):
        misfit = evaluate(model, parts.validation).misfit
        run = run if misfit is None else run.with_facts(fits=float(misfit.quantile(0.99)))
    if stopped:
        run = run.with_facts(stopped=True)
    write_card(run)
    return run


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
