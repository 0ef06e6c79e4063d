"""torchcaps train: train a network. Heavy modules are imported inside."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from torchcaps.apps.cli.parsing import as_config, parse
from torchcaps.runs.config import TrainConfig, load_config


@dataclass(frozen=True)
class Train(TrainConfig):
    """Train a network on labeled images or texts and save it in a run folder: weights, metrics, split, options."""

    config: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """Read the options from this JSON file (the config.json of a run); options on the command line take precedence."""
    resume: Annotated[Path | None, arg(metavar="RUN", help_behavior_hint="")] = None
    """Resume this interrupted run; the result is the same as without the interruption. Only --devices, --nodes and
    --data-dir may be given with it; default: as before."""


def train_command(words: list[str]) -> None:
    examples = """\
  torchcaps train                                    the built-in digits
  torchcaps train photos/ --size 32 --out runs/mine  a folder of pictures
  torchcaps train photos/ --encoder resnet-50/       a pretrained network, frozen
  torchcaps train mnist --model capsnet --preset paper --epochs 2
  torchcaps train toys --model matrix-small --routing em --iterations 2
  torchcaps train reviews.csv --text review --label stars --vectors glove.6B.50d.txt
  torchcaps train mr --folds 10 --out runs/mr
  torchcaps train --config runs/mine/config.json --seed 1 --out runs/other
  torchcaps train mnist --devices 4 --out runs/four   four GPUs; the same as torchrun --nproc-per-node 4
  torchcaps train --resume runs/mine"""
    options = parse(Train, words, "train", examples, Train())
    if options.encoder is not None:  # given here, not by a file
        from torchcaps.runs.encoders import allow

        allow(options.encoder)
    if options.config is not None:
        loaded = dict(vars(load_config(options.config)))
        loaded |= {"out": None} | ({"label": ()} if options.label else {})
        options = parse(Train, words, "train", examples, Train(**loaded))
    from torchcaps._core.errors import input_error

    if options.resume is not None and replace(options, resume=None, devices=None, nodes=None, data_dir=None) != Train():
        expected = "no other options than --devices, --nodes and --data-dir: a run resumes with its own"
        raise input_error("train --resume", expected, "some", "Drop them.")
    from torchcaps.runs.run import Run
    from torchcaps.train import resume, train, train_folds
    from torchcaps.train.distributed import one_voice
    from torchcaps.train.log import say

    config = as_config(options)
    with one_voice():
        if config.folds is not None and config.fold is None and options.resume is None:
            say(train_folds(config))
            return
        again = options.resume
        before = None if again is None else _written(Run.open(again).checkpoint)
        if again is None:
            run = train(config, compare=True)
        else:
            run = resume(again, config.devices, config.nodes, config.data_dir)
        if before is not None and before == _written(run.checkpoint):
            say("This run was finished before; to train longer, start another with --config and --epochs.", error=True)
        say(f"\nThe best weights are in {run.weights}. Next: torchcaps evaluate {run.folder}", run.log)


def _written(path: Path) -> int | None:
    """The modification time of a file; None if it does not exist."""
    return path.stat().st_mtime_ns if path.exists() else None
