"""Convolutions in one, two and three dimensions, dilated or not: made of each other, and of torch's own."""

import pytest
import torch
from torch.nn import functional

import torchcaps as tc
from tests.oracles.conv import edges
from torchcaps.votes.windows import Windows

CONV = {1: tc.ConvCapsules1d, 2: tc.ConvCapsules2d, 3: tc.ConvCapsules3d}
UP = {1: tc.ConvTransposeCapsules1d, 2: tc.ConvTransposeCapsules2d, 3: tc.ConvTransposeCapsules3d}
TORCH = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}


def children_on(*grid, types=2, dim=4, batch=2, masked=False):
    poses = torch.randn(batch, *grid, types, dim, dtype=torch.float64, requires_grad=True)
    activations = 0.2 + 0.7 * torch.rand(poses.shape[:-1], dtype=torch.float64)
    return tc.Capsules(poses, activations.requires_grad_(), torch.rand(poses.shape[:-1]) > 0.3 if masked else None)


def same_weights(one, other):
    other.load_state_dict(one.state_dict())
    return one, other


def with_one_more_axis(children):
    return tc.Capsules(*(None if part is None else part.unsqueeze(1) for part in children))


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("competition", ["grid", "window"])
@pytest.mark.parametrize("kind", [CONV, UP], ids=["convolution", "transposed"])
@pytest.mark.parametrize("axes", [1, 2])
def test_one_more_axis_of_length_one_changes_nothing(axes, kind, competition, masked):
    """A line is a grid with one row, a plane a volume of depth one; and weights are the same, by name and shape."""
    kernel, stride, padding, dilation = (3, 2)[:axes], (2, 1)[:axes], (1, 1)[:axes], (2, 1)[:axes]
    few = kind[axes](2, 3, 4, 4, kernel, stride, padding, dilation=dilation, competition=competition, routing="em")
    sizes = ((1, *kernel), (1, *stride), (0, *padding))
    many = kind[axes + 1](2, 3, 4, 4, *sizes, dilation=(1, *dilation), competition=competition, routing="em")
    same_weights(few.double(), many.double())
    children = children_on(*(5, 4)[:axes], masked=masked)
    expected, found = few(children), many(with_one_more_axis(children))
    torch.testing.assert_close(found.poses.squeeze(1), expected.poses)
    torch.testing.assert_close(found.activations.squeeze(1), expected.activations)
    assert (found.mask is None) == (expected.mask is None)
    assert expected.mask is None or torch.equal(found.mask.squeeze(1), expected.mask)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_number_is_the_same_for_all_axes_and_dilation_one_is_none(axes):
    plain = CONV[axes](2, 3, 4, 4, 2, 1, 1, 1).double()
    each = CONV[axes](2, 3, 4, 4, *((n,) * axes for n in (2, 1, 1, 1))).double()
    left = CONV[axes](2, 3, 4, 4, 2, padding=1).double()
    children = children_on(*(3,) * axes)
    for other in (each, left):
        same_weights(plain, other)
        torch.testing.assert_close(other(children)[:2], plain(children)[:2], rtol=0, atol=0)


@pytest.mark.parametrize("competition", ["grid", "window"])
def test_a_dilated_convolution_is_an_ordinary_one_on_every_other_child(competition):
    """With stride = dilation = 2, windows see the children at even places, as neighbors."""
    dilated = tc.ConvCapsules2d(2, 3, 4, 4, 3, stride=2, dilation=2, competition=competition).double()
    plain = tc.ConvCapsules2d(2, 3, 4, 4, 3, competition=competition).double()
    same_weights(dilated, plain)
    children = children_on(9, 8)
    even = tc.Capsules(children.poses[:, ::2, ::2], children.activations[:, ::2, ::2])
    torch.testing.assert_close(dilated(children)[:2], plain(even)[:2])


@pytest.mark.parametrize("competition", ["grid", "window"])
@pytest.mark.parametrize(
    ("grid", "kernel", "stride", "padding", "dilation"),
    [
        ((7,), (3,), (2,), (2,), (2,)),
        ((6, 5), (3, 2), (2, 1), (1, 0), (1, 3)),
        ((4, 5), (2, 3), (1, 2), (1, 1), (2, 1)),
        ((3, 4, 5), (2, 2, 3), (1, 2, 1), (1, 0, 2), (2, 1, 2)),
    ],
    ids=str,
)
def test_uniform_routing_is_torchs_convolution(grid, kernel, stride, padding, dilation, competition):
    """A share of each child, the same for all parents that see it, times what torch computes."""
    layer = CONV[len(grid)](
        2, 3, 4, 5, kernel, stride, padding, dilation, routing="uniform", squash="none", competition=competition
    ).double()
    children, axes = children_on(*grid), len(grid)
    seen = torch.zeros(grid, dtype=torch.float64)
    for _, child, _ in edges(grid, kernel, stride, padding, 1, 1, dilation):
        seen[child[:-1]] += 1
    share = 1 / seen.clamp(min=1) if competition == "grid" else torch.ones_like(seen)
    weight = layer.transform.weight.view(*kernel, 2, 3, 4, 5)
    weight = weight.permute(axes + 1, axes + 3, axes, axes + 2, *range(axes)).reshape(15, 8, *kernel)
    images = (children.poses * share[..., None, None]).flatten(-2).movedim(-1, 1) / 3
    expected = TORCH[axes](images, weight, None, stride, padding, dilation)
    torch.testing.assert_close(layer(children).poses, expected.movedim(1, -1).unflatten(-1, (3, 5)))


