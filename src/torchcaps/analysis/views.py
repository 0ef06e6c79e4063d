"""One object from all viewpoints, and which of them are novel."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torchcaps._core.errors import check_choice, input_error
from torchcaps.data import Examples, ImageSet, Splits, viewpoint_split


@dataclass(frozen=True)
class ViewGrid:
    """Images [n m c h w] of one object: n elevations, m azimuths (degrees). seen, familiar [n m].

    seen: whether there is an image from this viewpoint. familiar: whether a split by viewpoint trains on it.
    """

    name: str
    elevations: tuple[float, ...]
    azimuths: tuple[float, ...]
    images: Tensor
    seen: Tensor
    familiar: Tensor


def view_grid(data: Examples, kind: str | None = None, instance: int | None = None, by: str = "azimuth") -> ViewGrid:
    """The views of one instance of a class (default: the first ones), and which of them a split trains on.

    If there are several images of a viewpoint, under different lighting, the first is taken.
    """
    views = data.views if isinstance(data, ImageSet) else {}
    if not isinstance(data, ImageSet) or not {"instance", "elevation", "azimuth"} <= views.keys():
        got = f"{', '.join(views)} only" if views else "data without views"
        raise input_error("view_grid", "the instance, elevation and azimuth of each image", got, "Use data like toys.")
    kind = data.classes[0] if kind is None else kind
    check_choice("view_grid", "class", kind, data.classes)
    mine = data.take(data.labels == data.classes.index(kind))
    there = mine.views["instance"].unique().tolist()
    instance = there[0] if instance is None else instance
    check_choice("view_grid", "instance", instance, there)
    mine = mine.take(mine.views["instance"] == instance)
    known = set(viewpoint_split(Splits(mine, mine, mine), by).test.names)
    rows, row = mine.views["elevation"].unique(return_inverse=True)
    columns, column = mine.views["azimuth"].unique(return_inverse=True)
    images = torch.zeros(len(rows), len(columns), *mine.image_shape)
    seen = torch.zeros(len(rows), len(columns), dtype=torch.bool)
    familiar = seen.clone()
    for index in reversed(range(len(mine))):
        place = (row[index], column[index])
        images[place] = mine.images[index].float() / 255
        seen[place] = True
        familiar[place] = mine.names[index] in known
    return ViewGrid(f"{kind} {instance}", tuple(rows.tolist()), tuple(columns.tolist()), images, seen, familiar)
