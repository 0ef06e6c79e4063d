"""Measures of couplings on couplings whose answer is known."""

import math

import pytest
import torch
from torch.nn.functional import one_hot

import torchcaps as tc
from torchcaps._core.types import Capsules
from torchcaps.analysis.couplings import BINS, CouplingTally, child_entropy
from torchcaps.votes.job import Gathered


def facts(couplings, labels=None, classes=None, *, mask=None, activations=None, shuffles=0, **options):
    """The facts of couplings [b i j], or of a list of them for the iterations."""
    steps = couplings if isinstance(couplings, list) else [couplings]
    shape = steps[0].shape[:-1]
    active = torch.ones(shape) if activations is None else activations
    tally = CouplingTally(classes, **options)
    lots = [labels[torch.randperm(len(labels))] for _ in range(shuffles)]
    columns = None if labels is None else torch.stack([labels, *lots], -1)
    tally.add(steps, Gathered(Capsules(torch.zeros(*shape, 1), active, mask)), columns)
    return tally.facts()


def test_uniform_couplings_have_entropy_one_and_depend_on_nothing():
    found = facts(torch.full((6, 5, 4), 0.25), torch.arange(6) % 3, 3)
    assert found.entropy == pytest.approx((1,))
    assert found.polarized == (0,)
    assert (found.dependence, found.parse_tree) == pytest.approx((0, 0), abs=1e-6)
    torch.testing.assert_close(found.mass, torch.ones(4))
    torch.testing.assert_close(found.mean, torch.full((5, 4), 0.25))
    assert found.even == pytest.approx(0.25)
    assert found.histogram[12] == found.histogram.sum() == 6 * 5 * 4
    assert len(found.histogram) == BINS


def test_children_that_always_have_the_same_parent_are_a_fixed_weighting():
    found = facts(one_hot(torch.tensor([0, 1, 1]), 4).float().expand(5, 3, 4), torch.tensor([0, 1, 0, 1, 1]), 2)
    assert (found.entropy, found.polarized, found.dependence, found.parse_tree) == ((0,), (1,), 0, 0)
    torch.testing.assert_close(found.mass, torch.tensor([4 / 3, 8 / 3, 0, 0]))


def test_a_parse_tree_that_the_class_decides_scores_one():
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    children = one_hot((labels.unsqueeze(1) + torch.arange(4)) % 3, 3).float()  # each child another order of parents
    found = facts(children, labels, 3)
    assert found.entropy == (0,)
    assert found.dependence == pytest.approx(1)
    assert found.parse_tree == pytest.approx(1)


def test_parents_chosen_by_the_input_but_not_by_its_class_are_no_parse_tree():
    labels = torch.tensor([0, 0, 1, 1])
    found = facts(one_hot(torch.tensor([[0], [1], [0], [1]]), 2).float(), labels, 2)
    assert found.dependence == pytest.approx(1)
    assert found.parse_tree == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("count", [9, 30, 90])
def test_parents_by_chance_are_no_parse_tree_however_few_the_examples(count):
    labels = torch.arange(count) % 3
    couplings = one_hot(torch.randint(3, (count, 400)), 3).float()
    plain, found = (facts(couplings, labels, 3, shuffles=shuffles).parse_tree for shuffles in (0, 8))
    assert plain > 1.5 / count  # (classes - 1)(parents - 1) / 2n nats of log 3, and more for few examples
    assert found < 0.05
    children = one_hot((labels.unsqueeze(1) + torch.arange(4)) % 3, 3).float()
    assert facts(children, labels, 3, shuffles=8).parse_tree == pytest.approx(1)


def test_a_parse_tree_of_half_of_the_children_scores_a_half_at_any_count():
    for count in (30, 300):
        labels = torch.arange(count) % 3
        decided = (labels.unsqueeze(1) + torch.arange(300)) % 3
        lots = torch.randint(3, (count, 300))
        found = facts(one_hot(torch.cat([decided, lots], 1), 3).float(), labels, 3, shuffles=8)
        assert found.parse_tree == pytest.approx(0.5, abs=0.04)


def entropy(row):
    return -sum(c * math.log(c) for c in row if c > 0)


