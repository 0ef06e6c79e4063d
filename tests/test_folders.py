"""Where a user's things lie, whoever the user is."""

from pathlib import Path

import pytest

from torchcaps.data import data_folder
from torchcaps.errors import InputError


@pytest.fixture
def _homeless(monkeypatch):
    def nowhere():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("TORCHCAPS_DATA", raising=False)
    monkeypatch.setattr("pathlib.Path.home", nowhere)


@pytest.mark.usefixtures("_homeless")
def test_data_need_no_home_where_their_folder_is_given(monkeypatch):
    assert data_folder("/some/data") == Path("/some/data")
    monkeypatch.setenv("TORCHCAPS_DATA", "/other/data")
    assert data_folder() == Path("/other/data")


@pytest.mark.usefixtures("_homeless")
def test_data_without_a_home_get_a_sentence():
    with pytest.raises(InputError, match="expected a home folder for what it keeps, got none"):
        data_folder()


def test_data_ignore_a_relative_cache_home(monkeypatch):
    monkeypatch.delenv("TORCHCAPS_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert data_folder() == Path("/home/somebody/.cache/torchcaps")
