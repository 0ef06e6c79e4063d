"""Extreme votes, activations and masks for every routing: no NaN and no infinity in values or gradients, in float32."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from torchcaps.functional import SQUASHES
from torchcaps.routing import ROUTINGS, make_routing, routing_options
from torture.result import Result

BATCH = 100
MORE: dict[str, list[dict[str, Any]]] = {
    "dynamic": [
        {"amendment": True},
        {"accumulate": False},
        {"bias": True},
        *({"squash": kind} for kind in SQUASHES),
        {"iterations": 6},
    ],
    "kmeans": [{"distance": "inner"}, {"sharpness": 10.0}, {"iterations": 6}],
    "entropy": [{"entropy_weight": 0.01}, {"entropy_decay": 0.5}],
    "gaussian": [{"covariance": kind} for kind in ("full", "spherical", "fixed")],
    "em": [
        *({"variant": variant} for variant in (1, 2, 3)),
        {"preset": "official"},
        {"preset": "official-class"},
        {"beta_per_dimension": True},
        {"sharpness": 0.0625, "variance_floor": 0.1},
    ],
    "heinsen": [{"covariance": kind} for kind in ("full", "spherical", "fixed")] + [{"beta_use": 0.4}],
    "variational": [{"prior_variance": 0.01}, {"mean_strength": 1e-3}],
    "kde": [{"kernel": "epanechnikov"}, {"tolerance": 0.0}],
    "attention": [{"squash": "quadratic"}, {"prior": False}],
    "uniform": [{"amendment": True}],
}
SHARED: list[dict[str, Any]] = [{}, {"leaky": True}, {"hard": True}, {"gradients": "last"}, {"sampling": 0.5}]


def variants() -> list[tuple[str, dict[str, Any]]]:
    """Every routing with its options, one at a time."""
    known = {name: routing_options(name) for name in ROUTINGS}
    return [
        (name, options)
        for name in ROUTINGS
        for options in [*SHARED, *MORE.get(name, [])]
        if all(word in known[name] for word in options)
    ]


def _powers(draw: torch.Generator, *shape: int) -> Tensor:
    """Numbers from 1e-30 to 1e10, evenly by their logarithm."""
    return 10 ** (torch.rand(*shape, dtype=torch.float64, generator=draw) * 40 - 30)


def extreme_votes(draw: torch.Generator, b: int, i: int, j: int, d: int) -> Tensor:
    """[b i j d]: of one scale, or mixed by child, parent, dimension or number; zero; equal; opposite; one outlier."""
    plain = torch.randn(b, i, j, d, dtype=torch.float64, generator=draw)
    one = _powers(draw, b, 1, 1, 1)
    signs = torch.where(torch.arange(i) % 2 == 0, 1.0, -1.0).view(1, i, 1, 1)
    outlier = plain * 1e-30
    outlier[:, 0] = plain[:, 0] * 1e10
    kinds = [
        plain * one,
        plain * 0,
        plain[:, :1].expand_as(plain) * one,
        plain[:, :, :1].expand_as(plain) * one,
        plain[:, :1, :1].expand_as(plain) * one,
        plain[:, :1] * signs * one,
        plain.sign() * one,  # ties
        plain * _powers(draw, b, i, 1, 1),
        plain * _powers(draw, b, 1, j, 1),
        plain * _powers(draw, b, 1, 1, d),
        plain * _powers(draw, b, i, j, d),
        outlier,
    ]
    chosen = torch.randint(len(kinds), (b,), generator=draw)
    return torch.stack(kinds)[chosen, torch.arange(b)].clamp(-1e10, 1e10).float()


def extreme_activations(draw: torch.Generator, b: int, i: int) -> Tensor:
    """[b i]: any, one, zero, all but zero, or zero for some."""
    plain = torch.rand(b, i, generator=draw)
    tiny = 10 ** (-38 * torch.rand(b, i, generator=draw))
    kinds = [plain, torch.ones(b, i), torch.zeros(b, i), tiny, (plain > 0.5).float(), plain * tiny[:, :1]]
    chosen = torch.randint(len(kinds), (b,), generator=draw)
    return torch.stack(kinds)[chosen, torch.arange(b)]


def _mask(draw: torch.Generator, b: int, i: int, kind: int) -> Tensor | None:
    """None, some children, and one child or none of them in some examples."""
    shares = (None, torch.full((b, 1), 0.7), torch.rand(b, 1, generator=draw))[kind]
    return None if shares is None else torch.rand(b, i, generator=draw) < shares


def _sizes(name: str, options: dict[str, Any], i: int, j: int, d: int) -> dict[str, int]:
    needed = {"attention": ("in_capsules", "out_capsules"), "inverted": ("out_dim",)}.get(name, ())
    if name in ("em", "heinsen", "variational") and options.get("variant") != 1:
        needed = ("out_capsules",)
    if options.get("bias") or options.get("beta_per_dimension"):
        needed = ("out_capsules", "out_dim")
    return {word: size for word, size in (("in_capsules", i), ("out_capsules", j), ("out_dim", d)) if word in needed}


def parts_of_case(name: str, options: dict[str, Any], seed: str, batch: int = BATCH) -> Iterator[tuple[str, Tensor]]:
    """What a routing gives for a batch of extreme cases, and the gradients of random sums of it, by name."""
    lot = random.Random(seed)
    draw = torch.Generator().manual_seed(lot.randrange(2**31))
    i, j, d = lot.choice((1, 2, 3, 8, 20)), lot.choice((1, 2, 5)), lot.choice((1, 2, 4, 16))
    routing = make_routing(name, **options, **_sizes(name, options, i, j, d)).train()
    torch.manual_seed(lot.randrange(2**31))  # which parents are sampled
    votes = extreme_votes(draw, batch, i, j, d).requires_grad_()
    activations = extreme_activations(draw, batch, i).requires_grad_()
    routed = routing(votes, activations, mask=_mask(draw, batch, i, lot.randrange(3)))
    yield from zip(("poses", "activations", "couplings"), routed, strict=True)
    total = sum((part * torch.randn(part.shape, generator=draw)).sum() for part in routed)
    learned = dict(routing.named_parameters())
    assert isinstance(total, Tensor)
    gradients = torch.autograd.grad(total, [votes, activations, *learned.values()], allow_unused=True)
    for word, gradient in zip(("votes", "activations", *learned), gradients, strict=True):
        if gradient is not None:
            yield f"gradient of {word}", gradient


def try_routing(name: str, cases: int, seed: int = 0) -> Result:
    """At least so many cases for one routing, shared evenly by its options."""
    own = [options for other, options in variants() if other == name]
    result = Result("routing", f"{name}, {len(own)} kinds of options")
    started = time.perf_counter()
    for options in own:
        for number in range(-(-cases // (BATCH * len(own)))):
            mark = f"{seed} {name} {options} {number}"
            wrong = [word for word, part in parts_of_case(name, options, mark) if not bool(part.isfinite().all())]
            result.cases += BATCH
            result.outcomes["finite"] += 0 if wrong else BATCH
            if wrong:
                result.faults.append(f"{', '.join(wrong)} not finite for {mark!r}")
    result.seconds = time.perf_counter() - started
    return result


def run(cases: int, seed: int = 0) -> list[Result]:
    """So many cases over all routings."""
    return [try_routing(name, -(-cases // len(ROUTINGS)), seed) for name in ROUTINGS]
