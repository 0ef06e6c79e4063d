"""The losses as modules, with torch's `reduction`."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import TypedDict, Unpack

from torchcaps._core.errors import check_range
from torchcaps.losses.functions import check_reduction, margin_loss, spread_loss


class LossOptions(TypedDict, total=False):
    """The options of both losses; see `margin_loss`."""

    weight: Tensor | None
    noise_class: bool
    reduction: str
    convention: str


class _Loss(nn.Module):
    weight: Tensor | None

    def __init__(
        self,
        *,
        weight: Tensor | None = None,
        noise_class: bool = False,
        reduction: str = "mean",
        convention: str = "paper",
    ) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        check_reduction(type(self).__name__, reduction, convention)
        self.noise_class, self.reduction, self.convention = noise_class, reduction, convention

    def options(self) -> LossOptions:
        """The options that a loss is called with."""
        return {
            "weight": self.weight,
            "noise_class": self.noise_class,
            "reduction": self.reduction,
            "convention": self.convention,
        }


class MarginLoss(_Loss):
    """`margin_loss` as a module.

    positive_margin, negative_margin, down_weight, weight, noise_class, reduction, convention: as in `margin_loss`.
    """

    def __init__(
        self,
        *,
        positive_margin: float = 0.9,
        negative_margin: float = 0.1,
        down_weight: float = 0.5,
        **options: Unpack[LossOptions],
    ) -> None:
        super().__init__(**options)
        check_range("MarginLoss", "positive_margin", positive_margin, negative_margin)
        check_range("MarginLoss", "down_weight", down_weight, 0)
        self.positive_margin, self.negative_margin, self.down_weight = positive_margin, negative_margin, down_weight

    def forward(self, activations: Float[Tensor, "*b y"], labels: Tensor) -> Tensor:
        return margin_loss(
            activations,
            labels,
            positive_margin=self.positive_margin,
            negative_margin=self.negative_margin,
            down_weight=self.down_weight,
            **self.options(),
        )

    def extra_repr(self) -> str:
        return f"reduction={self.reduction!r}, convention={self.convention!r}, down_weight={self.down_weight}"


class SpreadLoss(_Loss):
    """`spread_loss` as a module.

    margin (which may be reassigned), weight, noise_class, reduction, convention: as in `spread_loss`.
    """

    def __init__(self, margin: float = 0.9, **options: Unpack[LossOptions]) -> None:
        super().__init__(**options)
        self.margin = margin

    def forward(self, activations: Float[Tensor, "*b y"], labels: Tensor) -> Tensor:
        return spread_loss(activations, labels, self.margin, **self.options())

    def extra_repr(self) -> str:
        return f"margin={self.margin}, reduction={self.reduction!r}, convention={self.convention!r}"
