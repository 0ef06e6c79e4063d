"""All backends, in the order in which the engine tries them."""

from torchcaps.votes.dense import Dense
from torchcaps.votes.engine import BACKENDS
from torchcaps.votes.lazy import Lazy
from torchcaps.votes.native import Native
from torchcaps.votes.triton import Triton

BACKENDS[:] = [Native(), Triton(), Lazy("lazy", pairwise=False), Lazy("lazy, by pairs", pairwise=True), Dense()]
