"""Stores the gradient of votes as low-rank factors, collected during the backward pass and multiplied once.

Every iteration of a routing reads all votes, so autograd would compute a gradient as large as the votes for each
reading and add them. But each gradient is a product of a number for every pair, x_ij, and a vector for every parent,
y_j. `GradientFactors` collects them, and the sum over iterations is one matrix product. For squared distances from a
mean m_j, the gradient also contains the deviations of the votes: (u_j|i - m_j) * x_ij y_j.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Entry(NamedTuple):
    """One term of the gradient of votes: x (plain + scaled (u - means))."""

    pairs: Tensor  # x, [*b i j]
    plain: Tensor | None  # y of x y, [*b j d]
    scaled: Tensor | None  # y of (u - m) x y, [*b j d]
    means: Tensor | None  # m, [*b j d]; None: zero


PASSES = 8  # the maximum number of concurrent backward passes


class GradientFactors:
    """Collects the terms of the gradient of votes."""

    def __init__(self) -> None:
        self._entries: dict[int, list[Entry]] = {}  # by backward pass, as several threads may run them

    def add(
        self, pairs: Tensor, *, plain: Tensor | None = None, scaled: Tensor | None = None, means: Tensor | None = None
    ) -> None:
        """Add a term to the current backward pass; see `Entry`."""
        task = torch._C._current_graph_task_id()
        self._entries.setdefault(task, []).append(Entry(pairs, plain, scaled, means))
        while len(self._entries) > PASSES:  # left by passes that needed no gradient of votes
            self._entries.pop(next(iter(self._entries)))

    def take(self) -> list[Entry]:
        """Return and clear the entries of this backward pass."""
        return self._entries.pop(torch._C._current_graph_task_id(), [])


class MergedFactors(NamedTuple):
    """Merged entries: the gradient of votes is the sum of x (plain + scaled (u - pivot)) over all columns."""

    pairs: list[Tensor]  # x, [*b i j]
    plain: list[list[Tensor]]  # to be added up, [*b j d] each
    scaled: list[list[Tensor]]
    pivot: Tensor | None  # [*b j d]; None: zero, or nothing is scaled


class MergedFactor(NamedTuple):
    """Merged entries with the same x and the same means: x (plain + scaled (u - means))."""

    pairs: Tensor  # x, [*b i j]
    plain: Tensor | None  # [*b j d] each
    scaled: Tensor | None
    means: Tensor | None


def _identity(tensor: Tensor | None) -> object:
    """The same for two tensors only if they are the same numbers in memory; also where memory has no address."""
    return tensor if tensor is None else (tensor.untyped_storage()._cdata, tensor.storage_offset(), tensor.stride())


def separate(entries: list[Entry]) -> list[MergedFactor]:
    """A column for each x and its means: nothing is computed, unless entries have both in common."""
    found: dict[object, MergedFactor] = {}
    for entry in entries:
        key = (_identity(entry.pairs), _identity(entry.means))
        known = found.get(key, MergedFactor(entry.pairs, None, None, entry.means))
        found[key] = MergedFactor(
            entry.pairs, _added(known.plain, entry.plain), _added(known.scaled, entry.scaled), entry.means
        )
    return list(found.values())


def _added(left: Tensor | None, right: Tensor | None) -> Tensor | None:
    return right if left is None else left if right is None else left + right


def merged(entries: list[Entry]) -> MergedFactors:
    """The same couplings weigh votes and squares: one column for both; all squares around one pivot."""
    pivot = next((entry.means for entry in entries if entry.means is not None), None)
    found = MergedFactors([], [], [], pivot)
    places: dict[object, int] = {}
    for entry in entries:
        place = places.setdefault(_identity(entry.pairs), len(found.pairs))
        if place == len(found.pairs):
            found.pairs.append(entry.pairs)
            found.plain.append([])
            found.scaled.append([])
        if entry.plain is not None:
            found.plain[place].append(entry.plain)
        if entry.scaled is not None:
            found.scaled[place].append(entry.scaled)
            if pivot is not entry.means and pivot is not None:  # (u - m) = (u - pivot) + (pivot - m)
                found.plain[place].append(entry.scaled * (pivot if entry.means is None else pivot - entry.means))
    return found


def refuse_second_derivatives() -> None:
    """Called in backward passes that autograd cannot look into."""
    if torch.is_grad_enabled():
        raise RuntimeError(
            "torchcaps: gradients of gradients (create_graph=True) need votes that are kept. Make the layer with "
            "tile_bytes=0, or set TORCHCAPS_TILE_BYTES=0."
        )
