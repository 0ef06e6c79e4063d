"""Preparation of a run: complete and checked options, data in parts, a draft of the network. Writes nothing."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from torchcaps._core.device import choose_device
from torchcaps._core.errors import check_choice, input_error
from torchcaps._core.extensions import imported
from torchcaps.data import AUGMENTATIONS, DATASETS, Labeled, Splits, make_parts
from torchcaps.losses import check_several
from torchcaps.models import Model
from torchcaps.models.tokens import TextEncoder
from torchcaps.runs.config import TrainConfig
from torchcaps.runs.encoders import absolute, make_encoder
from torchcaps.runs.metadata import RunMetadata
from torchcaps.runs.recipes import check_given, check_imports, data_facts, resolve, with_size
from torchcaps.runs.run import Run
from torchcaps.runs.rundata import READ, limit, read_data
from torchcaps.runs.runfolders import check_new
from torchcaps.train import distributed


def checked(config: TrainConfig) -> TrainConfig:
    """The config with absolute paths, so that a run can be evaluated from anywhere; checked before data are read."""
    check_imports("train", config)
    config = dataclasses.replace(config, imports=tuple(imported()))
    check_given(config)
    if config.encoder is not None:
        config = dataclasses.replace(config, encoder=absolute(config.encoder))
    config = with_size(config)
    distributed.check_processes(config)
    if config.augment is not None:
        check_choice("train", "augment", config.augment, list(AUGMENTATIONS))
    if config.out is not None:
        check_new(config.out)
    on_cpu = choose_device("train", config.device).type == "cpu"
    if config.color is not None and not Path(config.data).expanduser().is_dir():
        raise input_error("--color", "a folder of pictures", config.data, "Drop --color: its images are as they are.")
    if config.precision == "float16" and on_cpu:
        raise input_error("train", "a GPU for float16", "a CPU", "Leave --precision out: float32 is right for a CPU.")
    if config.precision == "bfloat16" and on_cpu:
        # Some processors report bfloat16 but crash with it, so this is tried in another process.
        trial = "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); torch.nn.Linear(64, 64).bfloat16()(a) @ a"
        if subprocess.run([sys.executable, "-c", trial], capture_output=True).returncode:
            remedy = "Leave --precision out: float32 is right for a CPU."
            raise input_error("train", "a processor that computes in bfloat16", "one that does not", remedy)
    if config.data not in DATASETS:
        config = dataclasses.replace(config, data=str(Path(config.data).expanduser().resolve()))
    elif config.text or config.label or config.separator:
        raise input_error("--text, --label, --separator", "a table", config.data, "Drop them: its columns are known.")
    if config.data_dir is not None:
        config = dataclasses.replace(config, data_dir=config.data_dir.expanduser().resolve())
    if config.vectors is not None and Path(config.vectors).expanduser().exists():
        config = dataclasses.replace(config, vectors=str(Path(config.vectors).expanduser().resolve()))
    return config


def check_trainable(configs: Iterable[TrainConfig]) -> None:
    """Raise the `InputError` that `train` would raise for any of these, before the first is trained."""
    data, source = None, None
    for each in configs:
        config = checked(dataclasses.replace(each, out=None))
        asked = [getattr(config, name) for name in READ]
        if data is None or asked != source:
            data, source = read_data(config), asked
        draft(*planned(config, data))


def planned(config: TrainConfig, data: Labeled | Splits) -> tuple[TrainConfig, Splits]:
    """The config with every option filled in for these data, and the parts that it uses of them."""
    if config.data in DATASETS and isinstance(data, Splits) and not config.folds:
        for word in ("validation", "test"):
            if getattr(config, word) != getattr(TrainConfig, word):
                raise input_error(f"--{word}", "data without parts of their own", config.data, f"Drop --{word}.")
    fold = None if config.folds is None or config.fold is None else (config.fold, config.folds)
    parts = make_parts(data, validation=config.validation, test=config.test, seed=config.seed, fold=fold)
    parts = limit(parts, config)
    return resolve(config, **data_facts(parts.train)), parts


def draft(config: TrainConfig, parts: Splits, words: int = 2, word_dim: int | None = None) -> tuple[Run, Model]:
    """The run before anything is written, and its network. Invalid options raise an error and leave no folder.

    words, word_dim: for texts, the size of the vocabulary and of word vectors.
    """
    train = parts.train
    metadata = RunMetadata(train.classes, labels_per_image=train.labels_per_image)
    encoder = None if config.encoder is None else make_encoder(config.encoder)
    if isinstance(encoder, TextEncoder):
        words, word_dim = len(encoder.vocabulary), encoder.dim
    if train.kind == "texts":
        dim = config.model_options(given=True).get("dim", 50) if word_dim is None else word_dim
        metadata = dataclasses.replace(metadata, vocabulary=words, word_dim=dim, many=train.many)
    else:
        metadata = dataclasses.replace(metadata, image_shape=train.image_shape)
    run = Run(config.out or Path(), config, metadata, encoder=encoder)
    model = run.new_model()
    if metadata.many or metadata.labels_per_image > 1:
        check_several("train", model.readout)
    return run, model
