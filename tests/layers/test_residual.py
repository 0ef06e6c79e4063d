"""Normalized poses and skip connections: what they compute, and where they are refused."""

import pytest
import torch
from torch.nn.functional import layer_norm

import torchcaps as tc


def grid(*shape, mask=False):
    torch.manual_seed(0)
    poses = torch.randn(*shape, 4, dtype=torch.float64)
    return tc.Capsules(poses, torch.rand(shape, dtype=torch.float64), torch.rand(shape) > 0.3 if mask else None)


def pair(layer, **options):
    """The same layer with and without an option."""
    made = []
    for more in (options, {}):
        torch.manual_seed(1)
        made.append(layer(**more).double())
    return made


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation"),
    [
        *((3, 1, 1, 1), (3, 2, 0, 1), (3, 2, 1, 1), (2, 1, 0, 1), (1, 1, 0, 1), (5, 3, 2, 1)),
        *((3, 1, 2, 2), (3, 2, 1, 3), (2, 1, 1, 2), (2, 1, 1, 1), (4, 2, 2, 1)),
    ],
)
def test_a_skip_connection_adds_the_child_in_the_middle_of_the_window(kernel, stride, padding, dilation):
    """A window of even size may have its middle beyond the last child: nothing is added to that parent."""
    children = grid(2, 7, 8, 3)
    sizes = (3, 3, 4, 4, kernel, stride, padding, dilation)
    skipping, plain = pair(lambda **more: tc.ConvCapsules2d(*sizes, **more), skip=True)
    routed, found = plain(children), skipping(children)
    middle = kernel // 2 * dilation - padding
    for y in range(routed.poses.shape[1]):
        for x in range(routed.poses.shape[2]):
            place = (y * stride + middle, x * stride + middle)
            child, active = torch.zeros(2, 3, 4).double(), torch.zeros(2, 3).double()
            if place[0] < 7 and place[1] < 8:
                child, active = children.poses[:, place[0], place[1]], children.activations[:, place[0], place[1]]
            torch.testing.assert_close(found.poses[:, y, x], routed.poses[:, y, x] + child)
            torch.testing.assert_close(found.activations[:, y, x], (routed.activations[:, y, x] + active) / 2)


@pytest.mark.parametrize("layer", [lambda **more: tc.DenseCapsules(5, 5, 4, 4, **more)])
def test_a_dense_layer_adds_child_and_parent_of_one_number(layer):
    children = grid(2, 5, mask=True)
    skipping, plain = pair(layer, skip=True)
    expected = plain(children).poses + children.poses * children.mask.unsqueeze(-1)
    torch.testing.assert_close(skipping(children).poses, expected)
    assert torch.equal(skipping.route(children).poses, skipping(children).poses)
    torch.testing.assert_close(skipping.trace(children)[-1].routed.poses, expected)


def test_in_one_dimension_and_with_masks_padding_never_changes_a_result():
    layer = tc.ConvCapsules1d(3, 3, 4, 4, 3, padding=1, skip=True, normalize_poses=True).double()
    short = grid(1, 4, 3)
    real = torch.ones(1, 4, 3, dtype=torch.bool)
    longer = tc.Capsules(
        torch.cat([short.poses, torch.full((1, 2, 3, 4), 1e3, dtype=torch.float64)], 1),
        torch.cat([short.activations, torch.ones(1, 2, 3, dtype=torch.float64)], 1),
        torch.cat([real, ~real[:, :2]], 1),
    )
    expected = layer(short._replace(mask=real))
    torch.testing.assert_close(layer(longer).poses[:, :4], expected.poses)


@pytest.mark.parametrize("kind", ["conv", "dense", "classes"])
def test_normalized_poses_are_those_of_a_layer_norm(kind):
    layers = {
        "conv": (lambda **more: tc.ConvCapsules2d(3, 2, 4, 5, 3, **more), grid(2, 5, 5, 3)),
        "dense": (lambda **more: tc.DenseCapsules(3, 2, 4, 5, **more), grid(2, 3)),
        "classes": (lambda **more: tc.ClassCapsules(3, 2, 4, 4, **more), grid(2, 5, 5, 3)),
    }
    make, children = layers[kind]
    normalizing, plain = pair(lambda **more: make(std=0.3, **more), normalize_poses=True)
    with torch.no_grad():
        normalizing.norm.weight.uniform_(0.5, 2)
        normalizing.norm.bias.uniform_(-1, 1)
    given = layer_norm(children.poses, (4,), normalizing.norm.weight, normalizing.norm.bias)
    torch.testing.assert_close(normalizing(children).poses, plain(children._replace(poses=given)).poses)
    normalizing(children).poses.square().sum().backward()
    assert float(normalizing.norm.weight.grad.norm()) > 0


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: tc.ConvCapsules2d(3, 4, 4, 4, 3, skip=True), "got 3 x 4 -> 4 x 4. Choose equal sizes, or skip=False."),
        (lambda: tc.DenseCapsules(3, 3, 4, 5, skip=True), "got 3 x 4 -> 3 x 5"),
        (lambda: tc.DenseCapsules(None, 3, 4, 4, votes="shared", skip=True), "got None x 4 -> 3 x 4"),
        (lambda: tc.ConvCapsules2d(3, 3, 4, 4, 3, padding=2, skip=True), "padding of at most half a kernel"),
        (lambda: tc.ClassCapsules(3, 3, 4, 4, skip=True), "ClassCapsules: expected no skip"),
        (lambda: tc.create_model("deep", image_shape=(1, 32, 32), classes=3, depth=0), "depth"),
        (lambda: tc.create_model("deep", image_shape=(1, 6, 6), classes=3), "at least 8 pixels"),
    ],
)
def test_what_cannot_be_is_refused(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


@pytest.mark.parametrize("side", [8, 28, 65])
def test_deep_capsules_take_images_of_any_size(side):
    model = tc.create_model("deep", image_shape=(3, side, side + 3), classes=4, depth=3, capsules=2, channels=4)
    assert len(model.routed_layers) == 3
    assert model(torch.rand(2, 3, side, side + 3)).activations.shape == (2, 4)
    assert max(model.children_of(torch.rand(1, 3, side, side + 3)).poses.shape[1:3]) <= 8


def test_silent_capsules_are_zero_where_they_are_masked():
    mask = torch.tensor([[True, False]])
    silent = tc.Capsules(torch.ones(1, 2, 3), torch.ones(1, 2), mask).silent()
    assert torch.equal(silent.poses, mask.unsqueeze(-1).expand(1, 2, 3).float())
    assert torch.equal(silent.activations, mask.float())
    bare = tc.Capsules(torch.ones(1, 2, 3), torch.ones(1, 2))
    assert bare.silent() is bare
