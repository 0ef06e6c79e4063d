"""Fixtures of the whole session: a folder of pictures and a run on them, which tests only read."""

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
