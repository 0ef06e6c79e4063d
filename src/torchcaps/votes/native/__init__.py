"""Votes computed by native functions, where the machine has a C compiler; everywhere else torch does the same."""

from torchcaps.votes.native.backend import Native
from torchcaps.votes.native.build import describe

__all__ = ["Native", "describe"]
