"""Native functions and torch alone agree on whole layers, drawn at random: values and all gradients."""

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest
import torch

import torchcaps as tc
from torchcaps.routing import routing_options
from torchcaps.votes import engine

# Votes with the numbers of a pose and of a vote: few sizes, as functions are compiled for each.
VOTES = [("full", 5, 6), ("shared", 5, 6), ("factorized", 5, 6), ("matrix", 4, 4), ("matrix", 9, 9), ("full", 4, 4)]
BATCHES = [1, 2, 3, 5, 8, 17, 33]
ALL, SOME = 500, 60
LONGEST = 7  # numbers of a row of a pose, with bias and coordinates


@dataclass
class Drawn:
    """A layer, its options, and the shape of its children."""

    kind: str
    sizes: tuple
    shape: tuple  # of children, [b *grid i]
    options: dict = field(default_factory=dict)
    couplings: tuple | None = None  # the shape of given ones
    masked: bool = False
    silent: bool = False  # are some activations zero? Not all of a parent's: no mass, no gradient to agree on
    kept: bool = True  # may autograd keep tiles?

    def layer(self, **changed):
        torch.manual_seed(1)
        made = getattr(tc, self.kind)(*self.sizes, **{**self.options, **changed}).double()
        for parameter in made.parameters():
            parameter.data += 0.1 * torch.randn_like(parameter)
        return made

    def children(self, seed):
        generator = torch.Generator().manual_seed(seed)
        poses = torch.randn(*self.shape, self.sizes[2], generator=generator, dtype=torch.float64)
        activations = torch.rand(self.shape, generator=generator, dtype=torch.float64)
        if self.silent:
            activations[..., 1:][torch.rand(self.shape, generator=generator)[..., 1:] < 0.3] = 0
        mask = torch.rand(self.shape, generator=generator) > 0.3 if self.masked else None
        return tc.Capsules(poses.requires_grad_(), activations.requires_grad_(), mask)

    def outcome(self, layer, seed):
        """Poses, activations and couplings of parents, and the gradients of all that has one."""
        children, leaves = self.children(seed), list(layer.parameters())
        leaves += [children.poses, children.activations]
        given = None
        if self.couplings is not None:
            generator = torch.Generator().manual_seed(seed)
            given = torch.rand(self.couplings, generator=generator, dtype=torch.float64) / self.couplings[-1]
            leaves.append(given.requires_grad_())
        torch.manual_seed(seed)
        routed = layer.route(children, given)
        loss = sum((part * torch.linspace(-1, 1, part.numel()).double().view_as(part)).sum() for part in routed)
        found = torch.autograd.grad(loss, leaves, allow_unused=True)
        zeros = (torch.zeros_like(leaf) if each is None else each for leaf, each in zip(leaves, found, strict=True))
        return routed, list(zeros)


def routing_of(draw, name):
    """A routing's name and options, as far as it knows them."""
    wishes = {
        "iterations": draw.randint(1, 3),
        "leaky": draw.random() < 0.3,
        "gradients": draw.choice(["all", "all", "last"]),
        "sampling": draw.choice([1.0, 1.0, 0.6]),
    }
    known = routing_options(name)
    return {"routing": name, **{word: value for word, value in wishes.items() if word in known}}


def drawn(number, batch=None):
    draw = random.Random(number)
    names = list(tc.ROUTINGS)
    kind = ("DenseCapsules", "ConvCapsules", "ClassCapsules", "ConvTransposeCapsules")[number % 4]
    votes, in_dim, out_dim = draw.choice(VOTES)
    bias = draw.random() < 0.3
    options = {"votes": votes, "vote_bias": bias, **routing_of(draw, names[number % len(names)])}
    options["tile_bytes"] = draw.choice([None, None, 1, 3_000, 30_000])
    batch = draw.choice(BATCHES) if batch is None else batch
    types, parents = draw.randint(1, 5), draw.randint(1, 7)
    sizes = (types, parents, in_dim, out_dim)
    if kind == "DenseCapsules":
        types = draw.randint(1, 20)
        case = Drawn(kind, (types, *sizes[1:]), (batch, types), options, (batch, types, parents))
    elif kind == "ConvCapsules":
        case = _windows(draw, batch, sizes, options)
    elif kind == "ConvTransposeCapsules":
        case = _transposed(draw, batch, sizes, options)
    else:
        grid = tuple(draw.randint(1, 4) for _ in range(draw.randint(1, 2)))
        inner = (out_dim if votes == "factorized" else in_dim) + bias + len(grid)
        places = ["first", None] if inner <= LONGEST else [None]
        options |= {"dimensions": len(grid), "coordinates": "column" if votes == "matrix" else draw.choice(places)}
        children = types * torch.Size(grid).numel()
        case = Drawn(kind, sizes, (batch, *grid, types), options, (batch, children, parents))
    case.couplings = case.couplings if draw.random() < 0.15 else None
    case.masked, case.kept = draw.random() < 0.3, draw.random() < 0.7
    case.silent = not case.masked and draw.random() < 0.3
    return case


