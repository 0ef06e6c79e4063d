"""Splits by viewpoint: train on some views of objects, test on others."""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps._core.errors import check_choice, input_error
from torchcaps.data.base import Examples, ImageSet, Splits


def viewpoint_split(parts: Splits, by: str = "azimuth", low: float | None = None, high: float | None = None) -> Splits:
    """Keep images with viewpoints from low (inclusive) to high (exclusive); the other test images become `novel`.

    parts: of an `ImageSet` with views. by: "azimuth" or "elevation". low, high: in degrees; a range of azimuths may
    pass through 0 (-60 to 60 includes 300 to 360). The defaults are those of Hinton et al. (2018): azimuths from -60 to
    60, and the lowest third of the elevations.
    """
    check_choice("viewpoint_split", "by", by, ["azimuth", "elevation"])
    train, validation, test = (_with_view(part, by) for part in parts[:3])
    if by == "azimuth":
        low, high = -60.0 if low is None else low, 60.0 if high is None else high
        if not 0 < high - low <= 360:
            raise input_error(
                "viewpoint_split", "low below high, at most a turn apart", f"{low:g} and {high:g}", "Choose a range."
            )
    else:
        known = torch.cat([part.views[by] for part in (train, validation, test)]).unique()
        low = -torch.inf if low is None else low
        high = _third(known) if high is None else high

    def familiar(part: ImageSet) -> Tensor:
        angles = part.views[by]
        return (angles - low) % 360 < high - low if by == "azimuth" else (angles >= low) & (angles < high)

    shown = familiar(test)
    chosen = {
        "train": train.take(familiar(train)),
        "validation": validation.take(familiar(validation)),
        "test": test.take(shown),
        "novel": test.take(~shown),
    }
    for name, part in chosen.items():
        if len(part) == 0:
            expected = f"images in the {name} part for {by} from {low:g} to {high:g}"
            raise input_error("viewpoint_split", expected, "none", "Choose another range.")
    return Splits(**chosen)


def _third(known: Tensor) -> float:
    """The first value above the lowest third."""
    return float(known[max(1, len(known) // 3)]) if len(known) > 1 else torch.inf


def _with_view(part: Examples, by: str) -> ImageSet:
    views = part.views if isinstance(part, ImageSet) else {}
    if not isinstance(part, ImageSet) or by not in views:
        got = f"only {', '.join(views)}" if views else "a set without views"
        raise input_error("viewpoint_split", f"the {by} of each image", got, "Use a set that knows it.")
    return part
