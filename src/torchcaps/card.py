"""The card of a run: what a model hub, or whoever is given the folder, should know of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchcaps.config import PLAIN, command_of
from torchcaps.errors import InputError
from torchcaps.fields import write_whole
from torchcaps.runs import Run


def write_card(run: Run) -> Path:
    """Write README.md into the run folder, as model hubs read it: facts on top (YAML), words below."""
    path = run.folder / "README.md"
    write_whole(path, f"---\n{_facts(run)}---\n\n{_words(run)}")
    return path


def _facts(run: Run) -> str:
    """JSON is YAML, and needs no other package."""
    task = "image-classification" if run.facts.vocabulary is None else "text-classification"
    facts: dict[str, Any] = {
        "library_name": "torchcaps",
        "pipeline_tag": task,
        "tags": [
            "torchcaps",
            *(() if run.config.model in PLAIN else ("capsule-network",)),
            "pytorch",
            *filter(None, (run.config.model, run.config.routing)),
        ],
        "metrics": ["accuracy"],
    }
    measured = _test_result(run)
    if measured is not None:
        name = Path(run.config.data).name
        facts["model-index"] = [
            {
                "name": run.folder.name,
                "results": [
                    {
                        "task": {"type": task},
                        "dataset": {"type": name, "name": name, "split": "test"},
                        "metrics": [{"type": "accuracy", "name": "accuracy", "value": round(measured["accuracy"], 6)}],
                    }
                ],
            }
        ]
    return "".join(f"{name}: {json.dumps(value)}\n" for name, value in facts.items())


def _kind(run: Run) -> list[str]:
    return [] if run.config.model in PLAIN else ["capsule-network"]


def _words(run: Run) -> str:
    facts, model = run.facts, run.load_model()
    kind = "texts" if facts.image_shape is None else f"images of {' x '.join(map(str, facts.image_shape))}"
    what = "capsule" if _kind(run) else "plain"
    lines = [
        f"# {run.folder.name}",
        "",
        f"A {what} network (`{run.config.model}`) for {kind} in {len(facts.classes)} classes, trained with torchcaps.",
        "",
        "| | |",
        "|---|---|",
        f"| data | {_data_name(run)} |",
        f"| classes | {_cell(', '.join(facts.classes[:40]))}{' ...' if len(facts.classes) > 40 else ''} |",
        f"| parameters | {sum(parameter.numel() for parameter in model.parameters()):,} |",
        *_measured(run),
        "",
        "Made by",
        "",
        f"    {_plain_command(run)}",
        "",
        "Use it:",
        "",
        "```python",
        "import torchcaps",
        "",
        'model = torchcaps.load("path/to/this/folder")  # model(x).activations: one number for each class',
        "```",
        "",
        "or `torchcaps predict FOLDER ...`, `torchcaps report FOLDER`.",
    ]
    return "\n".join(lines) + "\n"


def _measured(run: Run) -> list[str]:
    rows = []
    measured = _test_result(run)
    if measured is not None:
        low, high = (1 - bound for bound in reversed(measured["error_interval_95"]))
        interval = f"95 % interval {low:.2%} to {high:.2%}"
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


def _test_result(run: Run) -> dict[str, Any] | None:
    """What `evaluate` found on the run's own test part, if it was asked."""
    try:
        found = json.loads((run.folder / "evaluation" / "results.json").read_text())
    except (OSError, ValueError):
        return None
    result = found.get("test", found.get("familiar viewpoints")) if isinstance(found, dict) else None
    return (
        result if isinstance(result, dict) and {"accuracy", "examples", "error_interval_95"} <= result.keys() else None
    )


def _data_name(run: Run) -> str:
    """Of files, the last part of their path: the rest is nobody's business."""
    return _cell(Path(run.config.data).name)


def _plain_command(run: Run) -> str:
    vectors = None if run.config.vectors is None else Path(run.config.vectors).name
    own = {"data": Path(run.config.data).name, "out": None, "data_dir": None, "vectors": vectors}
    return command_of(replace(run.config, **own))  # type: ignore[arg-type]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
