"""The commands that train several networks and compare them. Heavy modules are imported inside."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from typing import TYPE_CHECKING

from torchcaps.apps.cli.parsing import parse

if TYPE_CHECKING:
    from torchcaps.analysis.comparison import Comparison
    from torchcaps.runs.config import TrainConfig


def compare_command(words: list[str]) -> None:
    from torchcaps.apps.cli.options import Compare

    examples = """\
  torchcaps compare mnist-5k --vary routing=dynamic,entropy,kmeans,em,uniform --seeds 3
  torchcaps compare mnist-5k --vary model=efficient,cnn-small --vary limit=100,300,1000,3000
  torchcaps compare photos/ --vary iterations=1,2,3 --routing dynamic --epochs 5 --out runs/iterations
  torchcaps compare reviews.csv --vary leaky=true,false --model text-a"""
    options = parse(Compare, words, "compare", examples, Compare())
    from torchcaps.train.compare import compare

    found, folder = compare(_training(options), options.vary, options.seeds)
    if options.json:
        print((folder / "results.json").read_text())
    else:
        _show(found)
    from torchcaps.plots.compare import comparison_figure
    from torchcaps.plots.style import save_figures

    what = f"{options.data}: {' and '.join(found.names)}, {options.seeds} seed{'s' if options.seeds > 1 else ''}"
    for path in save_figures({"compare.png": comparison_figure(found, what)}, folder):
        print(f"picture: {path}", file=sys.stderr)


def _training(options: object) -> TrainConfig:
    from torchcaps.runs.config import TrainConfig

    return TrainConfig(**{field.name: getattr(options, field.name) for field in dataclasses.fields(TrainConfig)})


def _show(found: Comparison) -> None:
    width = max(len(found.title(variant)) for variant in found.variants)
    print(f"\n{'':<{width}}  {found.measure:>9}  {'spread':>7}  {'parameters':>11}  {'seconds':>8}  {'memory':>8}")
    for variant in found.variants:
        spread = "-" if variant.deviation is None else f"{variant.deviation:.2%}"
        memory = "-" if variant.memory is None else f"{variant.memory / 2**20:,.0f} MB"
        print(
            f"{found.title(variant):<{width}}  {variant.mean:>9.2%}  {spread:>7}  {variant.parameters:>11,.0f}"
            f"  {variant.seconds:>8,.0f}  {memory:>8}"
        )
    print()
    for variant in found.variants:
        verdict = found.verdict(variant)
        if verdict:
            print(f"{found.title(variant)}: {verdict}.")


def viewpoint_command(words: list[str]) -> None:
    from torchcaps.apps.cli.options import Viewpoint

    examples = """\
  torchcaps viewpoint toys
  torchcaps viewpoint toys --viewpoint elevation --model matrix-small --beside cnn-small
  torchcaps viewpoint eth-80 --epochs 10 --out runs/views"""
    options = parse(Viewpoint, words, "viewpoint", examples, Viewpoint())
    from torchcaps.train.viewpoints import compare_viewpoints

    config = dataclasses.replace(_training(options), viewpoint=options.viewpoint or "azimuth")
    with contextlib.redirect_stdout(sys.stderr):  # how it goes is no part of the answer
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
