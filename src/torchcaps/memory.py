"""The most memory that this process has held."""

from __future__ import annotations

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
