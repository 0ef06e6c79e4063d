"""Run what is missing of the claims in claims.py, and write docs/claims.md from all results.

Commands run one after another in this folder's parent; a claim that has a result for its commands is not run again, so
the script may be stopped at any time. Results measured before cite the page of docs/ that has their command.

Run: python benchmarks/ledger.py [--render] [--only NAME ...]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from claims import CLAIMS, VERDICTS, Claim

ROOT = Path(__file__).resolve().parents[1]
LEDGER = ROOT / "benchmarks" / "ledger.json"
PAGE = ROOT / "docs" / "claims.md"
Results = dict[str, dict[str, Any]]


def missing(claims: Sequence[Claim], results: Results) -> list[Claim]:
    """The claims with commands to run and without a result of just these commands."""
    ran = {name: result.get("commands") for name, result in results.items()}
    return [claim for claim in claims if claim.figure and ran.get(claim.name) != list(claim.commands)]


def run(claim: Claim) -> dict[str, Any]:
    """The result of a claim's commands: the figure in the output of the last one. An error if one of them fails."""
    output = ""
    for command in claim.commands:
        words = shlex.split(command)
        words = {"torchcaps": [sys.executable, "-m", "torchcaps"], "python": [sys.executable]}[words[0]] + words[1:]
        print(f"{claim.name}: {command}", flush=True)
        done = subprocess.run(words, cwd=ROOT, env=os.environ, stdout=subprocess.PIPE, text=True, check=True)
        output = done.stdout
    found = re.search(claim.figure, output)
    if found is None:
        raise SystemExit(f"{claim.name}: expected {claim.figure} in the output, got none. Mend the expression.")
    return {
        "commands": list(claim.commands),
        "figure": found.group(1),
        "interval": "",
        "seeds": "",
        "from": "ledger.py",
    }


def save(results: Results, path: Path = LEDGER) -> None:
    """Write the results, one line for each."""
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(result)}" for name, result in results.items())
    beside = path.with_suffix(".new")
    beside.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    beside.replace(path)


def render(claims: Sequence[Claim], results: Results) -> str:
    """The page of all claims, by verdict."""
    counts = ", ".join(f"{verdict} {sum(claim.verdict == verdict for claim in claims)}" for verdict in VERDICTS)
    parts = [
        "# Claims",
        _filled(
            f"What papers on capsules claim, and what was found here: {counts}. `python benchmarks/ledger.py` writes "
            "this page from `benchmarks/claims.py` and `benchmarks/ledger.json`, and first runs what has no result. "
            "Intervals are 95 %. [results.md](results.md) has conditions and all figures."
        ),
    ]
    for verdict in VERDICTS:
        parts.append(f"## {verdict[0].upper()}{verdict[1:]}")
        parts += [_entry(claim, results.get(claim.name)) for claim in claims if claim.verdict == verdict]
    return "\n\n".join(parts) + "\n"


def _entry(claim: Claim, result: dict[str, Any] | None) -> str:
    told = f"**{claim.says}** ({claim.where})"
    if result is not None:
        interval = f" (interval {result['interval']})" if result["interval"] else ""
        seeds = f", seed {result['seeds']}" if result["seeds"] else ""
        page = f", [{result['from']}]({result['from']})" if result["from"].endswith(".md") else ""
        told += f" Found: {result['figure']}{interval}{seeds}{page}."
    if claim.why:
        told += f" {claim.why[0].upper()}{claim.why[1:]}." if not claim.why.startswith("`") else f" {claim.why}."
    wide = {"width": 98, "break_long_words": False, "break_on_hyphens": False}
    commands = [
        textwrap.wrap(command, initial_indent="    ", subsequent_indent="        ", **wide)
        for command in claim.commands
    ]
    listed = "\n".join(" \\\n".join(lines) for lines in commands)
    return _filled(told) + (f"\n\n{listed}" if listed else "")


def _filled(text: str) -> str:
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Run what is missing of the claims, and write docs/claims.md.")
    parser.add_argument("--render", action="store_true", help="write the page only")
    parser.add_argument("--only", nargs="+", default=None, metavar="NAME", help="run these claims only")
    options = parser.parse_args(words)
    results: Results = json.loads(LEDGER.read_text(encoding="utf-8"))
    for claim in [] if options.render else missing(CLAIMS, results):
        if options.only is None or claim.name in options.only:
            results[claim.name] = run(claim)
            save(results)
    PAGE.write_text(render(CLAIMS, results), encoding="utf-8")
    print(f"The claims: {PAGE}")


if __name__ == "__main__":
    main()
