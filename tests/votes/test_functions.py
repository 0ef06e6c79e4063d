"""torch.func works by itself, for every layer and the losses: vmap, grad, jvp, gradients of single examples."""

import pytest
import torch
from torch.func import functional_call, grad, jacrev, jvp, vmap

import torchcaps as tc
from torchcaps.losses import margin_loss, spread_loss


def grid(*shape, dim=4):
    return torch.randn(*shape, dim).double(), torch.rand(*shape).double()


LAYERS = {
    "dense": (lambda: tc.DenseCapsules(6, 3, 4, 5), (6,)),
    "dense em": (lambda: tc.DenseCapsules(6, 3, 4, 5, routing="em", iterations=2), (6,)),
    "dense shared": (lambda: tc.DenseCapsules(None, 3, 4, 5, votes="shared", vote_bias=True), (6,)),
    "dense kde": (lambda: tc.DenseCapsules(6, 3, 4, 5, routing="kde"), (6,)),
    "dense attention": (lambda: tc.DenseCapsules(6, 3, 4, 5, routing="attention"), (6,)),
    "factorized": (lambda: tc.DenseCapsules(6, 3, 4, 5, votes="factorized", gradients="last"), (6,)),
    "conv": (lambda: tc.ConvCapsules2d(2, 3, 4, 4, 3, 2, 1, votes="matrix", routing="em", iterations=2), (5, 5, 2)),
    "window": (lambda: tc.ConvCapsules2d(2, 3, 4, 4, 3, competition="window"), (5, 5, 2)),
    "conv 1d": (lambda: tc.ConvCapsules1d(2, 3, 4, 4, 3, leaky=True), (7, 2)),
    "conv 3d": (lambda: tc.ConvCapsules3d(2, 3, 4, 4, 2, padding=1, dilation=2), (2, 3, 3, 2)),
    "transposed": (lambda: tc.ConvTransposeCapsules2d(2, 3, 4, 4, 2, 3, routing="em", iterations=2), (2, 2, 2)),
    "classes": (lambda: tc.ClassCapsules(2, 3, 4, 4), (3, 4, 2)),
}


@pytest.fixture(params=LAYERS)
def case(request):
    make, shape = LAYERS[request.param]
    layer = make().double()
    return layer, grid(3, *shape)


def loss_of(layer, parameters, poses, activations):
    parents = functional_call(layer, parameters, (tc.Capsules(poses, activations),))
    weights = torch.linspace(-1, 1, parents.poses[0].numel(), dtype=poses.dtype)
    return (parents.poses.flatten(1) * weights).sum() + parents.activations.square().sum()


def test_grad_is_that_of_autograd(case):
    layer, (poses, activations) = case
    parameters = {name: value.detach() for name, value in layer.named_parameters()}
    found = grad(lambda given: loss_of(layer, given, poses, activations))(parameters)
    loss = loss_of(layer, dict(layer.named_parameters()), poses, activations)
    expected = torch.autograd.grad(loss, list(layer.parameters()), allow_unused=True)
    for mine, theirs in zip(found.values(), expected, strict=True):
        torch.testing.assert_close(mine, torch.zeros_like(mine) if theirs is None else theirs, rtol=1e-8, atol=1e-10)


def test_gradients_of_single_examples_add_up(case):
    layer, (poses, activations) = case
    parameters = {name: value.detach() for name, value in layer.named_parameters()}

    def alone(given, pose, activation):
        return loss_of(layer, given, pose.unsqueeze(0), activation.unsqueeze(0))

    each = vmap(grad(alone), in_dims=(None, 0, 0))(parameters, poses, activations)
    whole = grad(lambda given: loss_of(layer, given, poses, activations))(parameters)
    for name, gradient in whole.items():
        torch.testing.assert_close(each[name].sum(0), gradient, rtol=1e-8, atol=1e-10)


@pytest.mark.filterwarnings("ignore")  # torch's own, of its jvp
def test_jvp_is_the_product_with_the_gradient(case):
    layer, (poses, activations) = case
    parameters = dict(layer.named_parameters())
    change = torch.randn_like(poses)
    _, found = jvp(lambda given: loss_of(layer, parameters, given, activations), (poses,), (change,))
    leaf = poses.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss_of(layer, parameters, leaf, activations), leaf)
    if layer.routing.gradients == "all":
        torch.testing.assert_close(found, (gradient * change).sum(), rtol=1e-8, atol=1e-10)
    assert found.isfinite()


@pytest.mark.filterwarnings("ignore")  # torch's own, of its vmap
def test_vmap_is_a_loop(case):
    layer, (poses, activations) = case

    def alone(pose, activation):
        return tuple(layer(tc.Capsules(pose.unsqueeze(0), activation.unsqueeze(0)))[:2])

    with torch.no_grad():
        found = vmap(alone)(poses, activations)
        whole = layer(tc.Capsules(poses, activations))
    for mine, theirs in zip(found, whole[:2], strict=True):
        torch.testing.assert_close(mine.squeeze(1), theirs, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("loss", [margin_loss, spread_loss])
def test_losses_of_single_examples(loss):
    activations, labels = torch.rand(4, 3).double(), torch.tensor([0, 2, 1, 1])
    each = vmap(grad(lambda given, label: loss(given.unsqueeze(0), label.unsqueeze(0))))(activations, labels)
    whole = jacrev(lambda given: loss(given, labels))(activations)
    torch.testing.assert_close(each / 4, whole)


def test_forward_mode_of_torch_itself(case):
    layer, (poses, activations) = case
    if layer.routing.gradients == "last":
        pytest.skip("the last iteration alone has gradients")
    forward = torch.autograd.forward_ad
    change = torch.randn_like(poses)
    with forward.dual_level(), torch.no_grad():
        dual = forward.make_dual(poses, change)
        tangent = forward.unpack_dual(layer(tc.Capsules(dual, activations)).poses).tangent
    _, expected = jvp(lambda given: layer(tc.Capsules(given, activations)).poses, (poses,), (change,))
    torch.testing.assert_close(tangent, expected)
