"""torchcaps export: write a network to a file for other tools. Heavy modules are imported inside."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import FlagCreatePairsOff, Positional, arg

from torchcaps.apps.cli.parsing import parse


@dataclass(frozen=True)
class Export:
    """Export a trained network to one file, for batches of any size, and verify the file.

    Inputs are images (float32, 0 to 1, [batch, channels, height, width]) or token indices, outputs `activations`
    [batch, classes] and `poses`. Classes, image shape or vocabulary, and version are in the metadata of the file.
    """

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """The run folder."""
    onnx: FlagCreatePairsOff[bool] = False
    """Write an ONNX file (the default)."""
    torch: FlagCreatePairsOff[bool] = False
    """Write a torch.export program (.pt2) instead."""
    out: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """The file to write; default: model.onnx or model.pt2 in the run folder."""


def export_command(words: list[str]) -> None:
    examples = """\
  torchcaps export runs/mine
  torchcaps export runs/mine --onnx --out mine.onnx
  torchcaps export runs/mine --torch"""
    options = parse(Export, words, "export", examples)
    from torchcaps._core.errors import input_error

    if options.onnx and options.torch:
        raise input_error("export", "one of --onnx and --torch", "both", "Call it twice.")
    from torchcaps.apps.export import export_run
    from torchcaps.runs.run import Run

    found = export_run(Run.open(options.run), options.out, "torch" if options.torch else "onnx")
    print(f"file: {found.path}")
    print(f"takes {found.input}")
    print(f"gives activations and poses; tried: activations equal to {found.difference:.0e}")
