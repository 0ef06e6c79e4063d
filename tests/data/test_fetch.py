import gzip
import hashlib
import socket
import struct
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from torchcaps.data import fetch
from torchcaps.data.fetch import PublicFile, Source, find_files
from torchcaps.data.mnist import load_source

NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def idx_bytes(array):
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def md5(content):
    return f"md5:{hashlib.md5(content).hexdigest()}"


# A set in MNIST's format, small enough to serve and to write
PIXELS = np.random.default_rng(0).integers(0, 256, (36, 4, 4), dtype=np.uint8)
MARKS = (np.arange(36) % 3).astype(np.uint8)
PLAIN = dict(zip(NAMES, map(idx_bytes, (PIXELS[:24], MARKS[:24], PIXELS[24:], MARKS[24:])), strict=True))
PACKED = {f"{name}.gz": gzip.compress(content, mtime=0) for name, content in PLAIN.items()}


def tiny(*urls, sums=True, elsewhere=(".",)):
    files = tuple(
        PublicFile(f"{name}.gz", md5(PACKED[f"{name}.gz"]), md5(content) if sums else "", len(content))
        for name, content in PLAIN.items()
    )
    return Source("tiny", files, urls, ("tiny",), elsewhere)


def load_tiny(source, folder):
    return load_source(source, folder, ("a", "b", "c"))


def assert_tiny(parts):
    assert [len(part) for part in parts[:3]] == [22, 2, 12]
    assert np.array_equal(parts.test.images[:, 0], PIXELS[24:])
    assert parts.test.labels.tolist() == MARKS[24:].tolist()
    assert parts.train.classes == ("a", "b", "c")


def write(folder, contents):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)


