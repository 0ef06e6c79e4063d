"""Ablations whose outcome is known before."""

import copy
import math
from dataclasses import replace

import pytest
import torch

import torchcaps as tc
from tests.analysis.test_health import Texts
from torchcaps._core.types import Capsules
from torchcaps.analysis.ablate import ABLATIONS, ALL, Ablation, Ablations, ablate, compared, paired_interval, take_away
from torchcaps.analysis.evaluate import Evaluation
from torchcaps.analysis.health import coupling_facts
from torchcaps.analysis.layers import children_of_layers
from torchcaps.analysis.verdicts import ablation_verdicts
from torchcaps.data import ImageSet

SLIM = {"sizes": (4, 2, 3, 2)}


def images(count=12, side=12, channels=1):
    pixels = torch.randint(256, (count, channels, side, side), dtype=torch.uint8)
    return ImageSet(pixels, torch.arange(count) % 3, ("a", "b", "c"))


def network(**options):
    return tc.create_model(image_shape=(1, 12, 12), classes=3, decoder=False, **options).eval()


def without(model, kind, mean=None, seed=0):
    other = copy.deepcopy(model)
    for place, layer in enumerate(other.routed_layers):
        assert take_away(kind, layer, None if mean is None else mean[place], seed) == ""
    return other


@torch.no_grad()
def activations(model, data):
    return model(data.batch(torch.arange(len(data))).inputs).activations


def test_one_iteration_of_dynamic_routing_is_uniform_routing():
    model, data = network(routing="dynamic", iterations=3), images()
    one, uniform = (activations(without(model, kind), data) for kind in ("one iteration", "uniform"))
    torch.testing.assert_close(one, uniform)
    assert (one - activations(model, data)).abs().max() > 1e-4


def test_uniform_couplings_change_nothing_where_they_are_uniform():
    model, data = network(routing="uniform"), images()
    torch.testing.assert_close(activations(without(model, "uniform"), data), activations(model, data))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("efficient", {"routing": "dynamic", "decoder": False}),
        ("efficient", {"routing": "attention", "decoder": False}),
        ("matrix-small", {"routing": "em", **SLIM}),
        ("matrix-small", {"routing": "dynamic", **SLIM}),
        ("matrix-small", {"routing": "kmeans", **SLIM}),
    ],
)
def test_couplings_frozen_on_one_image_answer_that_image_as_before(name, options):
    model = tc.create_model(name, image_shape=(1, 20, 20), classes=3, **options).eval()
    if name == "efficient" and options["routing"] == "attention":
        torch.nn.init.normal_(model.layers[0].routing.prior)
    same = images(1, 20)
    mean = [facts.mean for facts in coupling_facts(model, same).values()]
    frozen = without(model, "frozen", mean)
    torch.testing.assert_close(activations(frozen, same), activations(model, same), atol=1e-5, rtol=1e-4)
    others = images(8, 20)
    assert (activations(frozen, others) - activations(model, others)).abs().max() > 1e-7


def test_random_couplings_are_a_distribution_that_the_seed_decides():
    model = tc.create_model("matrix-small", image_shape=(1, 20, 20), classes=3, routing="dynamic", **SLIM).eval()
    data = images(2, 20)
    first, again, other = (activations(without(model, "random", seed=seed), data) for seed in (0, 0, 1))
    torch.testing.assert_close(first, again)
    assert (first - other).abs().max() > 1e-4
    layer = without(model, "random").layers[0]
    with torch.no_grad():
        seen, _ = children_of_layers(model, data.batch(torch.arange(2)).inputs)
        gathered = layer.gather(seen["layer 1"])
        couplings = layer.route(seen["layer 1"]).couplings.flatten(-3, -2)
    torch.testing.assert_close(couplings[0], couplings[1])  # the same for all images
    sums = gathered.over_parents(couplings, torch.sum)
    torch.testing.assert_close(sums, torch.ones_like(sums))
    assert couplings.std() > 0.01


