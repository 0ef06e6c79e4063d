"""Routing trees and receptive fields, on networks and couplings whose answers are known."""

import pytest
import torch
from torch import nn

import torchcaps as tc
from torchcaps._core.errors import InputError
from torchcaps.analysis.places import part_maps, receptive_fields
from torchcaps.analysis.trees import Level, Traced, coupling_moves, place_flows, routing_tree, trace_image
from torchcaps.layers import ClassCapsules, ConvCapsules2d, DenseCapsules, PrimaryCapsules
from torchcaps.models import create_model
from torchcaps.models.base import CapsuleModel
from torchcaps.models.crops import Standardize


def halves():
    """Four parts at the corners of an image; those on the left vote for class 0, those on the right for class 1."""
    primary = PrimaryCapsules(1, 1, 2, kernel_size=2, stride=2)
    with torch.no_grad():
        primary.poses.weight.fill_(0.5)
        primary.poses.bias.zero_()
    layer = DenseCapsules(4, 2, 2, 2, iterations=3)
    weight = torch.zeros_like(layer.transform.weight)  # [i j d e]
    assert weight.shape == (4, 2, 2, 2)
    for child, label in ((0, 0), (2, 0), (1, 1), (3, 1)):
        weight[child, label] = 4 * torch.eye(2)
    layer.transform.weight.data = weight
    return CapsuleModel((1, 4, 4), 2, nn.Identity(), primary, [layer])


def deep():
    """Two convolutional layers, one with padding, and class capsules."""
    layers = [
        ConvCapsules2d(2, 3, 4, 4, 3, stride=2, padding=1, votes="matrix", routing="em", iterations=2),
        ConvCapsules2d(3, 2, 4, 4, 2, votes="matrix", routing="em", iterations=2),
        ClassCapsules(2, 3, 4, 4, routing="em", iterations=2),
    ]
    encoder = nn.Sequential(Standardize(), nn.Conv2d(1, 6, 3), nn.ReLU())
    return CapsuleModel((1, 9, 7), 3, encoder, PrimaryCapsules(6, 2, 4, kind="matrix"), layers)


def by_hand():
    """Two places of two parts each, to three parents, to two classes."""
    lower = Level(
        (1, 2),
        torch.tensor([1.0, 0.5, 0.8, 0.2]),
        torch.tensor([[0, 0, 2, 2], [0, 2, 2, 4]]),
        torch.arange(4).view(1, 4),
        torch.tensor([[[[1 / 3] * 3] * 4], [[[0.6, 0.3, 0.1], [0.2, 0.2, 0.6], [0.5, 0.25, 0.25], [0.1, 0.1, 0.8]]]]),
    )
    upper = Level(
        (),
        torch.tensor([0.9, 0.4, 0.1]),
        torch.tensor([[0, 0, 2, 4]]),
        torch.arange(3).view(1, 3),
        torch.tensor([[[[0.7, 0.3], [0.5, 0.5], [-0.1, 0.9]]]]),
    )
    return Traced(torch.zeros(1, 2, 4), torch.tensor([[0.8, 0.3]]), (lower, upper))


# Trees


def test_tree_of_a_network_with_known_weights():
    model = halves()
    traced = trace_image(model, torch.ones(1, 4, 4))
    for label, column in ((0, 0), (1, 1)):
        tree = routing_tree(traced, [label], most=2)
        assert tree.layers == 2
        assert tree.nodes[0].type == label
        assert {node.place for node in tree.leaves} == {(0, column), (1, column)}
        assert {node.box for node in tree.leaves} == {
            (0, 2 * column, 2, 2 * column + 2),
            (2, 2 * column, 4, 2 * column + 2),
        }
        for edge in tree.edges:
            assert edge.couplings[0] == pytest.approx(0.5)
            assert list(edge.couplings) == sorted(edge.couplings)
            assert edge.coupling > 0.9
            assert edge.contribution == pytest.approx(edge.coupling * tree.nodes[edge.child].activation)


def test_parts_that_see_nothing_give_nothing():
    image = torch.ones(1, 4, 4)
    image[:, :2] = 0
    tree = routing_tree(trace_image(halves(), image), [0])
    assert [node.place for node in tree.leaves] == [(1, 0), (1, 1)]  # the upper ones are not active
    assert tree.edges[0].flow > 0.9


