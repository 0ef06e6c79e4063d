"""The engine: plans and refusals in words, a backend of one's own, routings that ask for more, devices, logs."""

import itertools
import logging
import math

import pytest
import torch
from torch import Tensor

import torchcaps as tc
from tests.support.tiles import assert_same, capsules
from tests.support.waits import Waits
from torchcaps.functional import agree, combine, squash
from torchcaps.routing import check_routing
from torchcaps.votes import engine
from torchcaps.votes.algebra import Votes
from torchcaps.votes.engine import Plan, Refusal, plan_of_votes
from torchcaps.votes.gradients import Entry, merged, separate
from torchcaps.votes.products import Products, Sums

# A backend of one's own, in fewer than sixty lines: votes by einsum from poses and matrices, for whatever asks.


class EinsumProducts(Products):
    def __init__(self, poses: Tensor, weight: Tensor) -> None:
        self.sources = (poses, weight)
        self.poses, self.weight = poses.detach(), weight.detach()
        self.shape = torch.Size((*poses.shape[:-1], weight.shape[1], weight.shape[3]))
        self.dtype, self.device = poses.dtype, poses.device

    def _votes(self, place):
        votes = torch.einsum("...ie,ijed->...ijd", self.poses, self.weight)
        return votes if place is None else votes - place.unsqueeze(-3)

    def sums(self, pairs, place, masses=False, first=False, second=False):
        votes = self._votes(place)
        return Sums(
            pairs.sum(-2) if masses else None,
            torch.einsum("...ij,...ijd->...jd", pairs, votes) if first else None,
            torch.einsum("...ij,...ijd->...jd", pairs, votes.square()) if second else None,
        )

    def inner(self, linear, squared, offset, place):
        votes = self._votes(place)
        result = torch.zeros_like(votes[..., 0]) if offset is None else offset.unsqueeze(-2).expand(votes.shape[:-1])
        for power, factors in enumerate((linear, squared), 1):
            if factors is not None:
                result = result + torch.einsum("...ijd,...jd->...ij", votes**power, factors)
        return result

    def gradients(self, given):
        votes = self._votes(given.pivot)
        total = torch.zeros_like(votes)
        for pairs, plain, scaled in zip(given.pairs, given.plain, given.scaled, strict=True):
            for each in plain:
                total = total + pairs.unsqueeze(-1) * each.unsqueeze(-3)
            for each in scaled:
                total = total + pairs.unsqueeze(-1) * each.unsqueeze(-3) * votes
        weight = torch.einsum("nie,nijd->ijed", self.poses.flatten(0, -3), total.flatten(0, -4))
        return torch.einsum("...ijd,ijed->...ie", total, self.weight), weight


class Einsum:
    name = "einsum"

    def plan(self, job) -> Plan | Refusal:
        found = job.linear()
        if isinstance(found, str) or job.wants == "votes" or job.gathered.shared:
            return Refusal("not for einsum")
        if not found.pairwise or found.bias or found.matrices.shape[2] != job.transform.in_dim:
            return Refusal("no vectors with a matrix for each pair")
        return plan_of_votes(
            self.name, job, (found.matrices,), 1, lambda part, given: Votes(EinsumProducts(part.poses, *given))
        )


@pytest.fixture
def einsum(monkeypatch):
    monkeypatch.setattr(engine, "BACKENDS", [Einsum(), *engine.BACKENDS])


@pytest.mark.usefixtures("einsum")
@pytest.mark.parametrize("routing", sorted(tc.ROUTINGS))
def test_a_backend_of_ones_own_is_chosen_tiled_and_right(routing):
    children, grid = capsules(5, 7, 5), capsules(2, 5, 5, 2, 4)
    layer = tc.DenseCapsules(7, 4, 5, 6, routing=routing, tile_bytes=200).double()
    assert layer.plan(children).backend == "einsum"
    assert layer.plan(children).tiles > 1
    assert_same(lambda: tc.DenseCapsules(7, 4, 5, 6, routing=routing), children)
    assert_same(lambda: tc.ConvCapsules2d(2, 3, 4, 4, 3, routing=routing), grid)


@pytest.mark.usefixtures("einsum")
def test_the_contract_asks_a_backend_of_ones_own():
    assert "backends" in check_routing(tc.make_routing("em", out_capsules=3))


def test_a_plan_says_who_refuses_and_why():
    children = tc.Capsules(torch.randn(4, 7, 5), torch.rand(4, 7))
    plan = tc.DenseCapsules(7, 4, 5, 6).plan(children)
    assert plan.backend == "dense"
    assert plan.tiles == 1
    assert plan.bytes == 4 * 7 * 4 * 6 * 4
    assert plan.refusals["lazy"] == "there is a matrix for each pair"
    assert plan.refusals["native"] == "4 examples or windows are fewer than 8"
    assert str(plan).startswith("dense: one tile of 0.0 MB; not native: 4 examples or windows are fewer than 8; ")
    untiled = tc.DenseCapsules(7, 4, 5, 6, tile_bytes=0).plan(children)
    assert set(untiled.refusals.values()) == {"tile_bytes is 0"}


def test_a_plan_draws_nothing():
    layer = tc.DenseCapsules(7, 4, 5, 6, sampling=0.5).train()
    state = torch.get_rng_state()
    layer.plan(tc.Capsules(torch.ones(4, 7, 5), torch.ones(4, 7)))
    assert torch.equal(torch.get_rng_state(), state)


