"""torchcaps compare: train variants of a network and compare them. Heavy modules are imported inside."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from tyro.conf import UseAppendAction, arg

from torchcaps.apps.cli.parsing import as_config, parse
from torchcaps.runs.config import TrainConfig

if TYPE_CHECKING:
    from torchcaps.analysis.comparison import Comparison


@dataclass(frozen=True)
class Compare(TrainConfig):
    """Train variants of a network with several seeds and report which differences are significant.

    All variants see the same examples in the same order, and equally often; the options of train apply to all of them.
    To resume after an interruption, run the same command with the --out that it printed.
    """

    vary: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME=VALUE,...", help_behavior_hint="")] = ()
    """An option of train, or of the model, with the values to compare; may be repeated for all combinations."""
    seeds: int = 3
    """Runs of each variant, with the seeds SEED, SEED + 1, ..."""
    json: bool = False
    """Print JSON instead of a table."""


def compare_command(words: list[str]) -> None:
    examples = """\
  torchcaps compare mnist-5k --vary routing=dynamic,entropy,kmeans,em,uniform --seeds 3
  torchcaps compare mnist-5k --vary model=efficient,cnn-small --vary limit=100,300,1000,3000
  torchcaps compare photos/ --vary iterations=1,2,3 --routing dynamic --epochs 5 --out runs/iterations
  torchcaps compare reviews.csv --vary leaky=true,false --model text-a"""
    options = parse(Compare, words, "compare", examples, Compare())
    from torchcaps.train.compare import compare

    found, folder = compare(as_config(options), options.vary, options.seeds)
    if options.json:
        print((folder / "results.json").read_text())
    else:
        _show(found)
    from torchcaps.plots.compare import comparison_figure
    from torchcaps.plots.style import save_figures

    what = f"{options.data}: {' and '.join(found.names)}, {options.seeds} seed{'s' if options.seeds > 1 else ''}"
    for path in save_figures({"compare.png": comparison_figure(found, what)}, folder):
        print(f"picture: {path}", file=sys.stderr)


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