def test_tree_of_couplings_by_hand():
    tree = routing_tree(by_hand(), most=2, branches=1)
    assert tree.roots == (0,)
    assert tree.nodes[0].activation == pytest.approx(0.8)
    first, second = tree.into(2)
    # Contributions to class 0: 0.7 * 0.9, 0.5 * 0.4, and nothing along the negative coupling.
    assert (tree.nodes[first.child].type, tree.nodes[second.child].type) == (0, 1)
    assert first.contribution == pytest.approx(0.63)
    assert first.flow == pytest.approx(0.63 / 0.83)
    assert second.flow == pytest.approx(0.2 / 0.83)
    assert tree.nodes[first.child].box is None  # it sees the whole image
    low = {tree.nodes[edge.parent].number: edge for edge in tree.into(1)}
    assert len(low) == 2
    assert low[0].couplings == pytest.approx((1 / 3, 0.6))
    # Children give parent 0: 0.6, 0.1, 0.4, 0.02.
    assert low[0].flow == pytest.approx(0.63 / 0.83 * 0.6 / 1.12)
    assert tree.nodes[low[0].child].place == (0, 0)
    assert low[1].flow == pytest.approx(0.2 / 0.83 * 0.3 / 0.62)


def test_flows_of_places_by_hand():
    first = 0.63 / 0.83 * 0.7 / 1.12 + 0.2 / 0.83 * 0.4 / 0.62
    expected = torch.tensor([first, 1 - first])
    torch.testing.assert_close(place_flows(by_hand(), 0), expected)
    torch.testing.assert_close(routing_tree(by_hand(), [0]).flows, expected)


def test_several_roots_share_the_parts_below_them():
    tree = routing_tree(by_hand(), [0, 1], most=3, branches=1)
    assert tree.roots == (0, 1)
    assert [node.layer for node in tree.nodes[:2]] == [2, 2]
    assert len(set(tree.nodes)) == len(tree.nodes)
    assert {edge.label for edge in tree.edges} == {0, 1}
    for label in (0, 1):
        assert sum(edge.flow for edge in tree.into(2) if edge.label == label) == pytest.approx(1)


