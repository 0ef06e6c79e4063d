"""The model card of a run, for model hubs and other readers of the folder."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from pathlib import Path

from torchcaps._core.errors import InputError, input_error
from torchcaps._core.files import atomic_write, read_text
from torchcaps._core.neutral import shown
from torchcaps.models import MODELS
from torchcaps.runs.config import command_of
from torchcaps.runs.run import Run

# The lines between these marks are generated and overwritten; the rest of a card is not changed.
FACTS = ("# torchcaps: the lines down to the next such mark are written anew", "# torchcaps: end")
WORDS = ("<!-- torchcaps: what stands down to the next such mark is written anew -->", "<!-- torchcaps: end -->")


def write_card(run: Run) -> Path:
    """Write README.md into the run folder in the format of model hubs: metadata (YAML), then text.

    In an existing card only the marked blocks are replaced; a block whose marks were removed is not changed.
    """
    path = run.path("README.md")
    metadata, words = _block(FACTS, _metadata(run)), _block(WORDS, _words(run))
    try:
        card = read_text(path).replace("\r\n", "\n")
    except FileNotFoundError:
        card = f"---\n{metadata}---\n\n{words}"
    except (OSError, ValueError) as error:
        raise input_error(str(path), "a card in Markdown", error, "Remove or rename it.") from None
    for marks, block in ((FACTS, metadata), (WORDS, words)):
        card = _replaced(card, marks, block)
    atomic_write(path, card)
    return path


def _block(marks: tuple[str, str], content: str) -> str:
    return f"{marks[0]}\n{content}{marks[1]}\n"


def _replaced(card: str, marks: tuple[str, str], block: str) -> str:
    """A card with the block between these marks replaced, if both marks are there."""
    ours = re.compile(rf"^{re.escape(marks[0])}$.*?^{re.escape(marks[1])}$\n?", re.DOTALL | re.MULTILINE)
    return ours.sub(lambda _: block, card, count=1)


def _metadata(run: Run) -> str:
    """The metadata of a card, as YAML."""
    from huggingface_hub import EvalResult, ModelCardData

    tasks = {"images": "image-classification", "texts": "text-classification", "arrays": "other"}
    task, measured, name = tasks[run.metadata.kind], test_result(run), Path(run.config.data).name
    found = None
    if measured is not None:
        value = round(measured["accuracy"], 6)
        found = [EvalResult(task, name, name, "accuracy", value, dataset_split="test", metric_name="accuracy")]
    data = ModelCardData(
        library_name="torchcaps",
        pipeline_tag=task,
        tags=["torchcaps", *_kind(run), "pytorch", *filter(None, (run.model_name, run.config.routing))],
        metrics=["accuracy"],
        model_name=run.name,
        eval_results=found,
    )
    text: str = data.to_yaml()
    return text + "\n"


def _kind(run: Run) -> list[str]:
    routes = run.config.model is None or MODELS[run.config.model].routes
    return ["capsule-network"] if routes else []


def _words(run: Run) -> str:
    metadata, plan = run.metadata, run.new_model(plan=True)
    kind = metadata.kind
    if metadata.image_shape is not None:
        kind = f"images of {' x '.join(map(str, metadata.image_shape))}"
    given = "" if run.config.model else ", model=YOURS"
    what, classes = "capsule" if _kind(run) else "plain", len(metadata.classes)
    lines = [
        f"# {_cell(run.name)}",
        "",
        f"A {what} network (`{run.model_name}`) for {kind} in {classes} classes, trained with torchcaps.",
        "",
        "| | |",
        "|---|---|",
        f"| data | {_data_name(run)} |",
        f"| classes | {_cell(', '.join(metadata.classes[:40]))}{' ...' if len(metadata.classes) > 40 else ''} |",
        f"| parameters | {sum(parameter.numel() for parameter in plan.parameters()):,} |",
        *_measured(run),
        "",
        *_made_by(run),
        "Use it:",
        "",
        "```python",
        "import torchcaps",
        "",
        f'model = torchcaps.load("path/to/this/folder"{given})  # model(x).activations: one number for each class',
        "```",
        "",
        *(["or `torchcaps predict FOLDER ...`, `torchcaps report FOLDER`."] if not given else []),
    ]
    return "\n".join(lines) + "\n"


def _made_by(run: Run) -> list[str]:
    if run.metadata.in_python or run.config.model is None:
        return ["Made in Python by `torchcaps.fit`.", ""]
    return ["Made by", "", f"    {shown(_plain_command(run))}", ""]


def _measured(run: Run) -> list[str]:
    rows = []
    measured = test_result(run)
    if measured is not None:
        interval = f"95 % interval {measured['low']:.2%} to {measured['high']:.2%}"
        rows.append(f"| test accuracy | {measured['accuracy']:.2%} of {measured['examples']:,} ({interval}) |")
    try:
        table = run.rows()
    except InputError:  # none yet, or broken
        table = []
    if table:
        rows.append(f"| epochs | {len(table)} |")
        seen = float(table[-1]["validation_accuracy"])
        rows += [] if seen != seen else [f"| validation accuracy after the last epoch | {seen:.2%} |"]
    return rows


def test_result(run: Run) -> dict[str, float] | None:
    """The results of `evaluate` on the run's own test part, if there are valid ones."""
    path = run.path("evaluation", "results.json")
    try:
        found = json.loads(read_text(path))
        result = found.get("test", found.get("familiar viewpoints"))
        low, high = result["error_interval_95"]
        rates = {"accuracy": float(result["accuracy"]), "low": 1 - float(high), "high": 1 - float(low)}
        examples = int(result["examples"])
    except (OSError, ValueError, RecursionError, AttributeError, KeyError, TypeError, OverflowError):
        return None
    known = all(0 <= rate <= 1 for rate in rates.values()) and 0 <= examples < 2**63
    return {**rates, "examples": examples} if known else None


def _data_name(run: Run) -> str:
    """For files, only the last part of their path, because the rest is private."""
    return _cell(Path(run.config.data).name)


def _plain_command(run: Run) -> str:
    given = {word: getattr(run.config, word) for word in ("data", "vectors", "encoder")}
    own = {word: value and Path(value).name for word, value in given.items()} | {"out": None, "data_dir": None}
    return command_of(replace(run.config, **own))  # type: ignore[arg-type]


def _cell(text: str) -> str:
    """A text from a run as Markdown that shows it literally: no HTML, no links, no table cells."""
    return re.sub(r"([\\`*_{}\[\]()#!|~])", r"\\\1", html.escape(shown(text), quote=False))
