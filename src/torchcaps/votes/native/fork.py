"""Processes that fork after native functions ran with several threads.

A forked process has one thread. GNU OpenMP still counts on those of its parent and waits for them for ever, in torch's
own operations too. So the thread that forks ends its helpers before; OpenMP starts new ones when they are needed, on
both sides.
"""

from __future__ import annotations

import ctypes
import os

import torch

NAME, SOFT = "omp_pause_resource_all", 1  # soft: settings, such as the number of threads, stay

_libraries: list[ctypes.CDLL] = []
_released = False


def survive_forks(functions: ctypes.CDLL) -> None:
    """From now on, whoever forks ends the helpers of these functions, and of torch."""
    if not _libraries:
        _libraries.append(ctypes.CDLL(torch._C.__file__))
        os.register_at_fork(before=_release, after_in_child=_alone)
    _libraries.append(functions)


def _release() -> None:
    global _released
    # A library is asked for the OpenMP that it uses. The second to end the same helpers finds none.
    _released = all(hasattr(each, NAME) and getattr(each, NAME)(SOFT) == 0 for each in _libraries)


def _alone() -> None:
    if not _released:  # an OpenMP before 5.0: one thread needs no helpers
        torch.set_num_threads(1)
