"""The engine: one place that chooses how votes are made, and one that runs it, a tile of the batch at a time.

A `Backend` plans a `Job`, or refuses it in words. `choose` takes the first plan; `route` runs it. A backend is one file
and one more name in `BACKENDS`.
"""

from __future__ import annotations

import copy
import logging
import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from torchcaps._core.types import Routed, Step
from torchcaps.votes.algebra import AnotherBackendError, Votes
from torchcaps.votes.competition import Competition, OverPairs
from torchcaps.votes.job import WANTED, Job, Part
from torchcaps.votes.tiling import tiled

LOGGER = logging.getLogger("torchcaps")
LOG = "TORCHCAPS_LOG"


@dataclass(frozen=True)
class Refusal:
    """Why a backend does not take a job."""

    reason: str


@dataclass
class Plan:
    """How a job is done. A backend's own plan says how a tile is routed."""

    backend: str
    job: Job
    batch: Part  # what is cut into tiles
    weights: tuple[Tensor, ...]  # made once for all tiles
    rows: int  # of the batch in a tile
    row_bytes: int  # what a row takes of the budget
    keep: bool = False  # may autograd keep what it needs of all tiles, instead of making them again?
    leading: tuple[int, ...] = ()  # the axes that rows of the batch stand for
    refusals: dict[str, str] = field(default_factory=dict)  # of the backends that were asked before
    unfused: str | None = (
        None  # why formulas on parents are operations of torch, where the backend has kernels for them
    )

    @property
    def tiles(self) -> int:
        return max(1, math.ceil(len(self.batch.poses) / self.rows))

    @property
    def bytes(self) -> int:
        """What a tile takes, about."""
        return min(self.rows, len(self.batch.poses)) * self.row_bytes

    def route(self, part: Part, weights: tuple[Tensor, ...], routing: Any) -> Iterable[Tensor]:
        """Poses, activations and couplings of a tile's parents, rows as in the batch; made when they are asked for."""
        raise NotImplementedError

    def __str__(self) -> str:
        tiles = "one tile" if self.tiles == 1 else f"{self.tiles} tiles"
        said = [f"{self.backend}: {tiles} of {self.bytes / 2**20:.1f} MB"]
        said += [] if self.unfused is None else [f"clusters by torch: {self.unfused}"]
        said += [f"not {name}: {reason}" for name, reason in self.refusals.items()]
        return "; ".join(said)


@runtime_checkable
class Backend(Protocol):
    """A way to make votes."""

    name: str

    def plan(self, job: Job) -> Plan | Refusal: ...


class PlanOfVotes(Plan):
    """A plan that gives votes of gathered children to the routing.

    make: votes of a tile. cast: the dtype of results; None: as they are. competition: in place of the layer's own.
    """

    make: Callable[[Part, tuple[Tensor, ...]], Votes | Tensor]
    cast: torch.dtype | None = None
    competition: Competition | None = None

    def route(self, part: Part, weights: tuple[Tensor, ...], routing: Any) -> Iterable[Tensor]:
        usual = self.competition or self.job.gathered.over_parents
        over_parents = usual if part.pairs is None else OverPairs(part.pairs)
        beside = {"mask": part.mask, "couplings": part.couplings, "over_parents": over_parents}
        if part.kept is not None:
            beside["kept"] = part.kept
        found: Routed = routing(self.make(part, weights), part.activations, **beside)
        return found if self.cast is None else (each.to(self.cast) for each in found)