@torch.no_grad()
def test_whole_trees_of_deep_networks_equal_plain_loops():
    model = deep().eval()
    image = torch.rand(1, 9, 7)
    traced = trace_image(model, image)
    assert [level.grid for level in traced.levels] == [(7, 5), (4, 3), (3, 2)]
    capsules = model.children_of(image[None])
    windows = [(3, 2, 1), (2, 1, 0)]
    flows = {}
    levels = []
    for layer, (kernel, stride, padding) in zip(model.routed_layers, windows, strict=False):
        routed = layer.route(capsules)
        levels.append((capsules, routed, kernel, stride, padding))
        capsules = layer(capsules)
    routed = model.routed_layers[-1].route(capsules)
    torch.testing.assert_close(traced.activations[-1], routed.activations[0])
    height, width, types = capsules.activations.shape[1:]
    given = {}
    for child in range(height * width * types):
        active = capsules.activations.flatten()[child]
        given[child] = float(routed.couplings[0, child, 1] * active)
    flows = {child: gift / sum(given.values()) for child, gift in given.items()}
    for children, routed, kernel, stride, padding in reversed(levels):
        rows, columns, kinds = children.activations.shape[1:]
        down = {}
        for parent, flow in flows.items():
            row, rest = divmod(parent, routed.activations.shape[2] * routed.activations.shape[3])
            column, kind = divmod(rest, routed.activations.shape[3])
            given = {}
            for k in range(kernel * kernel):
                y, x = row * stride - padding + k // kernel, column * stride - padding + k % kernel
                if 0 <= y < rows and 0 <= x < columns:
                    for i in range(kinds):
                        coupling = routed.couplings[0, row, column, k, i, kind]
                        given[(y * columns + x) * kinds + i] = float(coupling * children.activations[0, y, x, i])
            total = sum(given.values())
            for child, gift in given.items():
                down[child] = down.get(child, 0.0) + flow * gift / total
        flows = down
    expected = torch.zeros(7 * 5 * 2)
    for child, flow in flows.items():
        expected[child] = flow
    torch.testing.assert_close(place_flows(traced, 1), expected.view(35, 2).sum(-1), atol=1e-5, rtol=1e-4)
    # A tree that keeps everything passes on the same flows.
    tree = routing_tree(traced, [1], most=10**6, branches=10**6)
    leaves = torch.zeros(35)
    for edge in tree.into(1):
        leaves[tree.nodes[edge.child].number // 2] += edge.flow
    torch.testing.assert_close(leaves, tree.flows, atol=1e-5, rtol=1e-4)


def test_moves_are_the_couplings_of_the_strongest_parts():
    model = halves()
    image = torch.ones(1, 4, 4)
    moves = coupling_moves(trace_image(model, image), 1, most=2)
    assert moves.couplings.shape == (3, 2, 2)
    assert {part.place for part in moves.parts} == {(0, 1), (1, 1)}
    steps = model.trace(image[None])[0]
    for step, couplings in zip(steps, moves.couplings, strict=True):
        torch.testing.assert_close(couplings, step.routed.couplings[0, [part.number for part in moves.parts]])
    torch.testing.assert_close(moves.activations[-1], model(image[None]).activations[0])


def test_a_class_that_gets_nothing_is_a_bare_root():
    traced = by_hand()
    level = traced.levels[1]
    empty = type(level)(level.grid, level.activations, level.boxes, level.seen, -level.couplings)
    traced = type(traced)(traced.image, traced.activations, (traced.levels[0], empty))
    tree = routing_tree(traced, [1])
    assert (len(tree.nodes), tree.edges) == (1, ())
    assert tree.flows.sum() == 0
    assert [part.number for part in coupling_moves(traced, 1, most=2).parts] == [2, 1]  # the least negative first


@pytest.mark.parametrize("routing", sorted(tc.ROUTINGS))
def test_every_routing_leaves_a_tree(routing):
    model = create_model("efficient", image_shape=(3, 17, 17), classes=4, routing=routing).eval()
    traced = trace_image(model, torch.rand(3, 17, 17))
    tree = routing_tree(traced)
    assert 0 < len(tree.edges) <= 10
    assert all(node.box is None and node.place is None for node in tree.leaves)
    assert tree.activations.argmax() == tree.roots[0]
    assert float(tree.flows.sum()) == pytest.approx(1, abs=1e-5)


def test_a_network_without_routing_is_refused():
    model = create_model("cnn-small", image_shape=(1, 20, 20), classes=2)
    with pytest.raises(InputError, match=r"expected a model with routing, got SmallCNN\. Use a capsule network"):
        trace_image(model, torch.rand(1, 20, 20))


# Places


def brute_force(model, image):
    """Which pixels change which place, one at a time."""
    with torch.no_grad():
        before = model.children_of(image[None]).poses[0]
        height, width = before.shape[:2]
        seen = torch.zeros(height, width, *image.shape[1:], dtype=torch.bool)
        for y in range(image.shape[1]):
            for x in range(image.shape[2]):
                changed = image.clone()
                changed[:, y, x] += 0.5
                after = model.children_of(changed[None]).poses[0]
                seen[:, :, y, x] = ((after - before).abs() > 1e-6).flatten(2).any(-1)
    return seen


def test_receptive_fields_are_the_pixels_that_matter():
    encoder = nn.Sequential(nn.Conv2d(2, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AvgPool2d(2))
    layers = [ClassCapsules(2, 3, 4, 4)]
    model = CapsuleModel((2, 15, 11), 3, encoder, PrimaryCapsules(8, 2, 4, 2), layers).eval()
    seen = brute_force(model, torch.rand(2, 15, 11))
    fields = receptive_fields(model)
    assert fields.shape[:2] == seen.shape[:2]
    for row in range(fields.shape[0]):
        for column in range(fields.shape[1]):
            pixels = seen[row, column].nonzero()
            expected = [*pixels.amin(0).tolist(), *(pixels.amax(0) + 1).tolist()]
            assert fields[row, column].tolist() == expected


def test_receptive_fields_of_capsnet_follow_from_its_kernels():
    model = create_model("capsnet", image_shape=(1, 20, 24), classes=2, channels=8, capsules=2)
    fields = receptive_fields(model)
    assert fields.shape == (2, 4, 4)
    for row in range(2):
        for column in range(4):  # kernels of 9 and 9 see 17 pixels; steps are 2
            assert fields[row, column].tolist() == [2 * row, 2 * column, 2 * row + 17, 2 * column + 17]
    assert model.training


def test_scaling_of_whole_images_does_not_widen_fields():
    assert receptive_fields(deep())[2, 1].tolist() == [2, 1, 5, 4]


def test_maps_show_the_pixels_of_a_part():
    maps = part_maps(halves(), torch.ones(1, 4, 4), [0, 3])
    assert maps.shape == (2, 4, 4)
    assert maps[0, 0, 0] > 0
    assert maps[0, 3, 3] == 0  # three pixels away, beyond the smoothing
    assert maps[1, 3, 3] > 0
    assert maps[1, 0, 0] == 0
