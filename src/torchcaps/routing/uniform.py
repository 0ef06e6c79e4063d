"""Uniform routing does not cluster: all couplings are equal. A baseline for comparisons with other routings."""

from __future__ import annotations

from typing_extensions import TypedDict, Unpack

from torchcaps.routing.dynamic import Dynamic


class UniformOptions(TypedDict, total=False):
    """The options of dynamic routing that count with one iteration."""

    squash: str
    amendment: bool
    bias: bool
    out_capsules: int | None
    out_dim: int | None
    leaky: bool
    sampling: float


class Uniform(Dynamic):
    """Dynamic routing with one iteration: the squashed sum of the votes, divided by the number of parents.

    squash, amendment, bias, out_capsules, out_dim: see `Dynamic`. leaky, sampling: see `Routing`.
    """

    def __init__(self, **options: Unpack[UniformOptions]) -> None:
        super().__init__(1, **options)
