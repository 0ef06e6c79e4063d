"""The shapes in the signatures are true: the suite's core runs once more with every annotation checked."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_shape_annotations_hold():
    checked = ["tests/routing/test_oracles.py", "tests/layers", "tests/test_losses.py", "tests/test_functional.py"]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-p",
        "tests.support.typechecker",
    ]
    # The checker itself refuses wrong types, and torch cannot compile or export it.
    left_out = "not (wrong_arguments or wrong_pairs or compiles or exported)"
    command += ["--jaxtyping-packages=torchcaps,tests.support.typechecker.checked", "-k", left_out, *checked]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    run = subprocess.run(command, cwd=ROOT, env=clean, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-2000:]
    assert " passed" in run.stdout


def test_a_wrong_shape_would_be_caught():
    code = """
import jaxtyping
with jaxtyping.install_import_hook("torchcaps", "beartype.beartype"):
    import torchcaps.functional, torch
try:
    torchcaps.functional.combine(torch.ones(3, 4), torch.ones(3, 5, 2))
except jaxtyping.TypeCheckError:
    print("caught")
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.strip() == "caught", run.stderr
