"""Who may take the backend `triton`: tensors on a GPU, or on a CPU where Triton's interpreter runs the kernels."""

from __future__ import annotations

import importlib.util
import os

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import pad

from torchcaps._core.precision import HALVES, autocasting
from torchcaps.votes.algebra import Votes
from torchcaps.votes.engine import Plan, Refusal, plan_of_votes
from torchcaps.votes.extended import added_columns, children_of, extended, extended_beside
from torchcaps.votes.job import Job, Part

LARGEST = 64  # numbers of a row of a pose, or of a vote: larger matrices do not fit the registers
PAIR_NUMBERS = 4  # of a pair of child and parent, that are in memory at once
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def serves(device: torch.device) -> bool:
    """Do kernels run on this device: a GPU, or a CPU where Triton's interpreter runs them?"""
    return device.type == "cuda" or (device.type == "cpu" and os.environ.get("TRITON_INTERPRET") == "1")


def is_installed() -> bool:
    """Is Triton there, and not turned off by TORCHCAPS_TRITON=0?"""
    return os.environ.get("TORCHCAPS_TRITON") != "0" and importlib.util.find_spec("triton") is not None


class Triton:
    """Votes of matrices for each pair on a GPU, or of shared ones where a routing asks for squares."""

    name = "triton"

    def plan(self, job: Job) -> Plan | Refusal:
        poses = job.gathered.children.poses
        form = job.linear(half=True)
        if isinstance(form, str):
            return Refusal(form)
        if job.wants == "votes":
            return Refusal("the routing asks for votes")
        if not serves(poses.device):
            return Refusal(f"it computes on GPUs, not on {poses.device.type}")
        if os.environ.get("TORCHCAPS_TRITON") == "0":
            return Refusal("TORCHCAPS_TRITON is 0")
        if importlib.util.find_spec("triton") is None:
            return Refusal("triton is not installed (torchcaps[gpu])")
        if not all(type(tensor) in (Tensor, Parameter) for tensor in (*job.tensors, *form.weights)):
            return Refusal("tensors have a class of their own")
        if any(tensor.device != poses.device or tensor.dtype not in DTYPES for tensor in job.tensors):
            return Refusal("tensors are of several devices, or not of floating-point numbers")
        if not form.pairwise and job.wants == "sums" and job.gathered.offsets is None:
            return Refusal("products with shared matrices cost less")
        matrices = form.matrices if form.pairwise else form.matrices.unsqueeze(0)  # [t j k c]
        inner, columns = matrices.shape[-2:]
        added = added_columns(job, columns)
        rows = job.transform.out_dim // columns
        if max(rows, inner + len(added), columns) > LARGEST:
            return Refusal(f"poses of {rows} x {inner} or votes of {columns} columns are larger than {LARGEST}")
        beside = (extended_beside(each, len(added)) for each in form.weights[1:])
        weights = (extended(matrices, added, form.bias), *beside)
        moved = children_of(job, added, columns).poses.flatten(1, 2) if added else None

        def make(part: Part, given: tuple[Tensor, ...]) -> Votes:
            from torchcaps.votes.triton.products import TritonProducts

            found = form.poses(part.poses, *given[1:])
            return Votes(TritonProducts(pad(found, (0, 1), value=1) if form.bias else found, given[0], rows))

        plan = plan_of_votes(self.name, job, weights, PAIR_NUMBERS, make, moved)
        plan.cast = poses.dtype if poses.dtype in HALVES and not autocasting(poses.device.type) else None
        told = getattr(job.routing, "why_not_fused", None)
        plan.unfused = told() if told is not None else None
        if job.gathered.windows is not None and not job.gathered.over_parents.local:
            from torchcaps.votes.triton.grid import GridInKernels

            plan.competition = GridInKernels(job.gathered.windows)
        return plan
