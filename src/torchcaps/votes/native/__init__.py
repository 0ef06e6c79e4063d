"""Votes computed by native functions, where the machine has a C compiler; everywhere else torch does the same."""

from torchcaps.votes.native.build import describe
from torchcaps.votes.native.votes import KEPT_NUMBERS, TILE_NUMBERS, NativeVotes, fill_lanes, filled, native_votes

__all__ = ["KEPT_NUMBERS", "TILE_NUMBERS", "NativeVotes", "describe", "fill_lanes", "filled", "native_votes"]
