"""Where a user's things lie, whoever the user is."""

from pathlib import Path

import pytest

from torchcaps._core.errors import InputError
from torchcaps.data import data_folder


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
def test_data_without_a_home_are_among_the_temporary_files_of_this_user_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = data_folder()
    assert folder.parent == tmp_path
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    with pytest.raises(InputError, match="expected a folder of yours alone, got one that others can write to"):
        data_folder()
    folder.rmdir()
    folder.symlink_to("/")
    with pytest.raises(InputError, match="expected a folder of yours alone"):
        data_folder()


def test_data_ignore_a_relative_cache_home(monkeypatch):
    monkeypatch.delenv("TORCHCAPS_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert data_folder() == Path("/home/somebody/.cache/torchcaps")
