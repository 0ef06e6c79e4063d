"""CONTRIBUTING can be followed: a routing is added to a copy of the project, in just the files that it names."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
CODE = '''"""Sharp k-means clusters votes around means, each child nearly wholly with the nearest: an example."""

from __future__ import annotations

from typing import Any

from torchcaps.routing.kmeans import KMeans


class Yours(KMeans):
    """Soft k-means that starts sharp. sharpness: K. Other options are those of `KMeans`."""

    def __init__(self, iterations: int = 3, *, sharpness: float = 2.0, **options: Any) -> None:
        super().__init__(iterations, sharpness=sharpness, **options)
'''
ORACLE = '''"""Soft k-means with K = 2, in plain loops."""

import torch

from tests.oracles.common import dot, softmax, stacked


def yours(u, a):
    m, n, _ = u.shape
    c = [[torch.tensor(1 / n, dtype=u.dtype)] * n for _ in range(m)]
    for iteration in range(3):
        if iteration:
            c = [softmax([-2 * dot(u[i, j] - v[j], u[i, j] - v[j]) for j in range(n)]) for i in range(m)]
        mass = [sum(c[i][j] for i in range(m)) for j in range(n)]
        v = [sum(c[i][j] * u[i, j] for i in range(m)) / mass[j] for j in range(n)]
    return stacked(v, [mass[j] / m for j in range(n)], c)
'''
NEW = {"src/torchcaps/routing/yours.py": CODE, "tests/oracles/yours.py": ORACLE}
# In each file: what stands there, and what is written before it.
CHANGES = {
    "src/torchcaps/routing/__init__.py": [
        ("from torchcaps.routing.variational", "from torchcaps.routing.yours import Yours\n"),
        ('    "uniform": Uniform,\n', '    "yours": Yours,\n'),
    ],
    "src/torchcaps/apps/studio/static/index.html": [
        ('<template id="about-kde">', '<template id="about-yours"><p>Nearly hard.</p></template>\n'),
    ],
    "tests/oracles/__init__.py": [("from tests.oracles.variational", "from tests.oracles.yours import yours\n")],
    "tests/routing/test_oracles.py": [
        ('    ("dynamic", {}, lambda', '    ("yours", {}, lambda u, a, p: oracles.yours(u, a)),\n')
    ],
    "tests/routing/test_contract.py": [('    "dynamic": [\n', '    "yours": [{}, {"sharpness": 3.0}],\n')],
    "tests/test_compile.py": [('    ("dynamic", {}),\n', '    ("yours", {}),\n')],
    "docs/routing.md": [("| `kmeans` |", "| `yours` | K = 2 | means | shares | the example |\n")],
    "docs/papers.md": [
        (
            "## Sabour",
            "- **example**: sharp. Code: `routing/yours.py:Yours`. Test: `test_routing_equals_its_oracle`.\n\n",
        ),
    ],
    "CHANGELOG.md": [("- Layout:", "- `yours`: sharp k-means.\n")],
}
ASKED = (
    "yours or every_routing or words_for_every or row_for_every or paper_index or files_fit or imports or oracle_for"
)


def named_files():
    """The files that the four steps of CONTRIBUTING name, from the root of the project."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    steps = text.partition("## Add a routing")[2].partition("Experiments need")[0]
    return set(re.findall(r"`((?:src|tests|docs)/[\w./-]+|CHANGELOG\.md)`", steps))


def test_the_files_named_are_those_that_a_routing_needs():
    assert named_files() == {*NEW, *CHANGES}


def test_a_routing_is_added_by_following_the_page(tmp_path):
    skip = shutil.ignore_patterns("__pycache__", ".mypy_cache")
    for folder in ("src", "tests", "docs", "torture", "examples"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=skip)
    for file in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "pyproject.toml"):
        shutil.copy(ROOT / file, tmp_path / file)
    for file, text in NEW.items():
        (tmp_path / file).write_text(text)
    for file, several in CHANGES.items():
        text = (tmp_path / file).read_text()
        for place, new in several:
            assert place in text, (file, place)
            text = text.replace(place, new + place, 1)
        (tmp_path / file).write_text(text)
    tests = [
        "routing/test_oracles.py",
        "routing/test_contract.py",
        "test_compile.py",
        "test_package.py",
        "studio/test_api.py",
    ]
    words = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", "-k", ASKED]
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path / 'src'}{os.pathsep}{tmp_path}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*words, *(f"tests/{each}" for each in tests)], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:]
    passed = int(re.search(r"(\d+) passed", done.stdout).group(1))
    assert passed >= 15
