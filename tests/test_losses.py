import math

import pytest
import torch

import torchcaps as tc
from tests.support.routings import sized
from torchcaps._core.errors import InputError
from torchcaps.losses import LOSSES, READOUTS, Answer, class_loss

LENGTHS = torch.tensor([[0.95, 0.3, 0.05], [0.5, 0.2, 0.7]])
LABELS = torch.tensor([0, 1])
# By hand: example 0: 0 + .5 (.2^2) = .02; example 1: (.9-.2)^2 + .5 (.4^2 + .6^2) = .49 + .26 = .75
BY_HAND = torch.tensor([0.02, 0.75])


def test_margin_loss_equals_hand_computed_numbers():
    torch.testing.assert_close(tc.margin_loss(LENGTHS, LABELS, reduction="none"), BY_HAND)
    torch.testing.assert_close(tc.margin_loss(LENGTHS, LABELS), BY_HAND.mean())


def test_official_margin_loss_is_half_the_mean_over_classes():
    classes = LENGTHS.shape[1]
    torch.testing.assert_close(tc.margin_loss(LENGTHS, LABELS, convention="official"), BY_HAND.mean() / (2 * classes))


def test_margin_terms_are_squared_hinges():
    perfect = torch.tensor([[0.9, 0.1, 0.0], [1.0, 0.05, 0.1]])
    assert tc.margin_loss(perfect, torch.tensor([0, 0])) == 0
    beyond = torch.tensor([[0.7, 0.1]], requires_grad=True)
    tc.margin_loss(beyond, torch.tensor([0])).backward()
    torch.testing.assert_close(beyond.grad, torch.tensor([[-0.4, 0.0]]))


def test_margin_arguments_are_used():
    loss = tc.margin_loss(LENGTHS[1:], LABELS[1:], positive_margin=0.8, negative_margin=0.4, down_weight=0.25)
    torch.testing.assert_close(loss, torch.tensor(0.6**2 + 0.25 * (0.1**2 + 0.3**2)))


def test_margin_loss_takes_several_labels_at_once():
    several = torch.tensor([[1, 1, 0], [0, 0, 0]])
    expected = torch.tensor([0.6**2, 0.5 * (0.4**2 + 0.1**2 + 0.6**2)])
    for labels in (several, several.bool(), several.float()):
        torch.testing.assert_close(tc.margin_loss(LENGTHS, labels, reduction="none"), expected)


def test_noise_class_leaves_the_loss():
    with_noise = torch.cat([LENGTHS, torch.tensor([[0.99], [0.6]])], 1)
    torch.testing.assert_close(tc.margin_loss(with_noise, LABELS, noise_class=True), tc.margin_loss(LENGTHS, LABELS))
    torch.testing.assert_close(tc.spread_loss(with_noise, LABELS, noise_class=True), tc.spread_loss(LENGTHS, LABELS))


def test_margin_is_reachable_by_lengths_as_layers_give_them():
    """A softmax over lengths cannot exceed e/(e+9) = .23 for ten classes; lengths themselves reach m+."""
    layer = tc.DenseCapsules(20, 10, 8, 16, std=1.0)
    poses = torch.randn(1, 20, 8)
    parents = layer(tc.Capsules(poses, tc.length(poses)))
    assert parents.activations.max() > math.e / (math.e + 9)
    torch.testing.assert_close(parents.activations, parents.poses.norm(dim=-1))
    lengths = torch.eye(10)[:1]
    assert float(tc.margin_loss(lengths, torch.tensor([0]))) == 0
    assert float(tc.margin_loss(lengths.softmax(-1), torch.tensor([0]))) > (0.9 - math.e / (math.e + 9) - 1e-6) ** 2


def test_spread_loss_equals_hand_computed_numbers():
    # example 0: (.9-.65)^2 + (.9-.9)^2 = .0625; example 1: (.9+.3)^2 + (.9+.5)^2 = 3.4
    torch.testing.assert_close(tc.spread_loss(LENGTHS, LABELS, 0.9, reduction="none"), torch.tensor([0.0625, 3.4]))
    torch.testing.assert_close(tc.spread_loss(LENGTHS, LABELS, 0.9), torch.tensor((0.0625 + 3.4) / 2))
    torch.testing.assert_close(
        tc.spread_loss(LENGTHS, LABELS, 0.9, convention="official"), torch.tensor((0.0625 + 3.4) / 6)
    )


def test_spread_margin_follows_its_schedules():
    assert tc.spread_margin(0) == pytest.approx(0.2)
    assert tc.spread_margin(25_000) == pytest.approx(0.55)
    assert tc.spread_margin(10**9) == pytest.approx(0.9)
    assert tc.spread_margin(0, schedule="sigmoid") == pytest.approx(0.2 + 0.79 / (1 + math.exp(4)))
    assert tc.spread_margin(200_000, schedule="sigmoid") == pytest.approx(0.2 + 0.79 / 2)
    assert tc.spread_margin(10**9, schedule="sigmoid") == pytest.approx(0.2 + 0.79 / (1 + math.exp(-10)))


