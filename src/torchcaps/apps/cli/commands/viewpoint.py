"""torchcaps viewpoint: train on some viewpoints and test on others. Heavy modules are imported inside."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from torchcaps.apps.cli.parsing import as_config, parse
from torchcaps.runs.config import TrainConfig


@dataclass(frozen=True)
class Viewpoint(TrainConfig):
    """Train on some viewpoints and test on others: two networks with equal accuracy on the training viewpoints.

    Both are trained; if one is better on familiar viewpoints, it is trained again and stopped when it equals the other.
    Accepts the options of train. To resume after an interruption, run the same command with its --out.
    """

    data: Annotated[Positional[str], arg(metavar="DATA")] = "toys"
    """Images with viewpoints: toys, toys-full, smallnorb or eth-80."""
    beside: Annotated[str, arg(metavar="NAME")] = "cnn-small"
    """The second model."""
    json: bool = False
    """Print JSON instead of a table."""


def viewpoint_command(words: list[str]) -> None:
    examples = """\
  torchcaps viewpoint toys
  torchcaps viewpoint toys --viewpoint elevation --model matrix-small --beside cnn-small
  torchcaps viewpoint eth-80 --epochs 10 --out runs/views"""
    options = parse(Viewpoint, words, "viewpoint", examples, Viewpoint())
    from torchcaps.train.viewpoints import compare_viewpoints

    config = dataclasses.replace(as_config(options), viewpoint=options.viewpoint or "azimuth")
    with contextlib.redirect_stdout(sys.stderr):  # progress is not part of the output
        found, folder = compare_viewpoints(config, options.beside)
    if options.json:
        print((folder / "results.json").read_text())
        return
    width = max(len(name) for name in found.outcomes)
    print(f"\n{'':<{width}}  {'familiar':>9}  {'novel':>9}  {'gap':>7}  {'epochs':>6}  {'parameters':>11}")
    for name, outcome in found.outcomes.items():
        novel = outcome.novel or 0.0
        print(
            f"{name:<{width}}  {outcome.score:>9.2%}  {novel:>9.2%}  {outcome.score - novel:>7.2%}  {outcome.epochs:>6}"
            f"  {outcome.parameters:>11,}"
        )
    print(f"\n{found.verdict()}")
