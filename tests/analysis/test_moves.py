"""How capsules answer to moves and signs, on networks whose answer is known."""

import pytest
import torch

import torchcaps as tc
from torchcaps._core.errors import InputError
from torchcaps._core.types import Capsules
from torchcaps.analysis.layers import children_of_layers, named_layers
from torchcaps.analysis.moves import MOVES, angles, mirrors, move, responses
from torchcaps.models import CapsuleModel


def test_angles_are_exact_for_small_and_for_opposite_poses():
    first = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0], [1.0, 0.0]])
    second = torch.tensor([[1.0, 1.0], [-1.0, 0.0], [0.0, 0.1], [1.0, 1e-5]])
    found = angles(first, second)
    torch.testing.assert_close(found[:3], torch.tensor([45.0, 180.0, 0.0]), atol=1e-3, rtol=0)
    assert float(found[3]) == pytest.approx(5.7296e-4, rel=1e-3)


def test_a_move_by_a_pixel_shifts_the_image():
    images = torch.rand(2, 1, 6, 6)
    torch.testing.assert_close(move(images, 1, 0, 0)[..., 1:], images[..., :-1])
    torch.testing.assert_close(move(images, 0, -2, 0)[..., :-2, :], images[..., 2:, :])
    torch.testing.assert_close(move(images, 0, 0, 90), images.rot90(-1, (2, 3)), atol=1e-5, rtol=1e-5)


class Compass(CapsuleModel):
    """A network that is equivariant by construction: the pose points to the center of brightness, which is its length.

    Two classes, of which the first one always wins; one primary capsule says the same.
    """

    def __init__(self):
        torch.nn.Module.__init__(self)

    def forward(self, images):
        pose, active = self._moments(images)
        return Capsules(
            torch.stack([pose, torch.zeros_like(pose)], 1), torch.stack([active, torch.zeros_like(active)], 1)
        )

    def children_of(self, images):
        pose, active = self._moments(images)
        return Capsules(pose.unsqueeze(1), active.unsqueeze(1))

    def _moments(self, images):
        steps = torch.arange(images.shape[-1]) - (images.shape[-1] - 1) / 2
        total = images.sum((1, 2, 3))
        right, down = (images.sum((1, axis)) @ steps for axis in (2, 3))
        return torch.stack([right, down], -1) / total.unsqueeze(-1), total / 100


def blobs(*centers, size=21):
    steps = torch.arange(size) - (size - 1) / 2
    y, x = torch.meshgrid(steps, steps, indexing="ij")
    return torch.stack([(-((x - a) ** 2 + (y - b) ** 2) / 4).exp() for a, b in centers]).unsqueeze(1)


def test_an_equivariant_network_turns_its_poses_with_the_image():
    found = responses(Compass(), blobs((4, 0), (0, -4)))
    by_name = {each.move: each for each in found.responses}
    assert list(by_name) == list(MOVES)
    for degrees in (5, 10):
        each = by_name[f"turn {degrees} degrees"]
        assert each.angle == pytest.approx(degrees, rel=0.02)
        assert each.primary_angle == pytest.approx(degrees, rel=0.02)
        assert each.change < 1e-3
    # Along the pose a shift turns nothing; across, by atan(1/4): half of the ways each.
    assert by_name["shift 1 pixel"].angle == pytest.approx(14.036 / 2, rel=0.02)
    assert by_name["shift 1 pixel"].change < 1e-3
    assert found.between == pytest.approx(90, rel=0.01)


def test_without_bias_dynamic_routing_cannot_tell_x_from_minus_x():
    images = torch.rand(5, 1, 12, 12)
    model = tc.create_model(image_shape=(1, 12, 12), classes=3, routing="dynamic", decoder=False).eval()
    assert mirrors(model, images)["classes"].change < 1e-6
    biased = tc.create_model(image_shape=(1, 12, 12), classes=3, routing="dynamic", vote_bias=True, decoder=False)
    biased.eval()
    assert mirrors(biased, images)["classes"].change < 1e-6  # a bias of zero
    torch.nn.init.normal_(biased.layers[0].transform.bias, std=0.1)
    assert mirrors(biased, images)["classes"].change > 0.01


def test_signs_and_children_leave_no_hook_behind():
    model = tc.create_model(image_shape=(1, 12, 12), classes=3).eval()
    images = torch.rand(2, 1, 12, 12)
    before = model(images)
    mirrors(model, images)
    seen, answer = children_of_layers(model, images)
    assert not model.layers[0]._forward_pre_hooks
    torch.testing.assert_close(answer.activations, before.activations)
    torch.testing.assert_close(model.layers[0](seen["classes"]).activations, before.activations)


def test_layers_have_names():
    slim = {"sizes": (4, 2, 2, 2)}
    matrix = tc.create_model("matrix-small", image_shape=(1, 20, 20), classes=3, **slim)
    assert list(named_layers("x", matrix)) == ["layer 1", "layer 2", "classes"]
    text = tc.create_model("text-b", vocabulary=9, classes=2)
    assert list(named_layers("x", text))[:3] == ["3-grams layer 1", "3-grams classes", "4-grams layer 1"]
    with pytest.raises(InputError, match=r"^x: expected a network that routes capsules, got SmallCNN\. Choose a run"):
        named_layers("x", tc.create_model("cnn-small", image_shape=(1, 20, 20), classes=3))