def test_reconstruction_loss_sums_over_pixels():
    images = torch.zeros(2, 1, 28, 28)
    drawn = torch.full_like(images, 0.5)
    torch.testing.assert_close(tc.reconstruction_loss(drawn, images), torch.tensor(0.0005 * 784 * 0.25))
    torch.testing.assert_close(tc.reconstruction_loss(drawn, images), 0.392 * (drawn - images).square().mean())


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: tc.margin_loss(LENGTHS, torch.tensor([0])),
            r"margin_loss: expected class indices \[\*b\] = \(2\).*got \(1\)",
        ),
        (lambda: tc.margin_loss(LENGTHS, torch.tensor([0.0, 1.0])), "of torch.float32"),
        (lambda: tc.margin_loss(torch.tensor(0.5), LABELS), r"expected activations \[\*b y\], got a single number"),
        (lambda: tc.margin_loss(LENGTHS[0], LABELS), r"expected class indices \[\*b\] = \(\) or truth values"),
        (
            lambda: tc.margin_loss(LENGTHS, LABELS, reduction="paper"),
            "reduction to be one of 'mean', 'sum', 'none'",
        ),
        (
            lambda: tc.MarginLoss(convention="mine"),
            "MarginLoss: expected convention to be one of 'paper', 'official'",
        ),
        (lambda: tc.margin_loss(LENGTHS, LABELS, positive_margin=0.05), "positive_margin between 0.1"),
        (lambda: tc.margin_loss(LENGTHS, torch.tensor([0, 3])), "class indices from 0 to 2, got 3"),
        (lambda: tc.margin_loss(LENGTHS, torch.tensor([0, -1])), "got -1"),
        (lambda: tc.margin_loss(LENGTHS, [0, 1]), "labels as a tensor, got a list"),
        (lambda: tc.margin_loss(tc.Capsules(LENGTHS, LENGTHS), LABELS), "Pass capsules.activations"),
        (lambda: tc.margin_loss(LENGTHS, LABELS, down_weight=-1), "down_weight between 0"),
        (lambda: tc.margin_loss(LENGTHS, torch.full((2, 3), 7.0)), "truth values .* got 7"),
        (lambda: tc.spread_loss(LENGTHS, [0, 1]), "class indices .* got list"),
        (lambda: tc.spread_loss(LENGTHS, torch.tensor([0.0, 1.0])), "Pass whole numbers"),
        (lambda: tc.spread_margin(0, steps=0), "steps above 0"),
        (lambda: tc.spread_margin(-1), "step between 0"),
        (lambda: tc.spread_loss(LENGTHS, torch.ones(2, 3)), "margin_loss takes several labels at once"),
        (lambda: tc.spread_margin(0, schedule="cosine"), "schedule to be one of 'linear', 'sigmoid'"),
        (lambda: tc.reconstruction_loss(torch.ones(2, 3), torch.ones(2, 4)), "Compare images of one shape"),
    ],
)
def test_wrong_arguments_get_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


@pytest.mark.parametrize("loss", [tc.margin_loss, tc.spread_loss])
@pytest.mark.parametrize("leading", [(), (4,), (2, 3), (2, 1, 3)])
def test_axes_before_the_classes_are_free(loss, leading):
    activations, labels = torch.rand(*leading, 5), torch.randint(5, leading)
    flat = loss(activations.view(-1, 5), labels.view(-1), reduction="none")
    torch.testing.assert_close(loss(activations, labels, reduction="none"), flat.view(leading))
    for options in ({}, {"convention": "official"}, {"reduction": "sum"}):
        whole = loss(activations.view(-1, 5), labels.view(-1), **options)
        torch.testing.assert_close(loss(activations, labels, **options), whole)