def plan_of_votes(
    name: str,
    job: Job,
    weights: tuple[Tensor, ...],
    numbers: int,
    make: Callable[[Part, tuple[Tensor, ...]], Votes | Tensor],
    poses: Tensor | None = None,
) -> PlanOfVotes:
    """A plan for gathered children. numbers: what a pair of child and parent takes of a tile. poses: instead of theirs.

    Windows that route for themselves are rows of their own.
    """
    gathered = job.gathered
    axes = len(gathered.leading) if gathered.over_parents.local else 1
    parts = (
        gathered.poses if poses is None else poses,
        gathered.activations,
        gathered.mask,
        job.couplings,
        job.kept,
        gathered.pairs,
    )
    rows = math.prod(gathered.leading[:axes])
    batch = Part(*(None if part is None else part.flatten(0, axes - 1) for part in parts))  # type: ignore[arg-type]
    each = job.pairs * (1 if axes > 1 else job.windows) * gathered.poses.element_size()
    size = rows if job.plain else max(1, job.budget // (each * numbers))
    plan = PlanOfVotes(name, job, batch, weights, max(size, 1), each * numbers, leading=gathered.leading[:axes])
    plan.make = make
    return plan


KEPT_BYTES = 128 * 2**20  # of what autograd may keep of a layer's tiles


def may_keep(count: int) -> bool:
    """May autograd keep so many bytes of a layer, so that its tiles need not be made again?"""
    return count <= KEPT_BYTES


BACKENDS: list[Backend] = []


def choose(job: Job) -> Plan:
    """The plan of the first backend that does not refuse."""
    refusals: dict[str, str] = {}
    for backend in BACKENDS:
        found = backend.plan(job)
        if isinstance(found, Plan):
            found.refusals = refusals
            return found
        refusals[backend.name] = found.reason
    raise RuntimeError(f"torchcaps: no backend takes these votes: {refusals}")


def route(job: Job, count: int, said: set[str] | None = None) -> tuple[Tensor, ...]:
    """The first `count` of poses, activations and couplings of all parents, [b *out ...]. said: what was logged."""
    if job.plain:
        return _alone(job)[:count]
    while True:
        plan = choose(job)
        before = torch.get_rng_state()
        try:
            results = _run(plan, count)
        except AnotherBackendError as another:  # the routing asks for more than it ever did: from now on it gets it
            WANTED[job.routing] = another.wants
            torch.set_rng_state(before)
            continue
        if said is not None:
            _say(plan, said)
        return tuple(result.unflatten(0, plan.leading) for result in results)


def route_by(job: Job, backend: Backend) -> tuple[Tensor, ...] | None:
    """Poses, activations and couplings by this very backend; None where it does not take the job."""
    plan = backend.plan(job)
    if isinstance(plan, Refusal):
        return None
    try:
        results = _run(plan, 3)
    except AnotherBackendError:
        return None
    return tuple(result.unflatten(0, plan.leading) for result in results)


def planned(job: Job) -> Plan:
    """The plan of a job that is not run: random numbers stay as they are."""
    with torch.random.fork_rng(devices=[]):
        return choose(job)


def trace(job: Job) -> list[Step]:
    """The routing's `Routed` and objective after every iteration, from all votes at once."""
    gathered, votes = job.gathered, job.vote(job.gathered.poses)
    steps: list[Step] = job.routing.trace(votes, gathered.activations, couplings=job.couplings, **gathered.beside)
    return steps


def _alone(job: Job) -> tuple[Tensor, ...]:
    """All at once, by torch's own operations: compilers, transforms of functions and others look into them."""
    gathered = job.gathered
    votes = job.vote(gathered.poses)
    return tuple(job.routing(votes, gathered.activations, couplings=job.couplings, **gathered.beside))


def _run(plan: Plan, count: int) -> tuple[Tensor, ...]:
    job, weights = plan.job, plan.weights
    routing = job.routing
    learned = dict(routing.named_parameters())

    def work(part: list[Tensor | None], given: list[Tensor]) -> tuple[Tensor, ...]:
        ready = tuple(given[: len(weights)])
        own = with_parameters(routing, dict(zip(learned, given[len(weights) :], strict=True)))
        return tuple(islice(plan.route(Part(*part), ready, own), count))  # type: ignore[arg-type]

    return tiled(work, list(plan.batch), [*weights, *learned.values()], plan.rows, job.has_hooks, plan.keep)


def with_parameters(module: Any, given: dict[str, Tensor], prefix: str = "") -> Any:
    """The module with other tensors for its parameters: a shallow copy, as other threads may be using the module."""
    own = {name: given[prefix + name] for name, old in module._parameters.items() if old is not None}
    inner = {name: part and with_parameters(part, given, f"{prefix}{name}.") for name, part in module._modules.items()}
    same = all(module._parameters[name] is tensor for name, tensor in own.items())
    if same and all(module._modules[name] is part for name, part in inner.items()):
        return module
    other = copy.copy(module)
    other._parameters = {**module._parameters, **own}
    other._modules = inner
    return other


def _say(plan: Plan, said: set[str]) -> None:
    """Log a plan, once for each that a layer takes."""
    if not (LOGGER.isEnabledFor(logging.INFO) or os.environ.get(LOG) == "1") or plan.backend in said:
        return
    said.add(plan.backend)
    sizes = plan.job.transform.extra_repr()
    if os.environ.get(LOG) == "1" and not LOGGER.handlers and not logging.getLogger().handlers:
        LOGGER.addHandler(logging.StreamHandler())
        LOGGER.setLevel(logging.INFO)
    LOGGER.info("votes %s by %s", sizes, plan)
