"""Available memory, peak memory of this process, and limits that turn exhaustion into an error."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

THREAD = 8 << 20  # bytes of address space for the stack of a thread, of which little is used
# Messages of torch, CUDA, numpy and the C++ library for failed allocations. Other errors do not contain them.
SAYINGS = ("not enough memory", "out of memory", "cannot allocate memory", "can't allocate memory", "bad_alloc")


def highest_memory() -> int | None:
    """The peak memory of this process in bytes; None if it is unknown."""
    held = _status("VmHWM")
    if held is not None or resource is None:  # getrusage would include the parent process
        return held
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def available_memory() -> int | None:
    """The memory in bytes that this process may use: the least of machine, control group and address limit."""
    found = [_machine(), _control_group(), _address_limit()]
    return min((bytes_ for bytes_ in found if bytes_ is not None), default=None)


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an error, or one that caused it, reports a failed allocation."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:  # it may be the cause or the context of another error
        seen.append(error)
        if isinstance(error, MemoryError) or any(saying in str(error).lower() for saying in SAYINGS):
            return True
        error = error.__cause__ or error.__context__
    return False


@contextmanager
def bounded_memory() -> Iterator[None]:
    """Limit this process to its control group's memory, so that allocations fail with an error.

    Otherwise Linux kills the process. The limit is on writable address space, of which a process has more than it uses:
    the unused part that it has now, and the stacks of threads, are added.
    """
    group, machine = _control_group(), _machine()
    if resource is None or not hasattr(resource, "RLIMIT_DATA") or group is None or (machine or 0) <= group:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    untouched = max(0, (_status("VmData") or 0) - (_status("RssAnon") or 0))
    bound = group + untouched + THREAD * (os.cpu_count() or 1)
    known = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (min([bound, *known]), hard))
    try:
        yield
    finally:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _machine() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # Windows
        return None


def _address_limit() -> int | None:
    if resource is None:
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit


def _control_group() -> int | None:
    """The lowest memory limit of the control groups of this process (version 2 or 1); None if there is none."""
    limits = []
    with suppress(OSError, ValueError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, kinds, place = line.split(":", 2)
            if kinds not in ("", "memory"):
                continue
            root = Path("/sys/fs/cgroup", kinds)
            name = "memory.limit_in_bytes" if kinds else "memory.max"
            own = root / place.lstrip("/")
            for folder in (own, *own.parents):
                limits += _limit(folder / name)
                if folder == root:
                    break
    return min(limits, default=None)


def _limit(path: Path) -> list[int]:
    with suppress(OSError, ValueError):  # "max" means no limit
        return [int(path.read_text())]
    return []


def _status(name: str) -> int | None:
    """A value of /proc/self/status, in bytes."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return None


def keep_memory() -> None:
    """Ask glibc not to return freed memory to the system: page faults took two thirds of EM routing's time."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # another C library
        return
    mallopt(-4, 0)  # M_MMAP_MAX
    mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD
