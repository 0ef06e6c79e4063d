"""The backend `native`: votes that are made in registers, read at once and forgotten, or never made.

Votes of every pair of child and parent are cheap to make and dear to keep. `votes.c` makes them anew at every reading,
a few numbers for a block of examples at a time, and never writes one to memory. Where children share matrices and a
routing asks for sums alone, there is nothing to make: see `shared`.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable
from typing import Any

from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import pad

from torchcaps.votes.algebra import Votes
from torchcaps.votes.engine import Plan, Refusal, may_keep
from torchcaps.votes.extended import added_columns, children_of, extended, extended_beside
from torchcaps.votes.job import Job, Part
from torchcaps.votes.native.blocks import Blocks, InBlocks
from torchcaps.votes.native.build import Geometry, library, widest
from torchcaps.votes.native.products import NativeProducts
from torchcaps.votes.native.shared import SharedInBlocks
from torchcaps.votes.products import Products
from torchcaps.votes.windows import Windows

FEWEST = 8  # examples, or windows of them: with fewer, most of each vector would be padding
# Numbers for each pair of child and parent:
TILE_NUMBERS = {False: 3, True: 2}  # those of a tile that should be in the cache together; True: with windows
KEPT_NUMBERS = 2  # those that autograd keeps of an iteration
ANY = Geometry(1, 1, 1)  # what does not depend on the size of poses is in every library


class Native:
    """Votes of matrices for each pair, or for each parent, on a CPU with a C compiler."""

    name = "native"

    def plan(self, job: Job) -> Plan | Refusal:
        form = job.linear()
        if isinstance(form, str):
            return Refusal(form)
        if job.wants == "votes":
            return Refusal("the routing asks for votes")
        poses = job.gathered.children.poses
        if any(tensor.device.type != "cpu" for tensor in job.tensors):
            return Refusal(f"it computes on CPUs, not on {poses.device.type}")
        if not all(type(tensor) in (Tensor, Parameter) for tensor in (*job.tensors, *form.weights)):
            return Refusal("tensors have a class of their own")
        if any(tensor.dtype != poses.dtype for tensor in job.tensors):
            return Refusal("tensors are of several dtypes")
        examples, windows = len(poses), job.windows
        if examples * windows < FEWEST:
            return Refusal(f"{examples * windows} examples or windows are fewer than {FEWEST}")
        shared = not form.pairwise and job.wants == "sums" and job.gathered.offsets is None
        matrices = form.matrices if form.pairwise or shared else form.matrices.unsqueeze(0)  # [t j k c], or [j e d]
        inner, columns = matrices.shape[-2:]
        added = added_columns(job, columns)
        geometry = ANY if shared else Geometry(job.transform.out_dim // columns, inner + len(added), columns)
        numbers = TILE_NUMBERS[windows > 1]
        row_bytes = job.pairs * windows * poses.element_size() * numbers
        one_by_one = row_bytes > job.budget and windows > 1 and job.gathered.over_parents.local
        if one_by_one:  # windows that route for themselves, of an example that is too large for a tile
            examples, windows, row_bytes = examples * windows, 1, row_bytes // windows
        lanes = widest(poses.dtype)
        size = tile_of(examples, windows, job.budget // row_bytes, lanes)
        functions = library(geometry, poses.dtype, lanes)
        if isinstance(functions, str):
            return Refusal(functions)
        batch = _windows(job) if one_by_one else children_of(job, added, columns)
        beside = (extended_beside(each, len(added)) for each in form.weights[1:])
        weights = (extended(matrices, added, form.bias), *beside)
        plan = NativePlan(self.name, job, batch, weights, size, row_bytes)
        plan.library, plan.geometry, plan.lanes, plan.form, plan.shared = functions, geometry, lanes, form, shared
        plan.windows = None if one_by_one else job.gathered.windows
        plan.leading = job.gathered.leading if one_by_one else (examples,)
        updates = 1 if job.last else job.routing.iterations
        plan.keep = may_keep(examples * row_bytes // numbers * KEPT_NUMBERS * updates)
        return plan


def tile_of(examples: int, windows: int, most: int, lanes: int) -> int:
    """How many examples a tile has: at most so many, if that fills lanes.

    With fewer lanes for fewer examples, torch would compute what does not fill its own vectors by other instructions,
    and the last bit of an example depend on its place.
    """
    if windows == 1 or min(examples, most) >= lanes:
        return max(lanes, most - most % lanes)
    return 2 ** int(math.log2(max(1, most)))


def _windows(job: Job) -> Part:
    """Windows as examples of their own, with one place."""
    gathered = job.gathered
    parts = (gathered.poses, gathered.activations, gathered.mask, job.couplings, job.kept)
    axes = len(gathered.leading)
    poses, activations, *others = (None if part is None else part.flatten(0, axes - 1) for part in parts)
    assert poses is not None
    assert activations is not None
    return Part(poses.unsqueeze(1), activations.unsqueeze(1), *others)


class NativePlan(Plan):
    library: ctypes.CDLL
    geometry: Geometry
    lanes: int
    form: Any
    shared: bool  # votes of matrices that children share, which are never made
    windows: Windows | None

    def route(self, part: Part, weights: tuple[Tensor, ...], routing: Any) -> Iterable[Tensor]:
        blocks = Blocks(len(part.poses), self.windows, self.lanes)
        poses = self.form.poses(blocks.gather(part.poses), *weights[1:])
        if self.form.bias:
            poses = pad(poses, (0, 1), value=1)
        products: Products
        if self.shared:
            products = SharedInBlocks(self.library, poses, weights[0])
        else:
            products = NativeProducts(self.library, self.geometry, poses, weights[0])
        competition = InBlocks(self.library, blocks, self.job.gathered.over_parents, products.shape[-3])
        beside = {
            name: blocks.arrange(value)
            for name, value in (("mask", part.mask), ("couplings", part.couplings), ("kept", part.kept))
            if value is not None
        }
        routed = routing(Votes(products), blocks.gather(part.activations), **beside, over_parents=competition)
        return (blocks.restore(each) for each in routed)
