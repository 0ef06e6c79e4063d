"""The contract of routings, as a tool for authors of new ones: `check_routing(routing)`."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from torchcaps._core.errors import input_error
from torchcaps._core.types import Routed
from torchcaps.routing.base import Routing
from torchcaps.routing.promises import disagreement, false_word


class ContractError(AssertionError):
    """Raised when a routing violates the contract; the message says how."""


@dataclass
class _Subject:
    """A routing under test, with votes and activations of sizes that suit it."""

    routing: Routing
    generator: torch.Generator

    def votes(
        self, *leading: int, children: int = 6, parents: int = 3, dim: int = 4, dtype: torch.dtype = torch.float64
    ) -> Tensor:
        shape = (
            *leading,
            self.routing.in_capsules or children,
            self.routing.out_capsules or parents,
            self.routing.out_dim or dim,
        )
        return torch.randn(shape, generator=self.generator, dtype=torch.float64).to(dtype)

    def activations(self, votes: Tensor) -> Tensor:
        return torch.rand(votes.shape[:-2], generator=self.generator, dtype=torch.float64).add(0.2).to(votes.dtype)

    def as_dtype(self, dtype: torch.dtype) -> Routing:
        return copy.deepcopy(self.routing).to(dtype)


def _require(holds: bool, sentence: str) -> None:
    if not holds:
        raise ContractError(sentence)


def _same(left: Tensor, right: Tensor) -> bool:
    return torch.allclose(left, right, rtol=1e-8, atol=1e-10)


def _same_parents(left: Routed, right: Routed) -> bool:
    return _same(left.poses, right.poses) and _same(left.activations, right.activations)


def _shapes(subject: _Subject) -> None:
    for leading in ((), (2,), (2, 1), (1, 2, 2)):
        votes = subject.votes(*leading)
        routed = subject.routing(votes, subject.activations(votes))
        *batch, children, parents, dim = votes.shape
        expected = ((*batch, parents, dim), (*batch, parents), (*batch, children, parents))
        got = tuple(tuple(part.shape) for part in routed)
        _require(
            got == expected, f"votes {tuple(votes.shape)} must give poses, activations, couplings {expected}, got {got}"
        )


def _dtype(subject: _Subject) -> None:
    for dtype in (torch.float32, torch.float64):
        routed = subject.as_dtype(dtype)(subject.votes(2, dtype=dtype))
        _require(all(part.dtype == dtype for part in routed), f"votes of {dtype} must give parents of {dtype}")


def _couplings(subject: _Subject) -> None:
    votes = subject.votes(2)
    total = subject.routing(votes, subject.activations(votes)).couplings.sum(-1)
    if subject.routing.normalized:
        _require(_same(total, torch.ones_like(total)), "a child's couplings must sum to one over its parents")
    elif subject.routing.leaky:
        _require(bool((total <= 1 + 1e-9).all()), "a leaky child's couplings must sum to at most one")


def _permutations(subject: _Subject) -> None:
    votes = subject.votes(2)
    activations = subject.activations(votes)
    whole = subject.routing(votes, activations)
    shuffled = subject.routing(votes.roll(1, -3), activations.roll(1, -1))
    _require(_same_parents(whole, shuffled), "the order of the children must not matter")
    shuffled = subject.routing(votes.roll(1, -2), activations)
    expected = Routed(whole.poses.roll(1, -2), whole.activations.roll(1, -1), whole.couplings.roll(1, -1))
    _require(_same_parents(expected, shuffled), "permuting the parents' votes must permute the parents")


def _mask(subject: _Subject) -> None:
    votes = subject.votes(2)
    activations = subject.activations(votes)
    mask = torch.ones(votes.shape[:2], dtype=torch.bool)
    mask[:, -1] = False
    whole = subject.routing(votes, activations, mask=mask)
    _require(bool((whole.couplings[:, -1] == 0).all()), "a masked child's couplings must be exactly zero")
    changed = votes.clone()
    changed[:, -1] = 100.0
    _require(_same_parents(whole, subject.routing(changed, activations, mask=mask)), "a masked child must be inert")
    if subject.routing.in_capsules is None:
        without = subject.routing(votes[:, :-1], activations[:, :-1])
        _require(_same_parents(whole, without), "masking a child (its weight is then zero) must equal leaving it out")


def _activations(subject: _Subject) -> None:
    votes = subject.votes(2)
    activations = subject.activations(votes)
    activations[:, -1] = 0
    whole = subject.routing(votes, activations)
    if not subject.routing.uses_activations:
        other = subject.routing(votes)
        _require(_same_parents(whole, other), "activations must not matter while uses_activations is False")
        return
    changed = votes.clone()
    changed[:, -1] *= -3.0
    _require(_same_parents(whole, subject.routing(changed, activations)), "a child of activation zero must be inert")
    other = subject.routing(votes, activations.square())
    _require(not _same(whole.poses, other.poses), "activations must matter while uses_activations is True")


def _batch(subject: _Subject) -> None:
    votes = subject.votes(3)
    activations = subject.activations(votes)
    together = subject.routing(votes, activations)
    for index in range(3):
        alone = subject.routing(votes[index : index + 1], activations[index : index + 1])
        mine = Routed(*(part[index : index + 1] for part in together))
        _require(_same_parents(mine, alone), "an example must not depend on its batch mates")


def _finite(subject: _Subject) -> None:
    routing = subject.as_dtype(torch.float32)
    full = subject.votes(2, dtype=torch.float32)
    cases = {
        f"of size {scale:g}" if scale else "that are all zero": scale * full
        for scale in (0.0, 1e-30, 1e-8, 1.0, 3.0, 10.0, 30.0, 1e4, 1e10)
    }
    cases["all identical"] = full[:, :1, :1].expand_as(full).clone()
    if routing.in_capsules is None:
        cases["of one child"] = full[:, :1]
    if routing.out_capsules is None:
        cases["for one parent"] = full[:, :, :1]
    for training in (False, True):
        routing.train(training)
        for name, case in cases.items():
            for activation in (0.0, 1.0):
                votes = case.clone().requires_grad_()
                activations = torch.full(votes.shape[:-2], activation, requires_grad=True)
                routed = routing(votes, activations)
                _require(all(bool(part.isfinite().all()) for part in routed), f"votes {name} must give finite parents")
                (routed.poses.sum() + routed.activations.sum()).backward()
                gradients = [part.grad for part in (votes, activations, *routing.parameters()) if part.grad is not None]
                finite = all(bool(gradient.isfinite().all()) for gradient in gradients)
                _require(finite, f"votes {name} must give finite gradients")
                routing.zero_grad()


def _gradients(subject: _Subject) -> None:
    votes = subject.votes(1, children=4, parents=2, dim=3).requires_grad_()
    activations = subject.activations(votes).requires_grad_()
    routing = subject.routing
    if routing.gradients == "all":
        right = torch.autograd.gradcheck(lambda v, a: tuple(routing(v, a)), (votes, activations), raise_exception=False)
        _require(right, "gradients must equal finite differences in float64")
    else:
        routed = routing(votes, activations)
        _require(not routed.couplings.requires_grad, 'gradients="last" must take the couplings as constants')


def _trace(subject: _Subject) -> None:
    # Votes far wider than any variance floor and many children, or the floor lifts the objective a little.
    votes = 10 * subject.votes(4, children=40)
    activations = subject.activations(votes)
    steps = subject.routing.trace(votes, activations)
    _require(len(steps) == subject.routing.iterations, "a trace must have one step for each iteration")
    routed = subject.routing(votes, activations)
    _require(all(map(_same, steps[-1].routed, routed)), "a trace must end with what a call gives")
    for before, after in pairwise(steps):
        if before.objective is not None and after.objective is not None:
            allowed = before.objective + 1e-6 * before.objective.abs()
            _require(bool((after.objective <= allowed).all()), "the objective must never rise")


def _compiled(subject: _Subject) -> None:
    votes = subject.votes(2, dtype=torch.float32)
    activations = subject.activations(votes)
    routing = subject.as_dtype(torch.float32)
    torch.compiler.reset()
    compiled = torch.compile(routing, fullgraph=True)(votes, activations)
    close = all(
        torch.allclose(mine, other, rtol=1e-4, atol=1e-5)
        for mine, other in zip(routing(votes, activations), compiled, strict=True)
    )
    _require(close, "the routing must equal its compiled self")


def _words(subject: _Subject) -> None:
    votes = subject.votes(2)
    sentence = false_word(subject.routing, votes, subject.activations(votes))
    _require(sentence is None, sentence or "")


def _backends(subject: _Subject) -> None:
    sentence = disagreement(subject.routing, subject.generator)
    _require(sentence is None, sentence or "")


_CHECKS: dict[str, Callable[[_Subject], None]] = {
    "shapes": _shapes,
    "dtype": _dtype,
    "couplings": _couplings,
    "permutations": _permutations,
    "mask": _mask,
    "activations": _activations,
    "batch": _batch,
    "finite": _finite,
    "gradients": _gradients,
    "trace": _trace,
    "words": _words,
    "backends": _backends,
}


def check_routing(routing: Routing, *, compile: bool = False) -> list[str]:
    """Check that a routing satisfies the contract; return the names of the checks, or raise `ContractError`.

    routing: it is not modified. A copy in float64 is checked, in which each learned parameter is replaced by its mean
    so that all parents are alike; by itself, and in dense layers and a grid on every available backend. compile: add
    the (slow) comparison with `torch.compile(routing, fullgraph=True)`.
    """
    if not isinstance(routing, Routing):
        raise input_error("check_routing", "a Routing", repr(routing), "Make one with make_routing, or call the class.")
    level = copy.deepcopy(routing).double().eval()
    with torch.no_grad():
        for parameter in level.parameters():
            parameter.fill_(parameter.mean())
    checks = {**_CHECKS, "compile": _compiled} if compile else _CHECKS
    for name, check in checks.items():
        try:
            check(_Subject(level, torch.Generator().manual_seed(0)))
        except ContractError:
            raise
        except Exception as error:
            owner, failure = type(routing).__name__, type(error).__name__
            if isinstance(error, NotImplementedError) and not str(error):
                error = NotImplementedError("update, assign or read is missing")
            raise ContractError(f"{owner} failed while {name} was checked: {failure}: {error}") from error
    return list(checks)