@pytest.mark.parametrize("noise_class", [False, True])
@pytest.mark.parametrize("convention", ["paper", "official"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("loss", [tc.MarginLoss, tc.SpreadLoss])
def test_pixels_are_examples(loss, reduction, convention, noise_class):
    """Activations [b h w y] and labels [b h w], pixel by pixel; gradients too."""
    activations, labels = torch.rand(2, 3, 4, 5, dtype=torch.float64, requires_grad=True), torch.randint(4, (2, 3, 4))
    options = {"convention": convention, "noise_class": noise_class}
    found = loss(reduction=reduction, **options)(activations, labels)
    alone = loss(**options)
    each = [
        alone(activations[b, y, x][None], labels[b, y, x][None]) for b in range(2) for y in range(3) for x in range(4)
    ]
    expected = torch.stack(each).view(2, 3, 4)
    expected = expected if reduction == "none" else getattr(expected, reduction)()
    torch.testing.assert_close(found, expected)
    slopes = [torch.autograd.grad(value.sum(), activations, retain_graph=True)[0] for value in (found, expected)]
    torch.testing.assert_close(*slopes)


def test_margin_loss_takes_several_labels_for_each_pixel():
    activations = torch.rand(2, 3, 4, 5)
    truth = torch.rand(2, 3, 4, 5) > 0.5
    found = tc.margin_loss(activations, truth, reduction="none")
    torch.testing.assert_close(found[1, 2, 3], tc.margin_loss(activations[1, 2, 3], truth[1, 2, 3]))


@pytest.mark.parametrize("loss", [tc.margin_loss, tc.spread_loss])
def test_losses_have_gradients_for_each_example(loss):
    activations, labels = torch.rand(4, 5), torch.randint(5, (4,))
    found = torch.func.vmap(torch.func.grad(loss))(activations, labels)
    leaf = activations.clone().requires_grad_()
    (expected,) = torch.autograd.grad(loss(leaf, labels, reduction="none").sum(), leaf)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("convention", ["paper", "official"])
@pytest.mark.parametrize("loss", [tc.margin_loss, tc.spread_loss])
def test_reductions_are_those_of_torch(loss, convention):
    each = loss(LENGTHS, LABELS, reduction="none", convention=convention)
    torch.testing.assert_close(loss(LENGTHS, LABELS, reduction="sum", convention=convention), each.sum())
    torch.testing.assert_close(loss(LENGTHS, LABELS, convention=convention), each.mean())


def test_modules_are_the_functions():
    options = {"down_weight": 0.2, "positive_margin": 0.8, "reduction": "sum", "convention": "official"}
    torch.testing.assert_close(tc.MarginLoss(**options)(LENGTHS, LABELS), tc.margin_loss(LENGTHS, LABELS, **options))
    expected = tc.spread_loss(LENGTHS, LABELS, 0.4, reduction="none", noise_class=True)
    torch.testing.assert_close(tc.SpreadLoss(0.4, reduction="none", noise_class=True)(LENGTHS, LABELS), expected)
    assert "reduction='sum'" in repr(tc.MarginLoss(reduction="sum"))


def test_every_kind_of_activation_has_a_loss():
    assert set(READOUTS.values()) | {"official-margin"} == set(LOSSES)
    assert {tc.make_routing(name, **sized(name)).readout for name in tc.ROUTINGS} <= set(READOUTS)


def test_a_loss_from_outside_is_one_entry(monkeypatch):
    monkeypatch.setitem(LOSSES, "brier", lambda it: (1 - it.capsules.activations[:, 0]).square().mean())
    capsules = tc.Capsules(torch.zeros(2, 3, 4), LENGTHS)
    expected = (1 - LENGTHS[:, 0]).square().mean()
    torch.testing.assert_close(class_loss("brier", Answer(capsules, LABELS, "length")), expected)


@pytest.mark.parametrize("loss", [tc.margin_loss, tc.spread_loss])
@pytest.mark.parametrize("axes", [(), (2, 3)])
def test_a_weight_for_each_class_weighs_examples_as_in_torch(loss, axes):
    activations, labels = torch.rand(*axes, 7, 3), torch.randint(3, (*axes, 7))
    weight = torch.tensor([1.0, 2.0, 0.5])
    plain = loss(activations, labels, reduction="none")
    factors = weight[labels]
    torch.testing.assert_close(loss(activations, labels, weight=weight, reduction="none"), plain * factors)
    torch.testing.assert_close(loss(activations, labels, weight=weight, reduction="sum"), (plain * factors).sum())
    mean = (plain * factors).sum() / factors.sum()
    torch.testing.assert_close(loss(activations, labels, weight=weight), mean)
    module = tc.MarginLoss(weight=weight) if loss is tc.margin_loss else tc.SpreadLoss(weight=weight)
    torch.testing.assert_close(module(activations, labels), mean)
    assert "weight" in module.state_dict()


def test_a_weight_of_another_size_gets_one_sentence():
    with pytest.raises(InputError, match=r"margin_loss: expected weight \[y\] = \(3\) as a tensor, got \(2\)"):
        tc.margin_loss(torch.rand(2, 3), torch.tensor([0, 1]), weight=torch.ones(2))


@pytest.mark.parametrize("kind", sorted(LOSSES))
def test_weights_of_examples_weigh_every_loss(kind):
    activations, labels = torch.rand(4, 3).softmax(-1), torch.tensor([0, 1, 2, 1])
    weights = torch.tensor([2.0, 0.0, 1.0, 1.0])
    capsules = tc.Capsules(torch.rand(4, 3, 5), activations)

    def loss_of(rows, weights=None):
        part = tc.Capsules(capsules.poses[rows], activations[rows])
        return class_loss(kind, Answer(part, labels[rows], "length", weights=weights))

    everything = torch.arange(4)
    expected = sum(weight * loss_of(row[None]) for row, weight in zip(everything, weights, strict=True)) / 4
    torch.testing.assert_close(loss_of(everything, weights), expected)
