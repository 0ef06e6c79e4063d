"""A monitor of files, by Linux's inotify: it notices who opens, reads, writes, makes or removes anything."""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

# From <sys/inotify.h>.
EVENTS = {
    0x1: "read", 0x2: "written", 0x4: "given other rights", 0x20: "opened", 0x40: "moved away", 0x80: "moved here",
    0x100: "made", 0x200: "removed",
}  # fmt: skip
HEAD = struct.Struct("iIII")


class Monitor:
    """Watches folders and all that is in them; `seen()` tells what happened since it was last asked."""

    def __init__(self, *folders: Path) -> None:
        self.library = ctypes.CDLL(None, use_errno=True)
        self.file = self.library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.file < 0:
            raise OSError(ctypes.get_errno(), "inotify")
        self.names: dict[int, Path] = {}
        for folder in folders:
            for path in (folder, *folder.rglob("*")):
                if not path.is_symlink():
                    self._add(path)

    def _add(self, path: Path) -> None:
        number = self.library.inotify_add_watch(self.file, os.fsencode(path), sum(EVENTS))
        if number < 0:
            raise OSError(ctypes.get_errno(), "inotify", str(path))
        self.names[number] = path

    def seen(self) -> list[str]:
        """What happened, in words; none if nothing did."""
        content = b""
        while True:
            try:
                content += os.read(self.file, 1 << 16)
            except BlockingIOError:
                break
        found, place = [], 0
        while place < len(content):
            number, mask, _, length = HEAD.unpack_from(content, place)
            name = content[place + HEAD.size : place + HEAD.size + length].rstrip(b"\0")
            place += HEAD.size + length
            what = [word for bit, word in EVENTS.items() if mask & bit]
            if what:
                found.append(f"{self.names[number] / os.fsdecode(name)} was {what[0]}")
        return found

    def close(self) -> None:
        os.close(self.file)
