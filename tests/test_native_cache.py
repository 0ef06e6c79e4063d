"""What is kept of native functions is loaded only if it is whole, and if nobody else had a hand in it."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import warnings

import pytest
import torch

from torchcaps.votes.native import build, cache, describe
from torchcaps.votes.native.build import Geometry, library

BUILD = """
import torch
from torchcaps.votes.native.build import Geometry, library
found = library(Geometry(1, 2, 2), torch.float32)
"""
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
STRANGER = 54321  # a user whom no machine knows


def use(program=BUILD, **variables):
    """A process that builds or loads the functions; its exit code is that of a crash if it crashes."""
    environment = {**os.environ, **variables}
    return subprocess.run([sys.executable, "-W", "error", "-c", program], timeout=120, env=environment).returncode


@pytest.fixture
def home(monkeypatch, tmp_path):
    """The folder for what is kept, of a user who has built nothing yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "_told", set())
    build._built.cache_clear()
    yield tmp_path / "cache" / "torchcaps" / "native"
    build._built.cache_clear()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The name of a library, and its file."""
    if describe().startswith("off"):
        pytest.skip(f"native functions are {describe()}")
    with pytest.MonkeyPatch.context() as patch:
        place = tmp_path_factory.mktemp("made")
        patch.setenv("XDG_CACHE_HOME", str(place))
        build._built.cache_clear()
        assert not isinstance(found(), str)
    (path,) = (place / "torchcaps" / "native").iterdir()
    return path.name, path.read_bytes()


@pytest.fixture
def kept(native, made, home):
    """A library that was built and kept by another process."""
    home.mkdir(parents=True, mode=0o700)
    path = home / made[0]
    path.touch(0o600)
    path.write_bytes(made[1])
    return path


def found():
    return library(Geometry(1, 2, 2), torch.float32)


# Broken and foreign files


def test_a_kept_library_that_was_cut_is_built_anew(kept):
    whole = kept.read_bytes()
    for share in (0.1, 0.5, 0.999):  # whoever loads the first two ends with SIGBUS
        kept.write_bytes(whole[: int(share * len(whole))])
        assert use() == 0, share
        assert kept.stat().st_size == len(whole)


def test_a_kept_library_that_is_whole_is_not_built_anew(kept):
    before = kept.stat()
    assert not isinstance(found(), str)
    assert (kept.stat().st_ino, kept.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_kept_library_with_a_flipped_bit_is_built_anew(kept):
    whole = kept.read_bytes()
    kept.write_bytes(bytes([*whole[:5000], whole[5000] ^ 1, *whole[5001:]]))
    assert not isinstance(found(), str)
    assert kept.read_bytes()[5000] == whole[5000]


def test_a_foreign_library_is_never_run(kept, tmp_path):
    source, mark = tmp_path / "foreign.c", tmp_path / "mark"
    source.write_text(f'#include <fcntl.h>\n__attribute__((constructor)) void run(void) {{ creat("{mark}", 0600); }}\n')
    subprocess.run(["cc", "-shared", "-fPIC", source, "-o", kept], check=True)
    kept.chmod(0o600)
    assert not isinstance(found(), str)
    assert not mark.exists()
    assert kept.stat().st_size > 20_000


def test_a_library_for_other_sizes_under_the_same_name_is_built_anew(kept, home):
    whole = kept.read_bytes()
    assert not isinstance(library(Geometry(1, 2, 1), torch.float32), str)
    (other,) = set(home.iterdir()) - {kept}
    shutil.copy(other, kept)
    assert not isinstance(found(), str)
    assert kept.read_bytes() == whole


@pytest.mark.parametrize("kind", ["fifo", "link", "dangling link", "folder", "huge file"])
def test_what_is_no_plain_file_is_never_opened_as_one(kept, tmp_path, kind):
    kept.rename(tmp_path / "away")
    if kind == "fifo":
        os.mkfifo(kept, 0o600)
    elif kind == "folder":
        kept.mkdir(0o700)
    elif kind == "huge file":
        kept.touch(0o600)
        os.truncate(kept, 2**40)
    else:
        kept.symlink_to(tmp_path / ("away" if kind == "link" else "nowhere"))
    assert use() == 0
    if kind != "folder":  # nothing can take its place
        assert stat.S_ISREG(kept.lstat().st_mode)


# Whose they are


@pytest.mark.parametrize("mode", [0o775, 0o777, 0o1777])
@pytest.mark.usefixtures("native")
def test_a_folder_that_others_can_write_is_not_used(home, mode):
    home.mkdir(parents=True)
    home.chmod(mode)
    with pytest.warns(UserWarning, match=r"expected a folder that only .* write, got .*native, which others"):
        assert not isinstance(found(), str)
    assert not list(home.iterdir())
    assert describe().startswith("on, but built anew by each process (")


@pytest.mark.usefixtures("native")
def test_a_folder_that_is_not_used_is_told_once(home):
    home.mkdir(parents=True)
    home.chmod(0o777)
    with pytest.warns(UserWarning, match="Run chmod go-w on it"):
        found()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not isinstance(library(Geometry(1, 3, 2), torch.float32), str)


@ROOT
@pytest.mark.usefixtures("native")
def test_a_folder_of_another_user_is_not_used(home):
    home.mkdir(parents=True, mode=0o700)
    os.chown(home, STRANGER, STRANGER)
    with pytest.warns(UserWarning, match="which belongs to another user"):
        assert not isinstance(found(), str)
    assert not list(home.iterdir())


def test_a_library_that_others_can_write_is_built_anew(kept):
    kept.chmod(0o666)
    before = kept.stat().st_ino
    assert not isinstance(found(), str)
    assert (kept.stat().st_ino == before, stat.S_IMODE(kept.stat().st_mode)) == (False, 0o600)


@ROOT
def test_a_library_of_another_user_is_built_anew(kept):
    os.chown(kept, STRANGER, STRANGER)
    assert not isinstance(found(), str)
    assert kept.stat().st_uid == 0


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o022])
@pytest.mark.usefixtures("native")
def test_what_is_kept_is_for_its_owner_alone_whatever_the_umask(home, mask):
    before = os.umask(mask)
    try:
        assert not isinstance(found(), str)
    finally:
        os.umask(before)
    (kept,) = home.iterdir()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (kept, home, home.parent)] == [0o600, 0o700, 0o700]


# Where they are


@pytest.mark.usefixtures("native")
def test_a_relative_cache_home_is_ignored(home, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert not isinstance(found(), str)
    assert not (tmp_path / "relative").exists()
    assert len(list((tmp_path / "home" / ".cache" / "torchcaps" / "native").iterdir())) == 1


@pytest.mark.slow
@ROOT
@pytest.mark.usefixtures("native")
def test_an_unknown_user_without_a_home_is_served():
    leave = f"""
