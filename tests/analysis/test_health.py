"""The health of whole networks, with faults that are put there."""

from dataclasses import replace

import pytest
import torch

import torchcaps as tc
from torchcaps.analysis.cost import GradientNorms, IterationCost
from torchcaps.analysis.health import activities, coupling_facts, dead_below, health, sample
from torchcaps.analysis.moves import Moves, Response
from torchcaps.analysis.verdicts import (
    capsule_verdicts,
    cost_verdict,
    coupling_verdict,
    gradient_verdicts,
    mirror_verdict,
    move_verdict,
)
from torchcaps.data import Batch, ImageSet, PairSet
from torchcaps.losses import margin_loss


def loss(capsules, labels):
    return margin_loss(capsules.activations, labels)


def images(count=12, classes=3, side=12):
    pixels = torch.randint(256, (count, 1, side, side), dtype=torch.uint8)
    return ImageSet(pixels, torch.arange(count) % classes, tuple("abcdefgh"[:classes]))


def network(**options):
    return tc.create_model(image_shape=(1, 12, 12), classes=3, decoder=False, **options).eval()


def test_a_class_capsule_without_weights_is_dead():
    model = network(routing="dynamic")
    with torch.no_grad():
        model.layers[0].transform.weight[:, 1] = 0
    found = health(model, images(), loss)
    (layer,) = found.layers
    assert layer.dead == (1,)
    assert float(layer.activity[1]) == 0
    assert (layer.name, layer.routing, layer.children, layer.parents) == ("classes", "dynamic", 16, 3)
    assert capsule_verdicts(found)[1].startswith("classes: dead: 1 of 3 (b); starved: 0 of 3")


def test_activity_is_the_highest_activation_in_all_examples():
    model, data = network(), images(10)
    found = activities(model, data, batch_size=4)
    batch = data.batch(torch.arange(10)).inputs
    with torch.no_grad():
        torch.testing.assert_close(found["classes"], model(batch).activations.amax(0))
        torch.testing.assert_close(found["primary"], model.children_of(batch).activations.flatten(0, 2).amax(0))


def test_primary_capsules_that_never_speak_are_dead():
    model = network()
    with torch.no_grad():
        model.primary.poses.weight[:8] = 0  # the first capsule: its eight numbers
        model.primary.poses.bias[:8] = 0
    found = health(model, images(), loss)
    assert 0 in found.primaries[0].dead
    assert capsule_verdicts(found)[0].startswith("primary: dead: ")


def test_activations_that_sum_to_one_are_dead_below_a_tenth_of_an_even_share():
    assert dead_below(tc.make_routing("gaussian"), 32) == pytest.approx(0.1 / 32)
    assert dead_below(tc.make_routing("dynamic"), 32) == 0.1


def test_the_learned_prior_of_attention_is_no_part_of_the_competition():
    model, data = network(), images()
    before = coupling_facts(model, data)["classes"]
    torch.nn.init.normal_(model.layers[0].routing.prior)
    after = coupling_facts(model, data)["classes"]
    assert after.entropy == pytest.approx(before.entropy, rel=1e-4)
    torch.testing.assert_close(after.mean, before.mean, atol=1e-5, rtol=0)


def test_uniform_routing_is_seen_to_do_nothing():
    (layer,) = health(network(routing="uniform"), images(), loss).layers
    assert layer.couplings.entropy == pytest.approx((1,))
    words = coupling_verdict(layer, 12)
    assert words == "classes: every child is shared almost evenly among its parents (entropy 1.0000 of 1)"
    assert mirror_verdict(layer) == "classes: children x and -x give the same answer: the layer cannot tell them apart"


def test_every_iteration_is_measured():
    (layer,) = health(network(routing="dynamic", iterations=3), images(), loss).layers
    entropy = layer.couplings.entropy
    assert len(entropy) == len(layer.costs) == 3
    assert entropy[0] == pytest.approx(1)
    assert entropy[0] > entropy[1] > entropy[2]


@pytest.mark.parametrize("routing", sorted(tc.ROUTINGS))
@pytest.mark.slow
def test_every_routing_and_layer_of_a_convolutional_network_can_be_measured(routing):
    model = tc.create_model("matrix-small", image_shape=(2, 18, 18), classes=3, sizes=(4, 2, 3, 2), routing=routing)
    pixels = torch.randint(256, (6, 2, 18, 18), dtype=torch.uint8)
    found = health(model.train(), ImageSet(pixels, torch.arange(6) % 3, ("a", "b", "c")), loss)
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    assert [layer.name for layer in found.layers] == ["layer 1", "layer 2", "classes"]
    for layer in found.layers:
        assert 0 <= layer.couplings.dependence <= 1
        assert all(0 <= value <= 1 for value in (*layer.couplings.entropy, *layer.couplings.polarized))
        assert len(layer.couplings.entropy) == model.layers[0].routing.iterations
    assert found.moves is not None
    assert "degrees" in move_verdict(found)


def test_images_of_two_things_have_no_parse_tree():
    model = tc.create_model(image_shape=(1, 16, 16), classes=3, routing="dynamic", decoder=False).eval()
    pairs = sample(PairSet(images(9), shift=2), 4)
    assert len(pairs) == 4

    def either(capsules, labels):
        return margin_loss(capsules.activations, torch.zeros(len(labels), 3).scatter(1, labels, 1))

    (layer,) = health(model, pairs, either).layers
    assert layer.couplings.parse_tree is None
    assert 0 < layer.couplings.entropy[-1] <= 1


