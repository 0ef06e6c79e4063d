"""The package as a whole: public names, the one-way flow of imports, honest documents."""

import ast
import re
import runpy
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from torture.__main__ import CAMPAIGNS

import torchcaps as tc

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "torchcaps"
# A module may import from its own rank and the ranks before it.
RANKS = [
    ["_core"],
    ["votes", "functional"],
    ["routing"],
    ["layers", "losses"],
    ["data", "models"],
    ["runs"],
    ["analysis"],
    ["plots"],
    ["train"],
    ["apps", "__main__"],
]


def imports_of(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("torchcaps."):
            yield node.module.split(".")[1]


def test_imports_flow_one_way():
    rank = {name: position for position, names in enumerate(RANKS) for name in names}
    for path in SOURCE.rglob("*.py"):
        relative = path.relative_to(SOURCE)
        if relative.name == "__init__.py" and len(relative.parts) == 1:
            continue
        own = relative.parts[0].removesuffix(".py")
        assert own in rank, f"{relative} has no place in the flow of imports"
        for other in imports_of(path):
            assert rank[other] <= rank[own], f"{relative} imports {other}"


def test_public_names_exist_and_are_sorted():
    assert all(hasattr(tc, name) for name in tc.__all__)
    assert {"Capsules", "Routed", "squash", "make_routing", "ROUTINGS", "check_routing", "DenseCapsules"} <= set(
        tc.__all__
    )
    assert {
        "ConvCapsules1d",
        "ConvCapsules2d",
        "ConvCapsules3d",
        "PrimaryCapsules",
        "ClassCapsules",
        "margin_loss",
        "spread_loss",
    } <= set(tc.__all__)
    assert "reconstruction_loss" in tc.__all__


def test_import_needs_nothing_beyond_the_core():
    extras = ("matplotlib", "sklearn", "lightning", "tyro", "beartype", "pytest")
    code = f"import sys, torchcaps; torchcaps.create_model; print([m for m in {extras} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_files_fit_in_the_head():
    for path in SOURCE.rglob("*.*"):
        if path.suffix in (".py", ".c", ".h", ".js"):
            assert len(path.read_text(encoding="utf-8").splitlines()) <= 300, path


def test_routing_docs_have_a_row_for_every_routing():
    text = (ROOT / "docs" / "routing.md").read_text()
    for name in tc.ROUTINGS:
        assert f"| `{name}` |" in text


def test_glossary_is_short_and_knows_the_chinese_terms():
    rows = re.findall(r"^\| ([^|]+) \|", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)[1:]
    assert len(rows) == len(set(rows)) <= 40
    text = (ROOT / "docs" / "glossary.md").read_text()
    assert all(term in text for term in ("胶囊", "投票", "耦合系数", "位姿", "动态路由"))


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def _pages():
    folders = ("docs", "src", "tests", "examples", "benchmarks", "torture", "scripts", ".github")
    return [*ROOT.glob("*.md"), *(page for folder in folders for page in (ROOT / folder).rglob("*.md"))]


def test_documents_are_wrapped():
    """Every line, tables and code included; only an address that stands alone may be longer."""
    pages = _pages()
    assert len(pages) > 40
    for page in pages:
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            assert len(line) <= 100 or re.fullmatch(r"\s*<?https?://\S+", line), (page.name, number, line)


def test_links_between_documents_lead_to_files():
    for page in _pages():
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
            assert "://" in target or (page.parent / target).exists(), (page.name, target)


def test_every_decision_is_in_the_index():
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text()
    assert set(re.findall(r"\]\((\d{3}-[\w-]+\.md)\)", index)) == {page.name for page in folder.glob("[0-9]*.md")}


def test_the_architecture_is_one_page():
    assert len((ROOT / "docs" / "architecture.md").read_text().splitlines()) <= 100


def test_rooms_are_few():
    rooms = [path for path in SOURCE.iterdir() if not path.name.startswith("__") and path.name != "py.typed"]
    assert len(rooms) <= 13


def test_paper_index_points_at_files_and_tests_that_exist():
    text = (ROOT / "docs" / "papers.md").read_text()
    entries = re.findall(r"^- \*\*.*?(?=^- |^#|\Z)", text, re.MULTILINE | re.DOTALL)
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    sources = {path.relative_to(SOURCE).as_posix(): path.read_text() for path in SOURCE.rglob("*.py")}
    assert len(entries) > 100
    for entry in entries:
        places, proofs = re.findall(r"`([\w/]+\.py):(\w+)`", entry), re.findall(r"`(test_\w+)`", entry)
        assert places, entry
        assert proofs, entry
        for file, name in places:
            assert re.search(rf"(def|class) {name}\b", sources[file]), (file, name)
        for proof in proofs:
            assert f"def {proof}(" in tests, proof


def test_promises_name_tests_and_campaigns_that_exist():
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    for page in ("reliability.md", "threats.md"):
        text = (ROOT / "docs" / page).read_text()
        named = re.findall(r"`(test_\w+)`", text)
        assert len(named) > 20
        for name in named:
            assert f"def {name}(" in tests, name
        assert set(re.findall(r"`torture (\w+)`", text)) <= set(CAMPAIGNS)


def test_version_is_the_same_everywhere():
    assert f'version = "{tc.__version__}"' in (ROOT / "pyproject.toml").read_text()
    assert f"version: {tc.__version__}" in (ROOT / "CITATION.cff").read_text()
    assert f"## {tc.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def _blocks(page):
    return re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)


def test_a_script_takes_a_routing_of_its_own_to_the_command_line(tmp_path, monkeypatch, capsys):
    routing, script = _blocks("routing.md")
    mine = tmp_path / "mine.py"
    mine.write_text(routing + 'tc.ROUTINGS["city-block"] = CityBlock\n' + script)
    monkeypatch.chdir(tmp_path)
    words = "train digits --limit 40 --epochs 1 --routing city-block --iterations 2 --option capsules=4 --out run"
    monkeypatch.setitem(tc.ROUTINGS, "city-block", None)  # so that it is taken away after the test
    for command in (words, "evaluate run --no-pictures"):
        del tc.ROUTINGS["city-block"]  # as in a process of its own
        monkeypatch.setattr(sys, "argv", [str(mine), *command.split()])
        with warnings.catch_warnings():  # main shows warnings in its own way
            warnings.simplefilter("default")
            with pytest.raises(SystemExit) as ended:
                runpy.run_path(str(mine), run_name="__main__")
        assert not ended.value.code
    assert "accuracy" in capsys.readouterr().out


def test_routing_of_the_docs_keeps_the_contract():
    block = _blocks("routing.md")[0]
    names = {}
    exec(block, names)
    assert names["layer"].routing.iterations == 2


def test_readme_code_runs():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 2
    names = {}
    for block in blocks:
        exec(block, names)
    assert names["parents"].poses.shape == (4, 10, 16)
    assert names["grid"].poses.shape == (1, 6, 6, 32, 16)