import os, torchcaps.layers  # while root can still read them
for name in ("HOME", "XDG_CACHE_HOME", "TMPDIR"):
    os.environ.pop(name, None)
os.setgid({STRANGER})
os.setuid({STRANGER})
"""
    says = (
        "found.lanes()\nfrom torchcaps.votes.native import describe as say\nassert 'there is no home' in say(), say()"
    )
    assert use(leave + BUILD + says) == 0


# What is loaded


def test_a_loaded_library_does_not_depend_on_its_file(kept):
    """Else whoever cuts the file ends every process that uses it (SIGBUS)."""
    cut = (
        f"import os\nos.truncate({str(kept)!r}, 0)\nfound.sums(1, *[0] * 14)\nfound.inner(1, *[0] * 11)\nfound.lanes()"
    )
    assert use(BUILD + cut) == 0


@pytest.mark.parametrize("memory", [True, False])
@pytest.mark.usefixtures("native", "home")
def test_libraries_are_not_taken_for_each_other(monkeypatch, memory):
    """The number of an open file is used again, and glibc knows libraries by the names that it opened."""
    if not memory:
        monkeypatch.delattr(os, "memfd_create")
    single, double = (library(Geometry(1, 2, 2), dtype) for dtype in (torch.float32, torch.float64))
    assert single.lanes() == 2 * double.lanes()


@pytest.mark.usefixtures("native", "home")
def test_loading_leaves_no_open_files():
    found()
    before = len(os.listdir("/proc/self/fd"))
    build._built.cache_clear()
    found()
    assert len(os.listdir("/proc/self/fd")) == before


# What is left behind


@pytest.mark.usefixtures("native")
def test_what_killed_builds_left_behind_is_removed_later(home, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    home.mkdir(parents=True, mode=0o700)
    old = [tmp_path / ".torchcaps-build-a", home / "tmpabcdefgh", home / "votes-0.so.1.tmp"]
    new = [tmp_path / ".torchcaps-build-b", home / "votes-0.so.2.tmp"]
    for path in (*old, *new):
        path.mkdir()
        (path / "votes.so").touch()
    for path in old:
        os.utime(path, (time.time() - 7200,) * 2)
    assert not isinstance(found(), str)
    assert [path.exists() for path in (*old, *new)] == [False, False, False, True, True]