def test_each_layer_says_once_how_it_computes(caplog):
    layer, children = tc.DenseCapsules(7, 4, 5, 6, votes="shared"), tc.Capsules(torch.ones(4, 7, 5), torch.ones(4, 7))
    with caplog.at_level(logging.INFO, logger="torchcaps"):
        layer(children)
        layer(children)
    (record,) = caplog.records
    assert record.getMessage().startswith("votes 7 x 5 -> 4 x 6 by lazy: one tile")


class Noisy(tc.ROUTINGS["dynamic"]):
    """Looks at votes after it has drawn."""

    def update(self, votes, weights, previous, step):
        noise = torch.rand(votes.shape[-1], dtype=weights.dtype)
        return (votes * weights.unsqueeze(-1)).sum(-3) * noise


def test_a_routing_that_asks_for_more_draws_the_same_as_ever():
    children, routing = capsules(9, 7, 5), Noisy()
    layer = tc.DenseCapsules(7, 4, 5, 6, routing=routing, votes="shared").double()
    found = []
    for _ in range(2):  # the second time it is known
        torch.manual_seed(1)
        found.append(layer(children).poses)
    assert torch.equal(*found)


# Who competes: a routing that needs more than a softmax.


class Sinkhorn(tc.Routing):
    """Couplings whose sums over parents are one, and whose sums over children are even: by turns."""

    def update(self, votes, weights, previous, step):
        return combine(weights, votes)

    def assign(self, votes, clusters, scores, step, over_parents):
        shares = agree(votes, squash(clusters)).exp()
        for _ in range(5):
            shares = shares / shares.sum(-2, keepdim=True)
            shares = shares / over_parents(shares, torch.sum)
        return shares.log()

    def read(self, clusters, couplings, weights):
        poses = squash(clusters)
        return tc.Routed(poses, poses.norm(dim=-1), couplings)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("competition", ["grid", "window"])
def test_a_routing_may_see_who_competes(competition):
    children = capsules(3, 5, 5, 2, 4)
    layer = tc.ConvCapsules2d(2, 3, 4, 4, 3, routing=Sinkhorn(2), competition=competition).double()
    couplings = layer.route(children).couplings  # [b h w k i j]
    if competition == "window":
        torch.testing.assert_close(couplings.sum(-1), torch.ones_like(couplings[..., 0]))
    else:
        total = torch.zeros(3, 5, 5, 2, dtype=torch.float64)
        for y, x, k in itertools.product(range(3), range(3), range(9)):
            total[:, y + k // 3, x + k % 3] += couplings[:, y, x, k].sum(-1)
        torch.testing.assert_close(total, torch.ones_like(total))
    assert_same(
        lambda: tc.ConvCapsules2d(2, 3, 4, 4, 3, routing=Sinkhorn(2), competition=competition), capsules(3, 5, 5, 2, 4)
    )


# Devices.


@pytest.mark.parametrize("routing", sorted(set(tc.ROUTINGS) - {"kde"}))
def test_no_layer_waits_for_its_device(routing):
    """kde looks at values where that costs nothing, on CPUs only."""
    grid = tc.ConvCapsules2d(2, 3, 4, 4, 3, routing=routing, padding=1)
    classes = tc.ClassCapsules(3, 4, 4, 4, routing=routing)
    poses = torch.randn(2, 5, 5, 2, 4, requires_grad=True)
    children = tc.Capsules(poses, torch.rand(2, 5, 5, 2))
    with Waits() as waits:
        classes(grid(children)).poses.sum().backward()
    assert not waits.seen


def test_tiles_follow_the_device(monkeypatch):
    from torchcaps.votes.tiling import FREE_BYTES, TILE_BYTES, tile_bytes

    assert tile_bytes(None, torch.device("cpu")) == TILE_BYTES
    assert tile_bytes(None, torch.device("mps")) == FREE_BYTES // 8
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (80 * 2**30, 80 * 2**30))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 0)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 0)
    assert tile_bytes(None, torch.device("cuda")) == 10 * 2**30
    assert tile_bytes(7, torch.device("cuda")) == 7


def test_windows_are_counted_once_for_each_shape():
    from torchcaps.votes.windows import windows_of

    first = windows_of((5, 5), (3, 3), (2, 2), (1, 1))
    assert windows_of((5, 5), (3, 3), (2, 2), (1, 1)) is first
    assert first.seen(torch.device("cpu")) is first.seen(torch.device("cpu"))
    seen = first.seen(torch.device("cpu"))
    assert seen.shape == (9, 9)
    for window, place in ((0, 25), (4, 6)):  # outside at a corner; the middle window begins at row 1, column 1
        assert seen[window, 0] == place
    assert math.prod(first.out) == first.count == 9


def test_terms_of_a_gradient_are_told_apart_where_memory_has_no_address():
    """On the meta device all tensors have the address zero, and different couplings became one column."""
    first, second = torch.empty(2, 3, 4, device="meta"), torch.empty(2, 3, 4, device="meta")
    entries = [Entry(pairs, torch.empty(2, 4, 5, device="meta"), None, None) for pairs in (first, second, first)]
    assert [len(each) for each in merged(entries).plain] == [2, 1]
    assert len(separate(entries)) == 2
