"""How much memory there is, and the most that this process has held."""

from __future__ import annotations

import os
from pathlib import Path


def highest_memory() -> int | None:
    """The most bytes that this process has held so far; None where that cannot be seen."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would tell of the parent process too
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    try:
        import resource
    except ImportError:  # Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def physical_memory() -> int | None:
    """The bytes of memory that this machine has; None where that cannot be seen."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # Windows
        return None