@pytest.mark.parametrize("competition", ["window", "grid"])
def test_random_couplings_are_the_same_for_tiles_of_any_size(competition):
    poses = torch.randn(3, 5, 5, 2, 4)
    answers = []
    for tile_bytes in (0, 1, 2000, None):
        torch.manual_seed(0)
        layer = tc.ConvCapsules2d(2, 3, 4, 4, 3, routing="dynamic", competition=competition, tile_bytes=tile_bytes)
        assert take_away("random", layer, None) == ""
        with torch.no_grad():
            answers.append(layer(Capsules(poses, torch.ones(3, 5, 5, 2))).poses)
    for other in answers[1:]:
        torch.testing.assert_close(other, answers[0])


def test_without_a_squash_attention_keeps_the_order_of_its_classes():
    model, data = network(), images()
    plain, squashed = activations(without(model, "no squash"), data), activations(model, data)
    torch.testing.assert_close(1 - (-plain).exp(), squashed)


def test_without_transform_children_vote_for_their_own_pose():
    for votes in ("full", "shared", "factorized", "matrix"):
        layer = tc.DenseCapsules(5, 3, 4, 4, votes=votes, vote_bias=True, normalize=True)
        torch.nn.init.normal_(layer.transform.bias)
        assert take_away("no transform", layer, None) == ""
        poses = torch.randn(2, 5, 4)
        made = layer.vote(layer.gather(Capsules(poses, torch.ones(2, 5))))
        torch.testing.assert_close(made, poses.unsqueeze(2).expand(2, 5, 3, 4))


def test_what_cannot_be_taken_away_is_said():
    attention, em = network(), tc.DenseCapsules(4, 3, 4, 4, routing="em")
    assert take_away("one iteration", attention.layers[0], None) == "attention has one iteration already"
    assert take_away("no transform", attention.layers[0], None) == "poses of 8 numbers cannot be votes of 16"
    assert take_away("no squash", em, None) == "em has no squash"
    primary = tc.PrimaryCapsules(4, 2, 4, kind="matrix")
    assert take_away("no squash", primary, None) == "its poses are not squashed"


def test_a_network_is_the_same_after_its_ablations():
    model = tc.create_model("matrix-small", image_shape=(1, 20, 20), classes=3, **SLIM).train()
    data = images(6, 20)
    before, state = copy.deepcopy(model.state_dict()), dict(vars(model.layers[0].routing))
    result = ablate(model, data, images(6, 20))
    assert model.training
    assert dict(vars(model.layers[0].routing)) == state
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    tried = {(row.kind, row.layer) for row in result.rows} | set(result.left_out)
    layers = ["layer 1", "layer 2", "classes", ALL]
    assert tried == {(kind, layer) for kind in ABLATIONS for layer in layers} | {("no squash", "primary")}
    assert result.left_out["no squash", ALL] == "em has no squash"


def test_texts_can_be_ablated_and_many_labels_need_their_squash():
    slim = {"filters": 6, "capsules": 3, "capsule_dim": 4, "window_capsules": 3, "dim": 5}
    model = tc.create_model("text-a", vocabulary=20, classes=2, **slim).eval()
    result = ablate(model, Texts(many=True), Texts(many=True))
    assert {row.kind for row in result.rows} == set(ABLATIONS) - {"no squash"}
    assert set(result.left_out.values()) == {"lengths that may be above one have no threshold"}


def evaluation(right):
    labels = torch.zeros(len(right), 1, dtype=torch.long)
    answers = torch.nn.functional.one_hot((~torch.tensor(right)).long(), 2).float()
    return Evaluation(("a", "b"), labels, answers, None)


def test_losses_are_paired():
    whole, part = evaluation([True] * 8 + [False] * 2), evaluation([True] * 5 + [False] * 3 + [True, False])
    row = compared("uniform", "classes", whole, part)
    assert (row.accuracy, row.lost) == pytest.approx((0.6, 0.2))
    assert row.lost_interval == paired_interval(3, 1, 10)
    assert not row.matters
    assert compared("uniform", "classes", evaluation([True] * 50), evaluation([True] * 25 + [False] * 25)).matters