@pytest.mark.parametrize("routing", tc.ROUTINGS)
def test_gradients_of_a_dilated_layer_are_those_of_differences(routing):
    layer = tc.ConvCapsules1d(2, 2, 3, 3, 2, 1, 1, 2, routing=routing, tile_bytes=0, std=0.8).double()
    children = children_on(3, dim=3, batch=1)

    def run(poses, activations):
        return layer.route(tc.Capsules(poses, activations))

    assert torch.autograd.gradcheck(run, (children.poses, children.activations))


@pytest.mark.parametrize("routing", tc.ROUTINGS)
def test_windows_that_see_padding_alone_are_silent(routing):
    """A kernel of two with a hole between, over one child: the only window sees nothing."""
    layer = tc.ConvCapsules1d(2, 3, 4, 4, 2, padding=1, dilation=2, routing=routing).double()
    children = children_on(1)
    parents = layer(children)
    assert parents.poses.shape == (2, 1, 3, 4)
    assert not parents.mask.any()
    assert not parents.poses.any()
    assert not parents.activations.any()
    (parents.poses.sum() + parents.activations.sum()).backward()
    assert not children.poses.grad.any()


def test_dilated_windows_equal_the_true_patches():
    values = torch.arange(2 * 7 * 6 * 3).view(2, 7, 6, 3)
    seen = Windows((7, 6), (3, 2), (2, 3), (0, 0), (2, 1)).of(values)
    assert seen.shape == (2, 2, 2, 3, 2, 3)
    for y in range(2):
        for x in range(2):
            torch.testing.assert_close(seen[:, y, x], values[:, 2 * y : 2 * y + 5 : 2, 3 * x : 3 * x + 2])


@pytest.mark.parametrize("competition", ["grid", "window"])
def test_padding_in_three_dimensions_changes_nothing(competition):
    layer = tc.ConvCapsules3d(2, 3, 4, 4, 2, padding=1, competition=competition).double()
    small = children_on(2, 3, 2, batch=1)
    shape = (1, 4, 4, 3, 2)
    large = tc.Capsules(torch.full((*shape, 4), 7.0).double(), torch.ones(shape).double(), torch.zeros(shape).bool())
    for whole, part in zip(large, (small.poses, small.activations, torch.tensor(True)), strict=True):
        whole[:, :2, :3, :2] = part
    expected, parents = layer(small), layer(large)
    depth, height, width = expected.poses.shape[1:4]
    torch.testing.assert_close(parents.poses[:, :depth, :height, :width], expected.poses)
    assert parents.mask.sum() == depth * height * width * 3


def test_no_layer_is_called_without_its_dimensions():
    """An argument that changed the shapes of a layer is three classes."""
    assert not hasattr(tc, "ConvCapsules")
    names = {name for name in tc.__all__ if name.startswith("Conv") and "Capsules" in name}
    assert names == {f"{kind}Capsules{axes}d" for kind in ("Conv", "ConvTranspose") for axes in (1, 2, 3)}


class Activations(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, poses, activations):
        return self.layer(tc.Capsules(poses, activations)).activations


@pytest.mark.filterwarnings("ignore")  # torch's own, from its exporter
@pytest.mark.parametrize("competition", ["grid", "window"])
@pytest.mark.parametrize("kind", [CONV, UP], ids=["convolution", "transposed"])
def test_an_exported_layer_takes_any_number_of_examples(kind, competition):
    module = Activations(kind[2](2, 3, 4, 4, 2, 3, competition=competition, routing="em", iterations=2).double())
    few, many = (children_on(5, 5, batch=batch)[:2] for batch in (3, 7))
    examples = torch.export.Dim("examples", min=1)
    program = torch.export.export(module, few, dynamic_shapes=({0: examples}, {0: examples}))
    torch.testing.assert_close(program.module()(*many), module(*many))