class Texts:
    """Words by number, of any length."""

    classes = ("good", "bad")

    def __init__(self, many=False):
        self.words = torch.randint(1, 20, (6, 12))
        for row in range(6):
            self.words[row, 6 + row :] = 0
        self.labels = torch.rand(6, 2) < 0.5 if many else torch.arange(6) % 2

    def __len__(self):
        return 6

    def batch(self, indices):
        words = self.words[indices]
        return Batch(words[:, : int((words > 0).sum(1).max())], self.labels[indices])


@pytest.mark.parametrize("votes", ["shared", "full"])
def test_texts_are_measured_whatever_their_length(votes):
    slim = {"filters": 6, "capsules": 3, "capsule_dim": 4, "window_capsules": 3, "dim": 5}
    model = tc.create_model("text-b", vocabulary=20, classes=2, votes=votes, **slim).eval()
    found = health(model, Texts(), loss, batch_size=2)
    assert len(found.layers) == 6
    assert found.moves is None
    last = found.layers[1]
    assert (last.name, last.gives_classes) == ("3-grams classes", True)
    assert len(last.activity) == 3  # two classes and one for noise
    assert last.couplings.mean.shape == (1, 3)
    assert found.layers[0].couplings.mean.shape == (9, 3)
    assert all(layer.couplings.entropy[0] == pytest.approx(1, abs=1e-5) for layer in found.layers)
    ways = [line.partition(":")[0] for line in gradient_verdicts(found)]
    assert ways == ["3-grams layer 1", "4-grams layer 1", "5-grams layer 1"]


def test_a_sample_keeps_the_classes_in_their_proportions():
    data = images(30)
    few = sample(data, 9)
    assert len(few) == 9
    assert torch.bincount(few.labels).tolist() == [3, 3, 3]
    everything = sample(data, 50)
    assert sorted(everything.names) == sorted(data.names)
    assert everything.names != data.names  # mixed: data may stand in the order of their classes


def test_verdicts_follow_the_figures():
    found = health(network(routing="dynamic"), images(), loss)
    (layer,) = found.layers

    def coupled(entropy, dependence, examples=100):
        facts = replace(layer.couplings, entropy=(1.0, entropy), dependence=dependence)
        return coupling_verdict(replace(layer, couplings=facts), examples)

    assert coupled(0.5, 0.01).endswith("couplings are soft and nearly the same for every input, like a fixed weighting")
    assert coupled(0.5, 0.01, 12).endswith("soft; 12 examples are too few to tell if they follow the input")
    assert coupled(0.1, 0.9).endswith("nearly all or nothing and mostly decided by the input (90% of their entropy)")
    assert coupled(0.5, 0.3).endswith("couplings are soft and decided by the input in part (30% of their entropy)")
    costs = tuple(IterationCost(n, 0.01 * n, 1_000_000 * n) for n in (1, 2, 3))
    words = cost_verdict(replace(layer, costs=costs))
    assert words == "classes: about 10.0 ms and 1.0 MB for each iteration after the first"
    noisy = tuple(replace(cost, seconds=0.01 - 0.001 * cost.iterations, spread=0.004) for cost in costs)
    words = cost_verdict(replace(layer, costs=noisy))
    assert words == "classes: a time within the noise and 1.0 MB for each iteration after the first"
    assert cost_verdict(replace(layer, costs=costs[:1])) == "classes: one iteration, 10.0 ms"

    def gradients(*norms):
        names = [f"layer {number}" for number in range(1, len(norms))]
        layers = [
            replace(layer, name=name, gradients=GradientNorms(1, norm))
            for name, norm in zip([*names, "classes"], norms, strict=True)
        ]
        (line,) = gradient_verdicts(replace(found, layers=tuple(layers)))
        return line

    assert gradients(0.5) == "classes: the gradient reaches the children, which can learn from it"
    assert gradients(0.1, 0.2) == "layer 1: the gradient arrives: by poses 0.5 times that of classes"
    assert gradients(1e-5, 0.1) == "layer 1: the gradient vanishes on the way: by poses 0.0001 times that of classes"
    assert gradients(0.0).startswith("classes: no gradient at all")
    starved = replace(layer, couplings=replace(layer.couplings, mass=torch.tensor([0.05, 1.0, 1.95])))
    many = replace(found, layers=(starved,), examples=30)
    assert capsule_verdicts(many)[1].endswith("starved: 1 of 3 (a)")
    few = replace(many, examples=29)
    assert capsule_verdicts(few)[1].endswith("starved: 1 of 3 (a); 29 examples are too few to tell")
    alive = replace(starved, activity=torch.ones(3), couplings=replace(layer.couplings, mass=torch.ones(3)))
    assert "too few" not in capsule_verdicts(replace(few, layers=(alive,)))[1]  # whom one has seen living is not dead


def test_the_verdict_on_moves_speaks_of_answers():
    found = health(network(routing="dynamic"), images(), loss)
    turned = Moves((Response("turn 10 degrees", 9.0, 0.25, 0.0, 0.0),), 36.0)
    angle = "9.0 degrees, 25% of the angle between images of the same answer"
    expected = f"turn 10 degrees: the pose of the class turns by {angle}; its activation changes by 0.250"
    assert move_verdict(replace(found, moves=turned)) == expected
