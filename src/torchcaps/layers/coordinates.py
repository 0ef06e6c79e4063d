"""Coordinates of children on a grid, added to their votes: Hinton, Sabour, Frosst 2018."""

from __future__ import annotations

import functools
import math

import torch
from jaxtyping import Float
from torch import Tensor

from torchcaps._core.errors import check_choice, input_error
from torchcaps.votes.layout import eager

COORDINATE_PLACES = ("column", "first")


def check_coordinates(owner: str, place: str, dim: int, axes: int) -> None:
    """Refuse a place that poses of `dim` numbers do not have."""
    check_choice(owner, "coordinates", place, COORDINATE_PLACES)
    side = math.isqrt(dim)
    if place == "column" and (side**2 != dim or side < axes):
        expected = f"square pose matrices with at least {axes} rows for coordinates"
        raise input_error(owner, expected, f"poses of {dim} numbers", 'Put the coordinates "first".')
    if dim < axes:
        raise input_error(owner, f"at least {axes} numbers in a pose for coordinates", dim, "Use larger poses.")


def add_coordinates(
    votes: Float[Tensor, "b *grid i j d"], place: str = "column", scale: float = 1.0
) -> Float[Tensor, "b *grid i j d"]:
    """Coordinate addition (Hinton 2018): tell votes from a grid where their child stands.

    votes: [b *grid i j d]. place: "column" or "first", where in a vote. scale: the width of the grid. Each axis runs
    from -scale/2 to scale/2. The row is added to one element of the vote and the column to the next: "column" takes the
    first elements of the matrix's right-hand column (the paper), "first" the vote's first elements (the official code;
    for vectors).
    """
    grid = tuple(votes.shape[1:-3])
    dim = votes.shape[-1]
    check_coordinates("add_coordinates", place, dim, len(grid))
    return votes + coordinates_of(grid, dim, place, scale).to(votes)[..., None, None, :]


def coordinates_of(grid: tuple[int, ...], dim: int, place: str, scale: float) -> Float[Tensor, "*grid d"]:
    """What coordinate addition adds to the votes of the children at each place of a grid. Not to be written to."""
    return _cached(grid, dim, place, scale) if eager() else _made(grid, dim, place, scale)


def _made(grid: tuple[int, ...], dim: int, place: str, scale: float) -> Tensor:
    side = math.isqrt(dim)
    step, offset = (side, side - 1) if place == "column" else (1, 0)
    with torch.inference_mode(False):
        shift = torch.zeros(*grid, dim, dtype=torch.float64)
        for axis, size in enumerate(grid):
            place_of_child = ((torch.arange(size, dtype=torch.float64) + 0.5) / size - 0.5) * scale
            shift[..., offset + axis * step] = place_of_child.view(
                *(size if a == axis else 1 for a in range(len(grid)))
            )
    return shift


def coordinates_on(
    grid: tuple[int, ...], dim: int, place: str, scale: float, device: torch.device, dtype: torch.dtype
) -> Float[Tensor, "*grid d"]:
    """`coordinates_of` on a device, copied there once."""
    given = (grid, dim, place, scale, device, dtype)
    return _cached_on(*given) if eager() else _made(*given[:4]).to(device, dtype)


def _made_on(
    grid: tuple[int, ...], dim: int, place: str, scale: float, device: torch.device, dtype: torch.dtype
) -> Tensor:
    with torch.inference_mode(False):
        return _cached(grid, dim, place, scale).to(device, dtype)


_cached = functools.lru_cache(maxsize=64)(_made)
_cached_on = functools.lru_cache(maxsize=64)(_made_on)
