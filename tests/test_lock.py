"""The lock agrees with what the package asks for and names only packages and sums; a release lists all of them."""

import re
import sys
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
LOCKED = {**default_environment(), "python_version": "3.11", "python_full_version": "3.11.7", "extra": ""}

tomllib = pytest.importorskip("tomllib", reason="comes with Python 3.11")
sys.path.insert(0, str(ROOT / "scripts"))
import sbom  # noqa: E402
import versions  # noqa: E402

TEXT = (ROOT / "lock.txt").read_text()
LOCK = sbom.read_lock(TEXT)


def here(requirement):
    return requirement.marker is None or requirement.marker.evaluate(LOCKED)


@pytest.mark.parametrize("extra", ["dev", "release"])
def test_every_requirement_is_met_by_the_lock(extra):
    wanted = [Requirement(text) for text in versions.requirements(extra).values()]
    assert len(wanted) > 6
    for requirement in filter(here, wanted):
        assert requirement.specifier.contains(LOCK[sbom.normal(requirement.name)]["version"]), requirement


def test_what_builds_the_package_is_locked():
    for text in tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]:
        assert Requirement(text).specifier.contains(LOCK[Requirement(text).name]["version"])
    assert "editables" in LOCK  # hatchling asks for it


def test_constraints_and_lock_agree():
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    for requirement in filter(here, map(Requirement, lines)):
        assert requirement.specifier.contains(LOCK[sbom.normal(requirement.name)]["version"]), requirement


def test_every_package_of_the_lock_has_a_version_and_hashes():
    assert len(LOCK) == len(re.findall(r"^[A-Za-z0-9]", TEXT, re.MULTILINE)) > 90
    assert all(each["version"] and each["hashes"] for each in LOCK.values())


def test_the_lock_names_no_place():
    assert not re.search(r"://|file:| @ |^-|find-links|/", re.sub(r"^ *#.*", "", TEXT, flags=re.MULTILINE))


def test_the_lock_takes_the_cpu_build_of_torch():
    assert LOCK["torch"]["version"].endswith("+cpu")
    assert not [name for name in LOCK if name.startswith(("nvidia", "cuda"))]
    asked_by = re.search(r"^triton==.*?# via(.*?)^[a-z]", TEXT, re.MULTILINE | re.DOTALL).group(1)
    assert "torchcaps" in asked_by  # the extra gpu, for the tests
    assert "torch\n" not in asked_by


def test_a_release_lists_all_packages_with_versions_and_hashes(tmp_path):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (tmp_path / "a.whl").write_bytes(b"wheel")
    told = sbom.document(project, LOCK, [tmp_path / "a.whl"])
    assert told["metadata"]["component"]["purl"] == f"pkg:pypi/torchcaps@{project['version']}"
    assert {part["name"] for part in told["components"]} == set(LOCK)
    assert all(part["version"] and part["hashes"] and part["purl"] for part in told["components"])
    known = {told["metadata"]["component"]["bom-ref"], *(part["bom-ref"] for part in told["components"])}
    assert {other for each in told["dependencies"] for other in each["dependsOn"]} < known
    required = {part["name"] for part in told["components"] if part["scope"] == "required"}
    assert {"torch", "numpy", "einops", "sympy"} <= required
    assert not {"pytest", "fastapi", "ruff"} & required


def test_the_lowest_versions_are_the_lower_bounds():
    pins = versions.pins("lowest")
    assert "torch==2.13.0" in pins
    wanted = {name: text for name, text in versions.requirements("test").items() if name != "torch"}
    assert len(pins) == len(wanted) + 1
    for pin in map(Requirement, pins[1:]):
        assert Requirement(wanted[pin.name]).specifier.contains(str(pin.specifier).removeprefix("=="))