def files_in(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        what = self.server.files.get(self.path)
        if what == "stall":
            self.server.over.wait(5)
        elif what is None:
            self.send_error(404)
        else:
            content, promised = what if isinstance(what, tuple) else (what, len(what))
            self.send_response(200)
            self.send_header("Content-Length", str(promised))
            self.end_headers()
            self.wfile.write(content)

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    """A real server of `files`, by path, that notes what it is asked for."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        made.files, made.asked, made.over = {}, [], threading.Event()
        made.url = f"http://127.0.0.1:{made.server_port}"
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.over.set()
        made.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def no_mirror(monkeypatch):
    monkeypatch.delenv("TORCHCAPS_MIRROR", raising=False)


@pytest.fixture
def closed():
    """The address of a port that nobody listens at."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    return f"http://127.0.0.1:{port}/"


# Fetching


def test_files_are_fetched_once(server, tmp_path):
    server.files = {f"/base/{name}": content for name, content in PACKED.items()}
    source = tiny(f"{server.url}/base/")
    assert_tiny(load_tiny(source, tmp_path))
    assert files_in(tmp_path / "tiny") == sorted(PACKED)
    assert len(server.asked) == 4
    assert_tiny(load_tiny(source, tmp_path))
    assert len(server.asked) == 4


def test_only_what_is_missing_is_fetched(server, tmp_path):
    server.files = {f"/{name}": content for name, content in PACKED.items()}
    write(tmp_path / "tiny", {name: PACKED[name] for name in list(PACKED)[:3]})
    assert_tiny(load_tiny(tiny(f"{server.url}/"), tmp_path))
    assert server.asked == ["/t10k-labels-idx1-ubyte.gz"]


def test_every_base_is_tried(server, closed, tmp_path):
    server.files = {f"/good/{name}": content for name, content in PACKED.items()}
    server.files |= {f"/bad/{name}": b"no such data" for name in PACKED}
    source = tiny(closed, f"{server.url}/absent/", f"{server.url}/bad/", f"{server.url}/good/")
    assert_tiny(load_tiny(source, tmp_path))
    assert files_in(tmp_path) == sorted(PACKED)


def test_the_mirror_comes_first(server, tmp_path, monkeypatch):
    server.files = {f"/mirror/tiny/{name}": content for name, content in PACKED.items()}
    monkeypatch.setenv("TORCHCAPS_MIRROR", f"{server.url}/mirror")
    assert_tiny(load_tiny(tiny(f"{server.url}/base/"), tmp_path))
    assert all(path.startswith("/mirror/tiny/") for path in server.asked)


FIRST = "train-images-idx3-ubyte.gz"


@pytest.mark.parametrize(
    ("served", "reason"),
    [
        (None, r"404 Not Found from 127\.0\.0\.1"),
        (b"other content", r"a file with another sum from 127\.0\.0\.1"),
        (PACKED[FIRST][:-9], "a file with another sum"),
        (b"", "a file with another sum"),
        ((PACKED[FIRST][:-9], len(PACKED[FIRST])), "ChunkedEncodingError|a file with another sum"),
        ("stall", r"ReadTimeout|no connection"),
    ],
)
def test_a_failed_download_gets_one_sentence_and_leaves_nothing(server, tmp_path, monkeypatch, served, reason):
    monkeypatch.setattr(fetch, "TIMEOUT", (0.5, 0.5))
    server.files = {f"/{FIRST}": served}
    started = time.monotonic()
    with pytest.raises(ValueError, match=reason) as caught:
        load_tiny(tiny(f"{server.url}/"), tmp_path)
    assert time.monotonic() - started < 4
    sentence = str(caught.value)
    assert sentence.startswith("tiny: expected train-images-idx3-ubyte.gz (md5 ")
    for name, content in PACKED.items():
        assert f"{name} ({md5(content).replace(':', ' ')})" in sentence
    assert f"in {tmp_path / 'tiny'}, got " in sentence
    assert sentence.endswith("Put the files there, or choose another place with folder or TORCHCAPS_DATA.")
    assert "\n" not in sentence
    assert files_in(tmp_path) == []


def test_without_a_network_one_knows_soon(closed, tmp_path):
    started = time.monotonic()
    with pytest.raises(ValueError, match=r"got no connection to 127\.0\.0\.1:\d+\. Put the files there"):
        load_tiny(tiny(closed, closed), tmp_path)
    assert time.monotonic() - started < 3
    assert files_in(tmp_path) == []


def test_what_was_fetched_before_a_failure_is_kept_and_no_more_asked_for(server, tmp_path):
    server.files = {f"/{FIRST}": PACKED[FIRST]}
    with pytest.raises(ValueError, match=r"tiny: expected train-labels-idx1-ubyte\.gz .*404"):
        load_tiny(tiny(f"{server.url}/"), tmp_path)
    assert files_in(tmp_path) == [FIRST]


def test_a_folder_that_cannot_be_made_gets_one_sentence(server, tmp_path):
    server.files = {f"/{name}": content for name, content in PACKED.items()}
    (tmp_path / "tiny").write_text("a file where the folder should be")
    with pytest.raises(ValueError, match=r"tiny: expected train-images.*Put the files there"):
        load_tiny(tiny(f"{server.url}/"), tmp_path)


def test_fetching_needs_pooch_and_finding_does_not(tmp_path, closed, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(ValueError, match=r"package pooch to fetch train-images.*pip install 'torchcaps\[data\]'"):
        load_tiny(tiny(closed), tmp_path)
    write(tmp_path / "tiny", PACKED)
    assert_tiny(load_tiny(tiny(closed), tmp_path))


# Finding


@pytest.mark.parametrize("place", ["tiny", "."])
@pytest.mark.parametrize("contents", [PACKED, PLAIN], ids=["packed", "unpacked"])
def test_files_on_disk_need_no_network(tmp_path, closed, place, contents):
    write(tmp_path / place, contents)
    assert_tiny(load_tiny(tiny(closed), tmp_path))


def test_copies_packed_anew_count_by_their_content(tmp_path, closed):
    anew = {name: gzip.compress(gzip.decompress(content), 1, mtime=5) for name, content in PACKED.items()}
    write(tmp_path / "package", anew)
    source = tiny(closed, elsewhere=(".", str(tmp_path / "package")))
    assert_tiny(load_tiny(source, tmp_path / "data"))
    with pytest.raises(ValueError, match="no connection"):  # nothing says that these are the right ones
        load_tiny(tiny(closed, sums=False, elsewhere=(str(tmp_path / "package"),)), tmp_path / "data")


@pytest.mark.parametrize(
    "broken", [b"", b"other content", PACKED[FIRST][:-9], gzip.compress(b"other content", mtime=0)]
)
def test_a_wrong_file_in_the_set_s_folder_gets_one_sentence(tmp_path, closed, broken):
    write(tmp_path / "tiny", PACKED | {FIRST: broken})
    sentence = rf"tiny: expected {FIRST} with md5 \w+, got other content in .*{FIRST}\. Remove it to have it fetched\."
    with pytest.raises(ValueError, match=sentence):
        load_tiny(tiny(closed), tmp_path)


@pytest.mark.parametrize("contents", [PACKED, PLAIN], ids=["packed", "unpacked"])
def test_another_set_s_files_of_the_same_name_are_passed_over(server, tmp_path, contents):
    others = {name: content[:-1] + b"x" for name, content in contents.items()}
    write(tmp_path, others)
    server.files = {f"/{name}": content for name, content in PACKED.items()}
    for sums in (True, False):
        assert_tiny(load_tiny(tiny(f"{server.url}/", sums=sums), tmp_path))
    assert (tmp_path / next(iter(others))).read_bytes() == next(iter(others.values()))


def test_an_unpacked_file_of_the_public_size_must_have_the_public_content(tmp_path, closed):
    write(tmp_path / "tiny", PLAIN | {NAMES[0]: PLAIN[NAMES[0]][:-1] + b"x"})
    with pytest.raises(ValueError, match="other content in"):
        load_tiny(tiny(closed), tmp_path)
    load_tiny(tiny(closed, sums=False), tmp_path)  # without a known sum nothing can tell


def test_a_part_of_a_set_loads_unpacked(tmp_path, closed):
    part = {NAMES[0]: idx_bytes(PIXELS[:12]), NAMES[1]: idx_bytes(MARKS[:12])}
    write(tmp_path / "tiny", PLAIN | part)
    assert [len(part) for part in load_tiny(tiny(closed), tmp_path)[:3]] == [11, 1, 12]
    write(tmp_path / "tiny", {NAMES[0]: PLAIN[NAMES[0]][:-5]})
    with pytest.raises(ValueError, match=r"expected 400 bytes for shape \[24, 4, 4\], got 395"):
        load_tiny(tiny(closed), tmp_path)


def test_find_files_keeps_the_order(tmp_path, closed):
    write(tmp_path / "tiny", PACKED)
    assert [path.name for path in find_files(tiny(closed), tmp_path)] == list(PACKED)
