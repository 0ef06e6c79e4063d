"""Attacks: against a linear network whose weakest direction is known, and against another implementation."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy

from tests.analysis.networks import Linear
from torchcaps import create_model
from torchcaps._core.errors import InputError
from torchcaps.analysis.attacks import (
    METHODS,
    AttackPoint,
    attack,
    attack_curves,
    attack_examples,
    bim,
    brought,
    fgsm,
    pgd,
    wrong_targets,
)
from torchcaps.analysis.evaluate import evaluate, wilson_interval
from torchcaps.analysis.gradients import class_scores, image_gradients, questioned, wrong_odds
from torchcaps.analysis.images import InMemoryImages, some
from torchcaps.data import PairSet, load_dataset
from torchcaps.losses import margin_loss

READOUTS = ["logit", "share", "length", "logistic"]


def two_pixels(readout="logit"):
    """Class 0 likes the left of two pixels, class 1 the right one twice as much; class 2 likes nothing."""
    return Linear([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]], (1, 1, 2), readout)


def tiny(name, **options):
    torch.manual_seed(0)
    return create_model(name, image_shape=(1, 12, 12), classes=4, **options)


# What is climbed


@pytest.mark.parametrize("readout", READOUTS)
def test_scores_give_back_the_logits_of_a_linear_network(readout):
    images = torch.rand(5, 1, 1, 2)
    model = two_pixels(readout)
    logits = images.flatten(1) @ model.weight.T
    scores = class_scores(model, model(images))
    expected = logits.log_softmax(-1) if readout == "share" else logits
    torch.testing.assert_close(scores, expected)


def test_odds_are_those_of_cross_entropy_and_do_not_saturate():
    scores = torch.tensor([[3.0, 1.0, 0.0], [400.0, 1.0, 0.0]], requires_grad=True)
    labels = torch.tensor([0, 0])
    odds = wrong_odds(scores, torch.eye(3, dtype=torch.bool)[labels])
    assert odds[0].item() == pytest.approx(math.log(math.e + 1) - 3)
    entropy = cross_entropy(scores, labels, reduction="none")
    torch.testing.assert_close(odds[0].exp().log1p(), entropy[0])  # log(1 + odds)
    (gradient,) = torch.autograd.grad(odds.sum(), scores, retain_graph=True)
    (flat,) = torch.autograd.grad(entropy.sum(), scores)
    assert gradient[1, 0] == -1
    assert (flat[1] == 0).all()


def test_odds_of_two_things_are_against_the_weaker_one():
    scores = torch.tensor([[50.0, 2.0, 1.0, -40.0]])
    shown = torch.tensor([[True, True, False, False]])
    assert wrong_odds(scores, shown).item() == pytest.approx(1 - 2, abs=1e-6)


def test_margin_loss_is_silent_where_the_odds_are_not():
    weight = torch.tensor([[6.0, -6.0], [-6.0, 6.0]])
    model = Linear(weight, (1, 1, 2), "length")
    images, labels = torch.tensor([[[[1.0, 0.0]]]]), torch.tensor([0])
    pixels = images.clone().requires_grad_()
    (flat,) = torch.autograd.grad(margin_loss(model(pixels).activations, labels), pixels)
    assert (flat == 0).all()
    assert image_gradients(model, images, labels).sign().flatten().tolist() == [-1, 1]


def test_gradients_of_all_iterations_are_used_whatever_training_used():
    last, every = (tiny("efficient", routing="dynamic", iterations=3, gradients=word) for word in ("last", "all"))
    images, labels = torch.rand(3, 1, 12, 12), torch.tensor([0, 1, 2])
    torch.testing.assert_close(image_gradients(last, images, labels), image_gradients(every, images, labels))
    assert {layer.routing.gradients for layer in last.routed_layers} == {"last"}


# The attacks


@pytest.mark.parametrize("readout", READOUTS)
def test_fgsm_moves_the_pixels_of_a_linear_network_as_known_by_hand(readout):
    images = torch.tensor([[[[0.5, 0.5]]], [[[0.05, 0.95]]]])
    labels = torch.tensor([0, 1])
    changed = fgsm(two_pixels(readout), images, labels, 0.125).flatten(1)
    # Away from class 0: the left pixel down, the right one up. Away from class 1: the other way.
    torch.testing.assert_close(changed, torch.tensor([[0.375, 0.625], [0.175, 0.825]]))
    driven = fgsm(two_pixels(readout), images, labels, 0.125, torch.tensor([1, 2])).flatten(1)
    # Towards class 1: left down, right up. Towards class 2, which sees nothing: both down, and never below 0.
    torch.testing.assert_close(driven, torch.tensor([[0.375, 0.625], [0.0, 0.825]]))


def test_several_steps_end_where_one_does_if_the_gradient_never_turns():
    images, labels = torch.rand(6, 1, 1, 2), torch.tensor([0, 1, 0, 1, 0, 1])
    model = two_pixels()
    torch.testing.assert_close(bim(model, images, labels, 0.2), fgsm(model, images, labels, 0.2))
    torch.testing.assert_close(pgd(model, images, labels, 0.2), fgsm(model, images, labels, 0.2))


@given(st.sampled_from(METHODS), st.floats(0, 1), st.booleans())
def test_changes_stay_within_epsilon_and_the_images_from_0_to_1(method, epsilon, targeted):
    generator = torch.Generator().manual_seed(0)
    model = Linear(torch.randn(3, 16, generator=generator), (1, 4, 4), "length")
    images, labels = torch.rand(5, 1, 4, 4, generator=generator), torch.tensor([0, 1, 2, 0, 1])
    targets = wrong_targets(labels, 3) if targeted else None
    changed = attack(method, model, images, labels, epsilon, targets, steps=3)
    assert float((changed - images).abs().max()) <= epsilon + 1e-6
    assert 0 <= float(changed.min()) <= float(changed.max()) <= 1


def test_pgd_starts_at_random_by_its_generator():
    model = tiny("cnn-small")
    images, labels = torch.rand(4, 1, 12, 12), torch.tensor([0, 1, 2, 3])
    first, again, other = (
        pgd(model, images, labels, 0.1, steps=2, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("efficient", {}),
        ("efficient", {"routing": "gaussian"}),
        ("capsnet", {}),
        ("matrix-small", {"sizes": [4, 2, 2, 2]}),
        ("cnn-small", {}),
    ],
)
def test_every_kind_of_network_can_be_attacked_and_stays_as_it_was(name, options):
    torch.manual_seed(0)
    model = create_model(name, image_shape=(1, 20, 20), classes=4, **options).train()
    frozen = next(model.parameters()).requires_grad_(False)
    state = {word: tensor.clone() for word, tensor in model.state_dict().items()}
    images, labels = torch.rand(6, 1, 20, 20), torch.tensor([0, 1, 2, 3, 0, 1])
    shown = torch.eye(4, dtype=torch.bool)[labels]
    with questioned(model):
        changed = bim(model, images, labels, 0.1, steps=3)
        before, after = (wrong_odds(class_scores(model, model(few)), shown).sum() for few in (images, changed))
    assert after > before
    assert all(module.training for module in model.modules())
    assert all(weight.grad is None for weight in model.parameters())
    assert [weight is not frozen for weight in model.parameters()] == [w.requires_grad for w in model.parameters()]
    assert all(torch.equal(tensor, state[word]) for word, tensor in model.state_dict().items())


# Another implementation: the Adversarial Robustness Toolbox


class Scored(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, images):
        return class_scores(self.model, self.model(images))


@pytest.mark.parametrize("name", ["efficient", "cnn-small"])
@pytest.mark.parametrize("targeted", [False, True])
def test_attacks_equal_those_of_the_adversarial_robustness_toolbox(name, targeted):
    pytest.importorskip("art")
    from art.attacks.evasion import BasicIterativeMethod, FastGradientMethod, ProjectedGradientDescentPyTorch
    from art.estimators.classification import PyTorchClassifier

    model = tiny(name).eval()
    images, labels = torch.rand(8, 1, 12, 12), torch.arange(8) % 4
    targets = wrong_targets(labels, 4) if targeted else None
    classifier = PyTorchClassifier(
        Scored(model), nn.CrossEntropyLoss(), (1, 12, 12), 4, clip_values=(0, 1), device_type="cpu"
    )
    aim = (labels if targets is None else targets).numpy()
    common = {"targeted": targeted, "batch_size": 8}
    theirs = [
        FastGradientMethod(classifier, eps=0.1, **common),
        BasicIterativeMethod(classifier, eps=0.1, eps_step=0.04, max_iter=5, verbose=False, **common),
        ProjectedGradientDescentPyTorch(classifier, eps=0.1, eps_step=0.05, max_iter=4, verbose=False, **common),
    ]
    ours = [
        fgsm(model, images, labels, 0.1, targets),
        bim(model, images, labels, 0.1, targets, steps=5, step_size=0.04),
        bim(model, images, labels, 0.1, targets, steps=4, step_size=0.05),
    ]
    for other, changed in zip(theirs, ours, strict=True):
        expected = torch.from_numpy(other.generate(images.numpy(), y=aim))
        apart = ((changed - expected).abs() > 1e-5).float().mean()
        assert apart < 0.002, type(other).__name__  # a gradient of 1e-9 may have either sign


# Curves


def test_points_know_their_rates_and_intervals():
    point = AttackPoint(0.1, 200, 150, 20)
    assert (point.accuracy, point.success) == (0.75, 0.1)
    assert point.interval == wilson_interval(150, 200)
    assert point.success_interval == wilson_interval(20, 200)
    assert AttackPoint(0.1, 200, 150).success is None


def steps_of_a_stair():
    """Ten images of class 0 whose odds fall to even at epsilons 0.05, 0.15, ... 0.95."""
    model = Linear([[1.0], [-1.0]], (1, 1, 1), bias=torch.tensor([0.0, 1.0]))
    images = (0.5 + (torch.arange(5) + 0.5) / 10).view(5, 1, 1, 1)
    return model, InMemoryImages(images, torch.zeros(5, dtype=torch.long), ("a", "b"))


@pytest.mark.parametrize("method", METHODS)
def test_curve_falls_where_a_linear_network_says(method):
    model, data = steps_of_a_stair()
    (curve,) = attack_curves(model, data, [0.1, 0.2, 0.4], [method], batch_size=2)
    assert [point.epsilon for point in curve.points] == [0, 0.1, 0.2, 0.4]
    assert [point.right for point in curve.points] == [5, 4, 3, 1]
    assert all(point.driven is None for point in curve.points)
    assert curve.silent == 0


def test_curve_counts_those_driven_to_their_target():
    model, data = steps_of_a_stair()
    (curve,) = attack_curves(model, data, [0.2], targeted=True)
    assert [(point.right, point.driven) for point in curve.points] == [(5, 0), (3, 2)]


def test_curve_tells_the_share_of_images_without_a_gradient():
    data = InMemoryImages(torch.full((4, 1, 1, 1), 0.5), torch.zeros(4, dtype=torch.long), ("a", "b"))
    (curve,) = attack_curves(Linear([[0.0], [0.0]], (1, 1, 1)), data, [0.2])
    assert curve.silent == 1


def test_what_misleads_one_network_is_shown_to_another():
    model, data = steps_of_a_stair()
    mirrored = Linear([[-1.0], [1.0]], (1, 1, 1))
    (brighter,) = attack_curves(model, data, [0.3], source=mirrored)
    assert brighter.points[1].right == 5
    assert attack_curves(model, data, [0.3], source=model) == attack_curves(model, data, [0.3])


def test_methods_share_what_the_images_are_as_they_are():
    model, data = steps_of_a_stair()
    asked = []
    model.register_forward_hook(lambda *_: asked.append(1))
    first, second = attack_curves(model, data, [0.1], ["fgsm", "bim"], steps=3)
    assert (first.method, second.method) == ("fgsm", "bim")
    assert first.points[0] is second.points[0]
    assert len(asked) == 1 + 1 + (1 + 1) + (3 + 1)  # clean gradients and answers, then steps and answers of each


def test_a_source_elsewhere_is_copied_and_stays_where_it_is():
    source = two_pixels()
    assert brought(source, torch.device("cpu")) is source
    assert brought(source, torch.device("meta")).weight.device.type == "meta"
    assert source.weight.device.type == "cpu"


def test_examples_are_the_images_at_each_epsilon_with_their_answers():
    model, data = steps_of_a_stair()
    examples = attack_examples(model, data, [0.1, 0.2])
    assert examples.epsilons == (0, 0.1, 0.2)
    torch.testing.assert_close(examples.images[2], data.images - 0.2)
    assert (examples.activations.argmax(-1) == 0).sum(1).tolist() == [5, 4, 3]


def test_pairs_are_attacked_too():
    pairs = some(PairSet(load_dataset("digits").test, shift=2), 6)
    torch.manual_seed(0)
    model = create_model("efficient", image_shape=(1, 12, 12), classes=10, capsules=8)
    (curve,) = attack_curves(model, pairs, [0.1], targeted=True)
    assert [point.count for point in curve.points] == [6, 6]
    targets = wrong_targets(pairs.labels, 10)
    assert not (targets.unsqueeze(-1) == pairs.labels).any()


def test_targets_are_all_the_wrong_classes():
    labels = torch.arange(3).repeat(200)
    targets = wrong_targets(labels, 3, seed=1)
    pairs = torch.bincount(3 * labels + targets, minlength=9).view(3, 3)
    assert pairs.diagonal().sum() == 0
    assert pairs.sum() == 600
    assert (pairs + 200 * torch.eye(3, dtype=torch.long)).min() > 60
    assert torch.equal(targets, wrong_targets(labels, 3, seed=1))


# Mistakes


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"images": torch.full((1, 1, 1, 2), 2.0)}, "^attack: expected images from 0 to 1, got 2 to 2"),
        ({"epsilon": 1.5}, "expected epsilon between 0 and 1, got 1.5"),
        ({"labels": torch.tensor([3])}, "expected class indices from 0 to 2, got 3"),
        ({"targets": torch.tensor([7])}, "expected class indices from 0 to 2, got 7"),
        ({"images": torch.zeros(1, 1, 2, 2)}, "expected images"),
    ],
)
def test_mistakes_are_told(change, expected):
    given = {"images": torch.rand(1, 1, 1, 2), "labels": torch.tensor([0]), "epsilon": 0.1} | change
    with pytest.raises(InputError, match=expected):
        fgsm(two_pixels(), **given)


def test_texts_are_refused():
    model = create_model("textcnn", vocabulary=20, classes=2)
    with pytest.raises(InputError, match="expected a network that reads images, got a TextCNN"):
        fgsm(model, torch.rand(1, 1, 1, 2), torch.tensor([0]), 0.1)


def test_an_image_that_shows_all_classes_has_no_wrong_one():
    with pytest.raises(InputError, match="expected a class that an image does not show, got none"):
        wrong_targets(torch.tensor([[0, 1]]), 2)


def test_some_examples_are_drawn_by_the_seed():
    digits = load_dataset("digits").test
    few = some(digits, 20, seed=3)
    assert torch.equal(few.images, some(digits, 20, seed=3).images)
    assert not torch.equal(few.labels, some(digits, 20, seed=4).labels)
    assert len(some(digits, 10**6)) == len(digits)
    torch.manual_seed(0)
    model = create_model("cnn-small", image_shape=(1, 8, 8), classes=10)
    assert evaluate(model, few).count == 20