def _windows(draw, batch, sizes, options):
    axes = draw.choice([1, 2, 2, 3])
    kernel, stride = ([draw.randint(1, most if axes < 3 else 2) for _ in range(axes)] for most in (3, 2))
    dilation = [draw.choice([1, 1, 2, 3]) for _ in range(axes)]
    span = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    padding = [draw.randint(0, size - 1) if draw.random() < 0.4 else 0 for size in kernel]
    grid = [size + draw.randint(0, 3 if axes < 3 else 1) for size in span]
    options |= {"competition": draw.choice(["grid", "window"])}
    out = [(g + 2 * p - k) // s + 1 for g, p, k, s in zip(grid, padding, span, stride, strict=True)]
    couplings = (batch, *out, torch.Size(kernel).numel(), sizes[0], sizes[1])
    layer = (*sizes, tuple(kernel), tuple(stride), tuple(padding), tuple(dilation))
    return Drawn(f"ConvCapsules{axes}d", layer, (batch, *grid, sizes[0]), options, couplings)


def _transposed(draw, batch, sizes, options):
    axes = draw.choice([1, 2, 2, 3])
    kernel, stride, grid = ([draw.randint(1, most if axes < 3 else 2) for _ in range(axes)] for most in (3, 3, 3))
    dilation = [draw.choice([1, 1, 2]) for _ in range(axes)]
    span = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    padding = [draw.randint(0, (size - 1) // 2) for size in span]
    more = [draw.randint(0, max(s, d) - 1) for s, d in zip(stride, dilation, strict=True)]
    options |= {"competition": draw.choice(["grid", "window"]), "dilation": tuple(dilation)}
    each = zip(grid, span, stride, padding, more, strict=True)
    out = [(g - 1) * s - 2 * p + k + m for g, k, s, p, m in each]
    couplings = (batch, *out, torch.Size(kernel).numel(), sizes[0], sizes[1])
    layer = (*sizes, *map(tuple, (kernel, stride, padding, more)))
    return Drawn(f"ConvTransposeCapsules{axes}d", layer, (batch, *grid, sizes[0]), options, couplings)


def check(number, monkeypatch):
    """The backend that a layer takes; its answer is that of torch alone, and of votes that are all kept."""
    case = drawn(number)
    with monkeypatch.context() as patch:
        if not case.kept:
            patch.setattr(engine, "KEPT_BYTES", 0)
        layer = case.layer()
        values, gradients = case.outcome(layer, number)
        backend = layer.plan(case.children(number)).backend
        patch.setenv("TORCHCAPS_NATIVE", "0")
        others = {"torch alone": case.outcome(case.layer(), number)}
    others["votes that are kept"] = case.outcome(case.layer(tile_bytes=0), number)
    for name, (wanted, slopes) in others.items():
        for found, expected, allowed in ((values, wanted, 1e-10), (gradients, slopes, 1e-8)):
            told = lambda message, name=name: f"number {number} by {backend} against {name}: {case}\n{message}"  # noqa: E731
            torch.testing.assert_close(list(found), list(expected), rtol=allowed, atol=allowed, msg=told)
    return backend


def check_all(numbers, monkeypatch):
    backends = Counter(check(number, monkeypatch) for number in numbers)
    assert backends["native"] > len(numbers) / 2, backends


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("part", range(4))
def test_native_functions_change_no_layer(part, monkeypatch):
    check_all(range(part, SOME, 4), monkeypatch)


@pytest.mark.slow
@pytest.mark.usefixtures("native")
def test_native_functions_change_no_layer_at_length(monkeypatch):
    check_all(range(SOME, ALL), monkeypatch)


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("number", range(22))
def test_no_examples_give_an_empty_answer(number):
    case = drawn(number, batch=0)
    layer = case.layer()
    routed, gradients = case.outcome(layer, number)
    assert [part.numel() for part in routed] == [0, 0, 0]
    assert routed.poses.shape[-2:] == (case.sizes[1], case.sizes[3])
    assert routed.couplings.shape[-1] == case.sizes[1]
    assert not any(gradient.any() for gradient in gradients)
