"""The command that trains. Heavy modules are imported inside."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from torchcaps.apps.cli.parsing import parse


def train_command(words: list[str]) -> None:
    from torchcaps.runs.config import Train, TrainConfig, load_config

    examples = """\
  torchcaps train                                    the digits that come along
  torchcaps train photos/ --size 32 --out runs/mine  your own pictures
  torchcaps train mnist --model capsnet --preset paper --epochs 2
  torchcaps train toys --model matrix-small --routing em --iterations 2
  torchcaps train reviews.csv --text review --label stars --vectors glove.6B.50d.txt
  torchcaps train mr --folds 10 --out runs/mr
  torchcaps train --config runs/mine/config.json --seed 1 --out runs/other
  torchcaps train mnist --devices 4 --out runs/four   four GPUs; the same as torchrun --nproc-per-node 4
  torchcaps train --resume runs/mine"""
    options = parse(Train, words, "train", examples, Train())
    if options.config is not None:
        loaded = _values(load_config(options.config), TrainConfig)
        loaded |= {"out": None} | ({"label": ()} if options.label else {})
        options = parse(Train, words, "train", examples, Train(**loaded))
    from torchcaps._core.errors import input_error

    if options.resume is not None and replace(options, resume=None, devices=None, nodes=None, data_dir=None) != Train():
        expected = "no other options but --devices, --nodes and --data-dir: a run goes on as it began"
        raise input_error("train --resume", expected, "some", "Drop them.")
    from torchcaps.runs.run import Run
    from torchcaps.train import resume, train, train_folds
    from torchcaps.train.distributed import one_voice
    from torchcaps.train.log import say

    config = TrainConfig(**_values(options, TrainConfig))
    with one_voice():
        if config.folds is not None and config.fold is None and options.resume is None:
            say(train_folds(config))
            return
        again = options.resume
        before = None if again is None else _written(Run.open(again).checkpoint)
        run = train(config) if again is None else resume(again, config.devices, config.nodes, config.data_dir)
        if before is not None and before == _written(run.checkpoint):
            say("This run was finished; to train longer, begin another with --config and --epochs.", error=True)
        say(f"\nThe best weights are in {run.weights}. Next: torchcaps evaluate {run.folder}", run.log)


def _written(path: Path) -> int | None:
    """When a file was written last, if there is one."""
    return path.stat().st_mtime_ns if path.exists() else None


def _values(config: object, kind: type) -> dict[str, Any]:
    return {field.name: getattr(config, field.name) for field in fields(kind)}