def test_facts_equal_plain_loops_on_masked_children():
    couplings = [torch.rand(6, 5, 3).softmax(-1), (4 * torch.randn(6, 5, 3)).softmax(-1)]
    labels, mask, active = torch.tensor([0, 1, 1, 0, 1, 0]), torch.rand(6, 5) < 0.7, torch.rand(6, 5)
    mask[:2] = True  # every child is there in both classes
    silent = [step * mask.unsqueeze(-1) for step in couplings]
    found = facts(silent, labels, 2, mask=mask, activations=active)
    real = [(b, i) for b in range(6) for i in range(5) if mask[b, i]]
    for step, relative, polarized in zip(couplings, found.entropy, found.polarized, strict=True):
        rows = [step[b, i].tolist() for b, i in real]
        assert relative == pytest.approx(sum(map(entropy, rows)) / len(rows) / math.log(3), rel=1e-5)
        assert polarized == pytest.approx(sum(max(row) > 0.9 for row in rows) / len(rows))
    last = couplings[-1]
    weighed = sum(float(active[b, i]) * entropy(last[b, i].tolist()) for b, i in real) / math.log(3)
    assert found.active_entropy == pytest.approx(weighed / sum(float(active[b, i]) for b, i in real), rel=1e-5)
    overall = each = told = possible = 0.0
    for i in range(5):
        mine = [b for b in range(6) if mask[b, i]]
        mean = last[mine, i].mean(0)
        torch.testing.assert_close(found.mean[i], mean)
        overall += entropy(mean.tolist())
        each += sum(entropy(last[b, i].tolist()) for b in mine) / len(mine)
        groups = [[b for b in mine if labels[b] == label] for label in (0, 1)]
        shares = [len(group) / len(mine) for group in groups]
        within = sum(p * entropy(last[group, i].mean(0).tolist()) for p, group in zip(shares, groups, strict=True))
        told += entropy(mean.tolist()) - within
        possible += min(entropy(shares), math.log(3))
    assert found.dependence == pytest.approx((overall - each) / overall, rel=1e-4)
    assert found.parse_tree == pytest.approx(told / possible, rel=1e-4)


def test_batches_add_up():
    couplings, labels = torch.randn(8, 3, 4).softmax(-1), torch.arange(8) % 2
    whole, parts = facts(couplings, labels, 2), CouplingTally(2)
    for start, end in ((0, 3), (3, 8)):
        few = couplings[start:end]
        parts.add(
            [few], Gathered(Capsules(torch.zeros(len(few), 3, 1), torch.ones(len(few), 3))), labels[start:end, None]
        )
    again = parts.facts()
    for word in ("entropy", "dependence", "parse_tree", "active_entropy", "even"):
        assert getattr(again, word) == pytest.approx(getattr(whole, word)), word
    torch.testing.assert_close(again.mass, whole.mass)


def test_nobody_is_one_more_parent_where_routing_leaks():
    assert facts(torch.full((2, 3, 4), 0.2), leaky=True).entropy == pytest.approx((1,))
    assert facts(torch.zeros(2, 3, 4), leaky=True).entropy == (0,)  # all leaks: decided, too
    torch.testing.assert_close(child_entropy(torch.tensor([[0.5, 0.0]])), torch.tensor([math.log(2)]))


def test_children_that_are_alike_share_one_mean():
    couplings = one_hot(torch.tensor([[0, 1], [1, 0]]), 2).float()
    apart, alike = facts(couplings), facts(couplings, alike=True)
    assert apart.mean.shape == (2, 2)
    torch.testing.assert_close(alike.mean, torch.full((1, 2), 0.5))
    assert alike.dependence == pytest.approx(1)


@torch.no_grad()
def of_layer(layer, children):
    gathered, tally = layer.gather(children), CouplingTally()
    steps = [layer.trace(children)[-1].routed.couplings.flatten(-3, -2)]
    tally.add(steps, gathered)
    return tally.facts()


def test_a_child_of_a_grid_counts_once_with_all_the_parents_that_see_it():
    layer = tc.ConvCapsules2d(2, 3, 4, 4, 3, routing="dynamic", iterations=3)
    poses = 2 * torch.randn(2, 4, 5, 2, 4)
    children = Capsules(poses, poses.norm(dim=-1))
    found = of_layer(layer, children)
    couplings = layer.trace(children)[-1].routed.couplings  # [b h w k i j]
    rows = {}
    for b in range(2):
        for top in range(2):
            for left in range(3):
                for offset in range(9):
                    place = (b, top + offset // 3, left + offset % 3)
                    for i in range(2):
                        rows.setdefault((*place, i), []).extend(couplings[b, top, left, offset, i].tolist())
    several = [row for row in rows.values() if len(row) > 1]
    assert all(sum(row) == pytest.approx(1, abs=1e-5) for row in several)
    relative = sum(entropy(row) / math.log(len(row)) for row in several) / len(several)
    assert found.entropy[0] == pytest.approx(relative, rel=1e-5)
    assert found.even == pytest.approx(sum(1 / len(row) for row in several) / len(several), rel=1e-5)
    assert found.mean.shape == (2, 3, 18, 3)


def test_votes_of_nothing_give_uniform_couplings_at_the_border_too():
    layer = tc.ConvCapsules2d(2, 3, 4, 4, 3, padding=1, routing="dynamic")
    children = Capsules(torch.zeros(2, 4, 4, 2, 4), torch.ones(2, 4, 4, 2))
    assert of_layer(layer, children).entropy == pytest.approx((1,), abs=1e-6)


def test_one_parent_leaves_nothing_to_decide():
    found = facts(torch.ones(3, 2, 1), torch.zeros(3, dtype=torch.long), 2)
    assert (found.entropy, found.dependence, found.parse_tree) == ((0,), 0, 0)