def test_paired_interval_is_that_of_agresti_and_min():
    for worse, better, count in ((10, 0, 100), (3, 5, 40)):
        total = count + 2
        p, q = (worse + 0.5) / total, (better + 0.5) / total
        half = 1.959964 * math.sqrt((p + q - (p - q) ** 2) / total)
        assert paired_interval(worse, better, count) == pytest.approx((p - q - half, p - q + half))
    low, high = paired_interval(0, 0, 50)
    assert low == -high < 0
    assert paired_interval(5, 0, 5)[1] == 1


def row(kind, lost, layer="classes"):
    return Ablation(kind, layer, 1 - lost, (0, 1), lost, (lost - 0.01, lost + 0.01))


def test_verdicts_tell_whether_routing_matters():
    def said(uniform, frozen, **more):
        rows = (row("uniform", uniform), row("frozen", frozen))
        return ablation_verdicts(Ablations(100, 1.0, (0.9, 1), rows, more))

    lost = "with uniform couplings accuracy falls by 50.0 points (95 % interval 49.0 to 51.0), "
    lost += "with frozen ones by 40.0 points (95 % interval 39.0 to 41.0)"
    assert said(0.5, 0.4) == [f"routing in classes matters: {lost}"]
    assert said(0.5, 0.0)[0].startswith("routing in classes acts as a fixed weighting: with uniform couplings")
    nothing = "with uniform couplings accuracy falls by 0.0 points (95 % interval -1.0 to 1.0)"
    assert said(0.0, 0.0) == [f"routing in classes decides nothing that can be told: {nothing}"]
    assert said(0.0, 0.3)[0].endswith(", but with frozen ones by 30.0 points (95 % interval 29.0 to 31.0)")
    few = "points (95 % interval -5.0 to 45.0)"
    wide = [replace(row(kind, 0.2), lost_interval=(-0.05, 0.45)) for kind in ("uniform", "frozen")]
    (line,) = ablation_verdicts(Ablations(10, 1.0, (0.7, 1), tuple(wide), {}))
    start = "too few examples to tell whether routing in classes matters: "
    assert line == f"{start}with uniform couplings accuracy falls by 20.0 {few}, with frozen ones by 20.0 {few}"
    (line,) = ablation_verdicts(Ablations(10, 1.0, (0.7, 1), (row("uniform", 0.5), wide[1]), {}))
    start = (
        "routing in classes matters, but there are too few examples to tell whether by more than a fixed weighting: "
    )
    assert line.startswith(start)
    rows = (row("uniform", 0.5, ALL), row("frozen", 0.5, ALL))
    left_out = {("no squash", "layer 1"): "em has no squash", ("no squash", ALL): "em has no squash"}
    lines = ablation_verdicts(Ablations(100, 1.0, (0.9, 1), rows, left_out))
    assert lines[0] == f"no squash cannot be tried in layer 1, {ALL}: em has no squash"
    assert lines[1].startswith("routing matters: ")


@pytest.mark.parametrize(
    ("routing", "options"), [("kde", {"tolerance": 0.0}), ("em", {"damping": 0.5}), ("dynamic", {}), ("entropy", {})]
)
@pytest.mark.parametrize("kind", ["frozen", "random"])
def test_a_layer_with_fixed_couplings_does_as_its_trace(kind, routing, options):
    layer = tc.DenseCapsules(7, 4, 6, 6, routing=routing, iterations=3, **options).eval()
    children = Capsules(torch.randn(9, 7, 6), torch.rand(9, 7))
    fixed = copy.deepcopy(layer)
    mean = torch.rand(7, 4).softmax(-1)
    assert take_away(kind, fixed, mean) == ""
    parents = fixed(children)
    *_, last = fixed.trace(children)
    torch.testing.assert_close(parents.poses, last.routed.poses)
    torch.testing.assert_close(parents.activations, last.routed.activations)
