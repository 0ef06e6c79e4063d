"""The public files of named data sets: found on disk or downloaded, and verified by checksums.

The environment variable TORCHCAPS_MIRROR names a base URL that is tried first: <mirror>/<data set>/<file>.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import sys
import zlib
from contextlib import redirect_stderr
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from torchcaps._core.errors import InputError, input_error
from torchcaps._core.neutral import terminal
from torchcaps.data.disk_store import may_write

TIMEOUT = (5, 20)  # seconds to connect, and between two packets


@dataclass(frozen=True)
class PublicFile:
    """A gzipped file as its authors publish it, with its checksum ("md5:..." or "sha256:...").

    content, size: the sum and the bytes of what it unpacks to, where known.
    """

    name: str
    checksum: str
    content: str = ""
    size: int = 0


@dataclass(frozen=True)
class Source:
    """The places where the files of a data set can be found.

    urls: bases that are tried in turn. folders: places in the data folder that belong to this set; fetched files go
    to the first. elsewhere: other places, in the data folder or absolute, where a file counts only if its sum says
    that it is this set's: MNIST and its relatives all use the same file names.
    """

    name: str
    files: tuple[PublicFile, ...]
    urls: tuple[str, ...]
    folders: tuple[str, ...]
    elsewhere: tuple[str, ...] = ()


def find_files(source: Source, folder: Path) -> list[Path]:
    """The files of a source, in order, unpacked ones before packed ones; missing files are downloaded."""
    found = {file: _find(source, file, folder) for file in source.files}
    for file in source.files:
        if found[file] is None:
            missing = [other for other in source.files if found[other] is None]
            found[file] = _fetch(source, file, missing, folder / source.folders[0])
    return [path for path in found.values() if path is not None]


def _find(source: Source, file: PublicFile, folder: Path) -> Path | None:
    names = (file.name.removesuffix(".gz"), file.name)
    for path in (folder / place / name for place in source.folders for name in names):
        if path.is_file():
            if _is_public(path, file) is False:
                known = file.checksum if path.name == file.name else file.content
                expected = f"{path.name} with {_words(known)}"
                raise input_error(source.name, expected, f"other content in {path}", "Remove it to have it fetched.")
            return path
    for path in (folder / place / name for place in source.elsewhere for name in names):
        if path.is_file() and _is_public(path, file):
            return path
    return None


def _is_public(path: Path, file: PublicFile) -> bool | None:
    """Whether a file is the public one; None if this cannot be verified."""
    if path.suffix == ".gz":
        # A copy that was compressed again, as in Debian, has another checksum but the same content.
        return _digest(path, file.checksum) or (bool(file.content) and _digest(path, file.content, unpack=True))
    # Unpacked, a file may be a subset made by the user, which has no checksum; nor is there one for every
    # public file. The readers still check that header and length agree.
    return _digest(path, file.content) if file.content and path.stat().st_size == file.size else None


def _digest(path: Path, checksum: str, unpack: bool = False) -> bool:
    """Whether a file, or its unpacked content, has this checksum."""
    method, value = checksum.split(":")
    digest = hashlib.new(method, usedforsecurity=False)
    try:
        with gzip.open(path) if unpack else path.open("rb") as stream:
            while chunk := stream.read(1 << 20):
                digest.update(chunk)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        return False
    return digest.hexdigest() == value


def _fetch(source: Source, file: PublicFile, missing: list[PublicFile], target: Path) -> Path:
    """Download a file from the first base that has it. It gets its name only after its checksum is verified."""
    if not may_write():
        remedy = f"Put it there, or give --data-dir {target.parent} to fetch it."
        raise input_error(source.name, f"{file.name} in {target}, which the run names", "no such file", remedy)
    try:
        import pooch
    except ImportError:
        remedy = "Run: pip install 'torchcaps[data]'."
        raise input_error(source.name, f"the package pooch to fetch {file.name}", "it not installed", remedy) from None
    mirror = os.environ.get("TORCHCAPS_MIRROR", "")
    bases = [f"{mirror.rstrip('/')}/{source.name}/", *source.urls] if mirror else source.urls
    downloader = pooch.HTTPDownloader(progressbar=find_spec("tqdm") is not None, timeout=TIMEOUT)
    reasons = []
    for base in bases:
        try:
            with redirect_stderr(terminal(sys.stderr)):  # for its bar
                pooch.retrieve(base + file.name, file.checksum, file.name, target, downloader=downloader)
            return target / file.name
        except (OSError, ValueError) as error:  # requests' errors are OSErrors; a wrong sum is a ValueError
            reasons.append(_reason(error, urlsplit(base).netloc or base))
    raise _absent(source, missing, target, " and ".join(dict.fromkeys(reasons)))


def _reason(error: Exception, host: str) -> str:
    answer = getattr(error, "response", None)
    if answer is not None:
        return f"{answer.status_code} {answer.reason} from {host}"
    if not isinstance(error, OSError):
        return f"a file with another sum from {host}"
    if error.strerror:  # of this machine: no right to write, no space
        return f"{error.strerror} ({error.filename})" if error.filename else error.strerror
    name = type(error).__name__
    return f"no connection to {host}" if "Connect" in name else f"{name} from {host}"


def _absent(source: Source, missing: list[PublicFile], target: Path, reason: str) -> InputError:
    listed = ", ".join(f"{file.name} ({_words(file.checksum)})" for file in missing)
    remedy = "Put the files there, or choose another place with --data-dir or TORCHCAPS_DATA."
    return input_error(source.name, f"{listed} in {target}", reason, remedy)


def _words(checksum: str) -> str:
    return checksum.replace(":", " ")
