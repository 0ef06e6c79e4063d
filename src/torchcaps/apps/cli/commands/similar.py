"""torchcaps similar: find similar texts. Heavy modules are imported inside."""

from __future__ import annotations

from dataclasses import dataclass

from torchcaps._core.fields import as_json
from torchcaps.apps.cli.commands.texts import TextInputs, run_on_texts, shortened
from torchcaps.apps.cli.parsing import parse


@dataclass(frozen=True)
class Similar(TextInputs):
    """Find the most similar texts of each text, compared by their class capsules."""

    top: int = 3
    """Number of texts to show for each."""


def similar_command(words: list[str]) -> None:
    examples = """\
  torchcaps similar runs/news new.csv
  torchcaps similar runs/news "oil prices rise" archive.csv --top 1"""
    options = parse(Similar, words, "similar", examples)
    from torchcaps._core.errors import check_count, input_error
    from torchcaps.analysis.similar import likeness, text_poses

    check_count("similar", "top", options.top)
    run, texts = run_on_texts("similar", options)
    if len(texts) < 2:
        raise input_error("similar", "at least two texts", len(texts), "Give more.")
    poses = text_poses(run, texts)
    alike = likeness(poses, poses).fill_diagonal_(-2)
    best = alike.topk(min(options.top, len(texts) - 1))
    if options.json:
        rows = [
            {
                "text": texts[row],
                "like": [{"text": texts[n], "likeness": round(v, 4)} for n, v in zip(*each, strict=True)],
            }
            for row, each in enumerate(zip(best.indices.tolist(), best.values.tolist(), strict=True))
        ]
        print(as_json(rows))
        return
    for text, places, values in zip(texts, best.indices.tolist(), best.values.tolist(), strict=True):
        print(shortened(text))
        for place, value in zip(places, values, strict=True):
            print(f"  {value:>5.2f}  {shortened(texts[place])}")
