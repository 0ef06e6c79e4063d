"""Encodings of text files, told from their bytes: UTF-8, UTF-16, GB18030 or Windows-1252."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

from torchcaps._core.errors import input_error
from torchcaps.data.packed import open_text

MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
CHINESE, WESTERN = "gb18030", "cp1252"
NAMES = {"utf-16": "UTF-16", CHINESE: "GB18030, Chinese", WESTERN: "Windows-1252, Western"}
CHUNK = 1 << 20  # characters that are looked at together
USUAL = 0.5  # the share of characters beyond ASCII that are in GB 2312, above which bytes are Chinese
_WIDE = re.compile(r"[^\x00-\x7f]+")


def encoding_of(path: Path, given: str | None = None) -> str:
    """The encoding to read a text file with: the given one, or one that its mark or all of its bytes are valid in.

    A warning names any other than UTF-8. Bytes of Windows-1252 are often valid in GB18030 too: they count as Chinese if
    most characters are those of GB 2312. path: the file, unpacked if its name ends in .gz.
    """
    if given is not None:
        return "utf-8-sig" if given.lower().replace("_", "-") in ("utf-8", "utf8") else given
    found = _mark(path)
    if found is None:
        if _is_valid(path, "utf-8"):
            return "utf-8-sig"
        able = [(name, least) for name, least in ((CHINESE, USUAL), (WESTERN, 0.0)) if _is_valid(path, name, least)]
        if not able:
            got = "bytes that are none of these"
            remedy = "Give --encoding with its name, such as big5 or shift_jis."
            raise input_error(str(path), "text in UTF-8, UTF-16, GB18030 or Windows-1252", got, remedy)
        found = able[0][0]
    if found in NAMES:
        what = f"{path.name} is read as {found} ({NAMES[found]}), as far as its bytes tell; --encoding chooses another"
        warnings.warn(what, stacklevel=3)
    return found


def _mark(path: Path) -> str | None:
    """The encoding that a mark at the beginning of a file stands for."""
    with open_text(path, "latin-1", newline="") as file:
        start = file.read(3).encode("latin-1")
    return next((name for mark, name in MARKS.items() if start.startswith(mark)), None)


def _is_valid(path: Path, encoding: str, least: float = 0.0) -> bool:
    """Whether all bytes are valid, and at least this share of the characters beyond ASCII are in GB 2312."""
    wide = usual = 0
    try:
        with open_text(path, encoding, newline="") as file:
            while chunk := file.read(CHUNK):
                if least:
                    some = "".join(_WIDE.findall(chunk))
                    wide += len(some)
                    usual += len(some.encode("gb2312", "ignore")) // 2
    except UnicodeDecodeError:
        return False
    return usual >= least * wide
