"""Votes computed by native functions, where the machine has a C compiler; everywhere else torch does the same."""

from torchcaps.native.build import describe
from torchcaps.native.votes import LANES, NATIVE_NUMBERS, NativeVotes, native_votes

__all__ = ["LANES", "NATIVE_NUMBERS", "NativeVotes", "describe", "native_votes"]
