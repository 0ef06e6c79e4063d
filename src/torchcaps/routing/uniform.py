"""Uniform routing does not cluster: all couplings are equal. A baseline for comparisons with other routings."""

from __future__ import annotations

from torchcaps.routing.dynamic import Dynamic


class Uniform(Dynamic):
    """Dynamic routing with one iteration: the squashed sum of the votes, divided by the number of parents.

    squash, amendment, bias, out_capsules, out_dim: see `Dynamic`. leaky, sampling: see `Routing`.
    """

    def __init__(
        self,
        *,
        squash: str = "quadratic",
        amendment: bool = False,
        bias: bool = False,
        out_capsules: int | None = None,
        out_dim: int | None = None,
        leaky: bool = False,
        sampling: float = 1.0,
    ) -> None:
        super().__init__(
            1,
            squash=squash,
            amendment=amendment,
            bias=bias,
            out_capsules=out_capsules,
            out_dim=out_dim,
            leaky=leaky,
            sampling=sampling,
        )
