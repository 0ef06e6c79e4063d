"""Gradients and costs of layers against what autograd and arithmetic say."""

import copy

import pytest
import torch

import torchcaps as tc
from torchcaps._core.types import Capsules
from torchcaps.analysis.cost import gradient_norms, iteration_costs, peak_bytes
from torchcaps.data import Batch
from torchcaps.losses import margin_loss


def loss(capsules, labels):
    return margin_loss(capsules.activations, labels)


def test_gradient_norms_are_those_of_a_backward_pass():
    model = tc.create_model("matrix-small", image_shape=(1, 20, 20), classes=3, sizes=(4, 2, 3, 2), routing="dynamic")
    model.eval()
    batch = Batch(torch.rand(4, 1, 20, 20), torch.tensor([0, 1, 2, 0]))
    found = gradient_norms(model, batch, loss)
    assert all(parameter.grad is None for parameter in model.parameters())
    other = copy.deepcopy(model)
    children = other.children_of(batch.inputs)
    children.poses.retain_grad()
    capsules = children
    for layer in other.routed_layers:
        capsules = layer(capsules)
    loss(capsules, batch.labels).backward()
    assert found["layer 1"].poses == pytest.approx(float(children.poses.grad.norm()), rel=1e-4)
    for name, layer in zip(found, other.routed_layers, strict=True):
        norms = [parameter.grad.norm() for parameter in layer.parameters()]
        assert found[name].parameters == pytest.approx(float(torch.stack(norms).norm()), rel=1e-4), name


def test_a_layer_that_does_not_learn_has_no_gradient():
    model = tc.create_model(image_shape=(1, 12, 12), classes=3).eval()
    model.requires_grad_(False)
    model.layers[0].transform.requires_grad_(True)
    found = gradient_norms(model, Batch(torch.rand(2, 1, 12, 12), torch.tensor([0, 1])), loss)["classes"]
    assert found.parameters > 0
    assert found.poses == 0


def test_peak_bytes_counts_what_lives_at_once():
    given = torch.ones(1000)

    def chain():
        value = given + 1
        for _ in range(5):
            value = value * 2
        return value

    assert peak_bytes(chain) == 8000  # the old and the new one
    assert peak_bytes(lambda: [given + 1, given + 2, given + 3]) == 12000
    assert peak_bytes(lambda: given.view(10, 100)) == 0  # not made here


def test_costs_are_told_for_each_number_of_iterations():
    layer = tc.DenseCapsules(6, 3, 4, 4, iterations=3)
    children = Capsules(torch.randn(8, 6, 4), torch.ones(8, 6))
    costs = iteration_costs(layer, children, repeats=2)
    assert [cost.iterations for cost in costs] == [1, 2, 3]
    assert all(cost.seconds > 0 for cost in costs)
    assert all(cost.peak_bytes >= 4 * 8 * 3 * (4 + 1) for cost in costs)  # at least the answer
    assert layer.routing.iterations == 3
