"""Class capsules: one layer from a grid to the classes, with transforms shared over positions.

Hinton, Sabour, Frosst 2018, the last layer of the smallNORB network, with coordinate addition.
"""

from __future__ import annotations

from typing import Any

from torchcaps._core.errors import check_choice, input_error
from torchcaps._core.types import GRIDS, Capsules, check_capsules
from torchcaps.layers.base import RoutedLayer
from torchcaps.layers.coordinates import check_coordinates, coordinates_of, coordinates_on
from torchcaps.routing import Routing
from torchcaps.votes.job import Gathered
from torchcaps.votes.transforms import VoteTransform


class ClassCapsules(RoutedLayer):
    """Children on a grid [b h w i e] (or [b t i e], [b z h w i e]) to classes [b j d]; the couplings are [b (h w i) j].

    in_capsules, in_dim: the types of children at one position and the size of their poses. out_capsules, out_dim: the
    number of classes and the size of their poses. dimensions: the number of axes of the grid. coordinates: "column"
    (the paper), "first" (the official code; vectors) or None; coordinate_scale is the width of the grid in these
    coordinates. Further arguments are those of `DenseCapsules`; expected_children is 36 positions' worth unless given.
    """

    def __init__(
        self, in_capsules: int, out_capsules: int, in_dim: int, out_dim: int, *,
        votes: str | VoteTransform = "matrix", routing: str | Routing = "em",
        coordinates: str | None = "column", coordinate_scale: float = 1.0, dimensions: int = 2, **options: Any,
    ) -> None:  # fmt: skip
        check_choice("ClassCapsules", "dimensions", dimensions, list(GRIDS))
        if coordinates is not None:
            check_coordinates("ClassCapsules", coordinates, out_dim, dimensions)
        sizes = (in_capsules, out_capsules, in_dim, out_dim)
        options.setdefault("expected_children", 36 * in_capsules)
        super().__init__(*sizes, votes=votes, routing=routing, any_grid=True, **options)
        self.dimensions = dimensions
        self.coordinates = coordinates
        self.coordinate_scale = coordinate_scale

    def _check_skip(self, sizes: dict[str, Any]) -> None:
        remedy = "Leave skip out, or use DenseCapsules."
        raise input_error("ClassCapsules", "no skip: classes are in no child's place", "skip=True", remedy)

    def _check(self, children: Capsules) -> None:
        axes = f"b {GRIDS[self.dimensions]} i e"
        check_capsules("ClassCapsules", children, axes, self.transform.in_capsules, self.transform.in_dim)

    def _gather(self, children: Capsules) -> Gathered:
        grid, offsets, known = tuple(children.poses.shape[1:-2]), None, None
        if self.coordinates is not None:
            where = (grid, self.transform.out_dim, self.coordinates, self.coordinate_scale)
            known = coordinates_of(*where)
            offsets = coordinates_on(*where, children.poses.device, children.poses.dtype)
        return Gathered(children, shared=True, offsets=offsets, known_offsets=known)
