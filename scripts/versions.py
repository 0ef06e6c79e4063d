"""A part of the tests with the lowest and with the newest versions that pyproject.toml allows.

    python scripts/versions.py            both
    python scripts/versions.py lowest     every lower bound exactly
    python scripts/versions.py newest     whatever pip chooses today

torch stays at the version that constraints.txt pins: for lower ones no CPU build can be had, and newer ones bring CUDA.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import tomllib

ROOT = Path(__file__).parents[1]
# Beside what is asked for: the test client of an old fastapi wants httpx.
BESIDE = {"lowest": ["httpx"], "newest": []}
# What a foreign version would break: arithmetic, models, files, the studio. Minutes, not the whole.
TESTS = (
    "tests/routing", "tests/layers", "tests/models", "tests/test_losses.py", "tests/test_functional.py",
    "tests/test_config.py", "tests/test_estimators.py", "tests/data/test_data.py", "tests/studio/test_load.py",
)  # fmt: skip
LEFT_OUT = "test_check_estimator_passes"  # minutes by itself
COMMANDS = (
    ("train", "digits", "--limit", "300", "--epochs", "1", "--out", "RUN"),
    ("evaluate", "RUN"),
    ("predict", "RUN", "docs/images/agreement.png"),
)


def requirements(extra: str) -> dict[str, str]:
    """Name and text of every requirement of the package with this extra, and of the extras that it names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = {**project["optional-dependencies"], "": project["dependencies"]}
    found, left, seen = {}, ["", extra], set()
    while left:
        name = left.pop()
        if name in seen:
            continue
        seen.add(name)
        for text in listed[name]:
            own = re.fullmatch(r"torchcaps\[(.+)\]", text)
            if own:
                left += own[1].split(",")
            else:
                found[re.split(r"[<>=!~;\[ ]", text, maxsplit=1)[0]] = text
    return found


def pins(kind: str) -> list[str]:
    """Lines for pip's --constraint."""
    (torch,) = re.findall(r"^torch==\S+", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    if kind == "newest":
        return [torch]
    bounds = {name: re.search(r">=([0-9][0-9.]*)", text) for name, text in requirements("test").items()}
    return [torch, *(f"{name}=={bound[1]}" for name, bound in bounds.items() if bound and name != "torch")]


def try_versions(kind: str) -> int:
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        constraint = Path(place) / f"{kind}.txt"
        constraint.write_text("\n".join(pins(kind)) + "\n")
        python = Path(place) / "venv" / "bin" / "python"
        subprocess.run([sys.executable, "-m", "venv", python.parents[1]], check=True)
        pip = [python, "-m", "pip", "--disable-pip-version-check", "--quiet"]
        subprocess.run([*pip, "install", f"{ROOT}[test]", *BESIDE[kind], "--constraint", constraint], check=True)
        installed = time.perf_counter()
        subprocess.run([*pip, "freeze"], check=True)
        # Warnings of other versions are theirs; ours are errors in `make test`.
        words = ["-q", "-n", "auto", "-m", "not slow", "-o", "filterwarnings=default", "--disable-warnings"]
        run = str(Path(place) / "run")
        calls = [["torchcaps", *(run if word == "RUN" else word for word in command)] for command in COMMANDS]
        calls.append(["pytest", *words, "-p", "no:cacheprovider", "-k", f"not {LEFT_OUT}", *TESTS])
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        failed = [
            call[:2] for call in calls if subprocess.run([python, "-m", *call], cwd=ROOT, env=environment).returncode
        ]
        times = f"installed in {installed - begun:.0f} s, tested in {time.perf_counter() - installed:.0f} s"
        print(f"{kind}: {'FAILED' if failed else 'passed'}, {times}", flush=True)
    return int(bool(failed))


def main(words: list[str]) -> int:
    kinds = words or list(BESIDE)
    if not set(kinds) <= set(BESIDE):
        sys.exit(f"versions: expected {' or '.join(BESIDE)}, got {' '.join(kinds)}. Choose one, or none for both.")
    return max(try_versions(kind) for kind in kinds)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
