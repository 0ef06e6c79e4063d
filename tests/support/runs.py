"""Fixtures of the whole session: a folder of pictures and a run on them, which tests only read."""

import shutil

import pytest


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    from tests.support.commands import save_pictures  # not with conftest.py: most tests need no command line

    return save_pictures(tmp_path_factory.mktemp("data") / "squares", 30)


@pytest.fixture(scope="session")
def trained(tmp_path_factory, pictures):
    from tests.support.commands import SMALL, run

    out = tmp_path_factory.mktemp("runs") / "squares"
    assert run("train", pictures, *SMALL, "--epochs", 6, "--out", out) == 0
    return out


@pytest.fixture(scope="session")
def resnet(tmp_path_factory):
    """The folder of a small network in Hugging Face's format."""
    from tests.support.encoders import save_network

    return save_network(tmp_path_factory.mktemp("encoders") / "resnet")


@pytest.fixture(scope="session")
def frozen(tmp_path_factory, pictures):
    """A run with a frozen encoder, whose folder is gone."""
    from tests.support.commands import run
    from tests.support.encoders import SHORT, save_network

    folder = tmp_path_factory.mktemp("frozen")
    save_network(folder / "vit", "vit")
    assert run("train", pictures, "--encoder", folder / "vit", *SHORT, "--epochs", 8, "--out", folder / "run") == 0
    shutil.rmtree(folder / "vit")
    return folder / "run"
