"""What an sdist and a wheel say of the project's address: decided once, when a release is made."""

import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
URL = "https://git.example/capsules/torchcaps"
FILES = ("pyproject.toml", "README.md", "LICENSE", "scripts/metadata.py", "src/torchcaps/__init__.py")


@pytest.fixture
def project(tmp_path):
    """A folder with what a build reads, but the code."""
    for file in FILES:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    return tmp_path


def build(folder, kind, url=None):
    """The path of what hatchling builds, or what it says where it refuses."""
    pytest.importorskip("hatchling")
    place = folder / "built" / kind
    words = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(place)]
    env = {word: value for word, value in os.environ.items() if word != "TORCHCAPS_URL"}
    done = subprocess.run(
        words, cwd=folder, env=env | ({} if url is None else {"TORCHCAPS_URL": url}), capture_output=True, text=True
    )
    return next(place.iterdir()) if done.returncode == 0 else done.stderr


def said_by(wheel):
    """The metadata of a wheel, and its description."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        message = email.message_from_bytes(archive.read(name))
    return message, message.get_payload(decode=True).decode()


def unpacked(sdist, folder):
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (inner,) = folder.iterdir()
    return inner


def test_without_an_address_links_stay_relative(project):
    message, text = said_by(build(project, "wheel"))
    assert text == (ROOT / "README.md").read_text(encoding="utf-8")
    assert message.get_all("Project-URL") is None
    assert message.get_all("Dynamic") is None


def test_with_an_address_every_link_of_the_readme_is_absolute(project):
    message, text = said_by(build(project, "wheel", URL + "/"))
    targets = re.findall(r"(!?)\[[^\[\]]*\]\(([^()\s]+)\)", text)
    assert len(targets) > 20
    for picture, target in targets:
        assert target.startswith(f"{URL}/{'raw' if picture else 'blob'}/main/"), target
        assert (ROOT / target.split("/main/")[1]).exists()
    assert f"{URL}/raw/main/docs/images/examples.png" in text
    assert f"Source, {URL}" in message.get_all("Project-URL")
    plain = re.sub(rf"{URL}/(raw|blob)/main/", "", text)
    assert plain == (ROOT / "README.md").read_text(encoding="utf-8")  # nothing else has changed


def test_a_wheel_from_an_sdist_says_what_the_sdist_says(project, tmp_path_factory):
    direct, text = said_by(build(project, "wheel", URL))
    inner = unpacked(build(project, "sdist", URL), tmp_path_factory.mktemp("sdist"))
    message, again = said_by(build(inner, "wheel"))
    assert again == text
    assert message.get_all("Project-URL") == direct.get_all("Project-URL")


def test_an_sdist_without_an_address_gives_a_wheel_without_one(project, tmp_path_factory):
    inner = unpacked(build(project, "sdist"), tmp_path_factory.mktemp("sdist"))
    message, text = said_by(build(inner, "wheel"))
    assert text == (ROOT / "README.md").read_text(encoding="utf-8")
    assert message.get_all("Project-URL") is None


def test_links_that_lead_elsewhere_and_code_stay_as_they_are(project):
    kept = "\n[a](https://b.example/c) [d](#e) [f](mailto:g@h.example)\n\n    x[0](y)\n\n```\nz[1](y)\n```\n"
    with (project / "README.md").open("a") as readme:
        readme.write(kept)
    assert said_by(build(project, "wheel", URL))[1].endswith(kept)


def test_an_address_is_checked(project):
    said = build(project, "wheel", "git.example")
    assert "TORCHCAPS_URL: expected https://host/owner/name, got 'git.example'" in said
