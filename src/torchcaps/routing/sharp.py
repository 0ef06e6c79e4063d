"""What routings share whose scores have a factor, the sharpness."""

from __future__ import annotations

from typing_extensions import Unpack

from torchcaps._core.errors import check_positive
from torchcaps.routing.base import Routing
from torchcaps.routing.checks import check_idle
from torchcaps.routing.competition import CompetitionOptions


class SharpOptions(CompetitionOptions, total=False):
    """The options of every routing, and a factor of its scores."""

    sharpness: float


class Sharp(Routing):
    """Base class of routings that have a sharpness, a factor of scores; with hard=True it would have no effect."""

    def __init__(
        self, iterations: int = 3, *, sharpness: float = 1.0, **competition: Unpack[CompetitionOptions]
    ) -> None:
        super().__init__(iterations, **competition)
        check_positive(self.name, "sharpness", sharpness)
        usual = self.options().get("sharpness", sharpness)
        check_idle(self.name, "with hard=True", sharpness=self.hard and sharpness != usual)
        self.sharpness = sharpness
