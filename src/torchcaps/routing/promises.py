"""The part of the contract that needs whole layers: class attributes are true, and all backends agree."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor

from torchcaps._core.types import Capsules
from torchcaps.routing.base import Routing
from torchcaps.votes import backends as _backends  # noqa: F401  (the engine knows them from here on)
from torchcaps.votes import engine
from torchcaps.votes.job import Gathered, Job
from torchcaps.votes.transforms import VoteTransform, make_votes
from torchcaps.votes.windows import windows_of

EXAMPLES = 9  # more than one SIMD vector
TILE = 2000  # bytes: several tiles


def false_word(routing: Routing, votes: Tensor, activations: Tensor) -> str | None:
    """An error message for a class attribute of the routing that does not match its behavior; None if all match."""
    if not routing.translation_equivariant:
        return None
    plain = copy.copy(routing)
    plain.translation_equivariant = False
    found = (each(votes + 0.7, activations) for each in (routing, plain))
    same = all(torch.allclose(left, right, rtol=1e-7, atol=1e-9) for left, right in zip(*found, strict=True))
    return (
        None
        if same
        else "translation_equivariant is True, so moving the origin of votes must change nothing but the poses' place"
    )


def layers_of(routing: Routing, generator: torch.Generator) -> dict[str, tuple[Gathered, VoteTransform]]:
    """Children and transforms of dense layers, with full and with shared matrices, and of a grid."""
    children, parents, dim = routing.in_capsules or 8, routing.out_capsules or 3, routing.out_dim or 4

    def capsules(*shape: int) -> Capsules:
        poses = torch.randn(*shape, 4, generator=generator, dtype=torch.float64).requires_grad_()
        return Capsules(poses, torch.rand(shape, generator=generator, dtype=torch.float64).add(0.1).requires_grad_())

    def transform(name: str) -> VoteTransform:
        made = make_votes(name, children, parents, 4, dim).double()
        with torch.no_grad():
            for parameter in made.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / 2)
        return made

    found = {
        "a dense layer": (Gathered(capsules(EXAMPLES, children)), transform("full")),
        "a dense layer with shared matrices": (Gathered(capsules(EXAMPLES, children)), transform("shared")),
    }
    if children % 4 == 0:
        windows = windows_of((3, 3), (2, 2), (1, 1), (0, 0))
        grid = Gathered(capsules(EXAMPLES, 3, 3, children // 4), windows, across=True)
        found["a grid"] = grid, transform("full")
    return found


def disagreement(routing: Routing, generator: torch.Generator) -> str | None:
    """An error message for a backend whose values or gradients differ from plain torch's; None if all agree."""
    for name, (gathered, transform) in layers_of(routing, generator).items():
        expected = _outcome(engine.route(Job(gathered, transform, routing, None, 0), 3), gathered, transform, routing)
        for backend in engine.BACKENDS:
            results = engine.route_by(Job(gathered, transform, routing, None, TILE), backend)
            if results is None:
                continue
            mine = _outcome(results, gathered, transform, routing)
            for left, right in zip(mine, expected, strict=True):
                if not torch.allclose(left, right, rtol=1e-6, atol=1e-9):
                    worst = float((left - right).abs().max())
                    return (
                        f"in {name}, the backend {backend.name} must give what torch alone gives (off by {worst:.1g})"
                    )
    return None


def _outcome(
    results: tuple[Tensor, ...], gathered: Gathered, transform: VoteTransform, routing: Routing
) -> list[Tensor]:
    """The results and the gradients of all inputs and parameters."""
    leaves = [*gathered.children[:2], *transform.parameters(), *routing.parameters()]
    ramps = (torch.linspace(-1, 1, math.prod(part.shape), dtype=part.dtype).view_as(part) for part in results)
    loss = sum(((part * ramp).sum() for part, ramp in zip(results, ramps, strict=True)), torch.zeros(()))
    found = torch.autograd.grad(loss, [leaf for leaf in leaves if leaf.requires_grad], allow_unused=True)
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    return [*results, *(torch.zeros_like(a) if g is None else g for a, g in zip(wanted, found, strict=True))]
