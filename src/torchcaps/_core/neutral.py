"""Safe output: control characters in untrusted names and texts are escaped."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

# Control characters, line separators, marks of the writing direction, and lone surrogates, with which Python represents
# bytes of file names that are not UTF-8.
_CONTROL = "\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
CONTROL, _IN_A_LINE = re.compile(f"[{_CONTROL}]"), re.compile(f"[\t\n{_CONTROL}]")


def shown(text: str, *, lines: bool = False) -> str:
    r"""Escape non-printable characters, as \x1b or \n, so that the text fits on one terminal line.

    lines: keep line feeds and tabs.
    """
    return (CONTROL if lines else _IN_A_LINE).sub(_escaped, text)


def csv_cell(text: str) -> str:
    """Escape a text for a cell of a CSV file, so that no spreadsheet reads it as a formula, also after semicolons."""
    return shown(re.sub(r"(^|;)(?=[=+@\t\r-])", r"\1'", text))


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    if 0xDC80 <= code <= 0xDCFF:  # the surrogate escape of a byte
        return f"\\x{code - 0xDC00:02x}"
    return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(found[0], f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


class NeutralStream:
    """A text stream that escapes control characters except line feeds and tabs, and characters it cannot encode."""

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        text = shown(text, lines=True)
        encoding = getattr(self.stream, "encoding", None)
        if encoding:
            text = text.encode(encoding, "backslashreplace").decode(encoding)
        self.stream.write(text)
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def terminal(stream: Any) -> Any:
    """The underlying stream, for output with control characters: progress bars, colors, help pages."""
    return stream.stream if isinstance(stream, NeutralStream) else stream


@contextmanager
def neutral_output() -> Iterator[None]:
    """A context in which standard output and error go through `NeutralStream`."""
    before = sys.stdout, sys.stderr
    streams = [stream if stream is None else NeutralStream(terminal(stream)) for stream in before]
    sys.stdout, sys.stderr = streams
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
