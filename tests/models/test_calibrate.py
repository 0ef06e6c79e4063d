"""A calibrated start: every layer of a deep stack is alive, whatever the routing, and what a user set stays set."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import torchcaps as tc
from torchcaps.data import load_dataset
from torchcaps.models import calibrate

DEPTH = 6


@pytest.fixture(scope="module")
def digits():
    return load_dataset("mnist-5k").train.batch(torch.arange(24))


class Own(nn.Module):
    """A stack of somebody's own, without skip connections, and of no class that the library knows."""

    def __init__(self, routing, depth=DEPTH, **options):
        super().__init__()
        self.stem = nn.Conv2d(1, 16, 5, stride=3)
        kind = "matrix" if tc.ROUTINGS[routing].uses_activations else "vector"
        self.primary = tc.PrimaryCapsules(16, 4, 16, kind=kind)
        softer = {"sharpness": 1 / 16} if tc.ROUTINGS[routing].options().get("sharpness") == 1 else {}
        options = {"votes": "matrix", "routing": routing, **softer, **options}
        self.inner = nn.ModuleList(tc.ConvCapsules2d(4, 4, 16, 16, 3, padding=1, **options) for _ in range(depth - 1))
        self.last = tc.ClassCapsules(4, 10, 16, 16, **options)

    def forward(self, images):
        capsules = self.primary(self.stem(images).relu())
        for layer in self.inner:
            capsules = layer(capsules)
        return self.last(capsules)


def layers_of(model):
    return [module for module in model.modules() if isinstance(module, tc.layers.RoutedLayer)]


def seen_in(model, images):
    """The capsules that each routed layer gives, with gradients."""
    seen = []

    def note(layer, given, capsules):
        capsules.poses.retain_grad()
        seen.append(capsules)

    handles = [layer.register_forward_hook(note) for layer in layers_of(model)]
    answer = model(images)
    for handle in handles:
        handle.remove()
    return seen, answer


def loss_of(capsules, labels):
    return cross_entropy(torch.logit(capsules.activations, eps=1e-6), labels)


def check(model, digits, low, most, rate=3e-3, steps=8):
    """Mean activations from low to 0.95, gradients whose norms differ by less than a factor; losses of a few steps."""
    calibrate(model, digits.inputs)
    seen, answer = seen_in(model, digits.inputs)
    *_, last = layers_of(model)
    for layer, capsules in zip(layers_of(model), seen, strict=True):
        mean = float(capsules.activations.detach().mean())
        if layer.routing.readout == "share":  # of the children (over all windows), or one: measured by an even share
            windows = 9 if layer.routing.name in ("kmeans", "kde") and layer is not last and not layer.skip else 1
            mean *= windows * capsules.activations.shape[-1] / 2
        assert low < mean < 0.95, (layer, mean)
    loss_of(answer, digits.labels).backward()
    norms = [float(capsules.poses.grad.flatten(1).norm(dim=1).mean()) for capsules in seen[:-1]]
    assert max(norms) < most * min(norms), norms
    optimizer = torch.optim.Adam(model.parameters(), rate)
    losses = []
    for _ in range(steps):
        loss = loss_of(model(digits.inputs), digits.labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.parametrize("routing", tc.ROUTINGS)
def test_deep_capsules_of_every_routing_start_alive(routing, digits):
    torch.manual_seed(0)
    model = tc.create_model("deep", image_shape=(1, 28, 28), classes=10, depth=DEPTH, capsules=4, routing=routing)
    losses = check(model, digits, 0.05, 30)
    assert losses[-1] < losses[0], losses


@pytest.mark.parametrize("routing", tc.ROUTINGS)
def test_a_stack_of_ones_own_with_normalized_poses_starts_alive(routing, digits):
    torch.manual_seed(0)
    losses = check(Own(routing, normalize_poses=True), digits, 0.05, 30, rate=1e-3)
    assert losses[-1] < losses[0], losses


@pytest.mark.parametrize("routing", tc.ROUTINGS)
def test_a_plain_stack_of_ones_own_starts_alive(routing, digits):
    """Without normalized poses and skip connections: gradients grow or shrink by up to a factor of 4 in each layer."""
    torch.manual_seed(0)
    losses = check(Own(routing), digits, 0.05, 4 ** (DEPTH - 1), rate=1e-3)
    assert losses[-1] < losses[0], losses


def test_what_a_user_set_stays_set(digits):
    def calibrated(**options):
        torch.manual_seed(0)
        model = Own("em", depth=2, **options)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        calibrate(model, digits.inputs)
        return {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}

    def ends(names):
        return {name.split(".")[-1] for name in names}

    assert ends(calibrated()) == {"weight", "beta_use", "inverse_temperature"}
    assert ends(calibrated(beta_use=0.3)) == {"weight", "inverse_temperature"}
    assert ends(calibrated(inverse_temperature=0.1)) == {"weight", "beta_use"}
    assert ends(calibrated(std=0.2)) == {"beta_use", "inverse_temperature"}
    assert ends(calibrated(preset="official")) == {"weight"}
    assert not calibrated(preset="official", std=0.2)


def test_the_official_preset_is_alive(digits):
    """Its temperature and costs once were overwritten, and all activations and gradients were zero."""
    torch.manual_seed(0)
    options = {"preset": "official", "sizes": (16, 4, 4, 4)}
    model = tc.create_model("matrix-small", image_shape=(1, 28, 28), classes=10, **options)
    calibrate(model, digits.inputs)
    seen, answer = seen_in(model, digits.inputs)
    loss_of(answer, digits.labels).backward()
    assert all(0.01 < float(capsules.activations.detach().mean()) < 0.2 for capsules in seen)
    assert all(float(layer.transform.weight.grad.norm()) > 1e-4 for layer in layers_of(model))


def test_calibration_leaves_modes_and_running_means_alone(digits):
    model = tc.create_model("deep", image_shape=(1, 28, 28), classes=10, depth=2, capsules=4)
    model.encoder[1].eval()
    before = model.encoder[1].running_mean.clone()
    calibrate(model, digits.inputs)
    assert model.training
    assert not model.encoder[1].training
    assert torch.equal(model.encoder[1].running_mean, before)
    assert int(model.encoder[4].num_batches_tracked) == 0
