"""The last layer of a network and what is read from it, on votes whose answers are known by hand."""

import pytest
import torch

import torchcaps as tc
from torchcaps._core.errors import InputError
from torchcaps._core.types import Routed
from torchcaps.analysis.convergence import convergence
from torchcaps.analysis.lastlayer import Voted, last_layer
from torchcaps.analysis.sharing import agreement, sharing
from torchcaps.functional import squash

# Three children vote for two parents in the plane.
VOTES = torch.tensor([[[3.0, 0.0], [-1.0, -1.0]], [[1.0, 0.0], [0.0, 2.0]], [[-1.0, 0.0], [0.0, 2.0]]])
EVEN = torch.full((3, 2), 0.5)
MOVED = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]])


def voted(parents_are_means=False):
    """Even couplings, then others; parents are squashed sums, or means."""
    steps = []
    for couplings in (EVEN, MOVED):
        sums = torch.einsum("ij,ijd->jd", couplings, VOTES)
        poses = sums / couplings.sum(0)[:, None] if parents_are_means else squash(sums)
        steps.append(Routed(poses, poses.norm(dim=1), couplings))
    return Voted(VOTES, torch.tensor([0.2, 0.9, 0.5]), tuple(steps), parents_are_means, weighs=False)


@pytest.mark.parametrize(
    ("name", "options"),
    [("efficient", {}), ("efficient", {"routing": "dynamic"}), ("efficient", {"routing": "em"}), ("matrix-small", {})],
)
def test_last_layer_is_that_of_the_network(name, options):
    model = tc.create_model(name, image_shape=(1, 20, 20), classes=3, **options)
    images = torch.rand(2, 1, 20, 20)
    with torch.no_grad():
        trace = model.eval().trace(images)[-1]
    seen = last_layer(model.train(), images[1])
    assert model.training
    assert len(seen.steps) == len(trace)
    for mine, step in zip(seen.steps, trace, strict=True):
        for part, whole in zip(mine, step.routed, strict=True):
            assert torch.allclose(part, whole[1], atol=1e-5)
    assert seen.votes.shape[:2] == seen.steps[-1].couplings.shape
    assert seen.activations.shape == seen.votes.shape[:1]


@pytest.mark.parametrize("routing", ["em", "gaussian", "kmeans"])
def test_shares_of_a_mean_make_the_pose(routing):
    model = tc.create_model("efficient", image_shape=(1, 20, 20), classes=3, routing=routing)
    seen = last_layer(model, torch.rand(1, 20, 20))
    assert torch.allclose(seen.shares().sum(0), torch.ones(3), atol=1e-5)
    assert torch.allclose(torch.einsum("ij,ijd->jd", seen.shares(), seen.votes), seen.poses, atol=1e-4)


def test_received_sum_is_squashed_to_the_pose():
    model = tc.create_model("efficient", image_shape=(1, 20, 20), classes=3, routing="dynamic")
    seen = last_layer(model, torch.rand(1, 20, 20))
    found = sharing(seen, parent=2)
    assert torch.allclose(squash(found.received), seen.poses[2], atol=1e-5)


def test_networks_without_routing_are_refused():
    model = tc.create_model("cnn-small", image_shape=(1, 20, 20), classes=3)
    sentence = "draw split: expected a network of capsules for images, got SmallCNN. Train one on images, with model "
    with pytest.raises(InputError, match=sentence):
        last_layer(model, torch.rand(1, 20, 20), "draw split")


def test_distances_are_from_the_mean_of_the_votes():
    found = convergence(voted())
    # Even couplings: the means are (1, 0) and (-1/3, 1).
    assert found.distances[0, :, 0].tolist() == [2.0, 0.0, 2.0]
    assert found.distances[0, 1, 1].item() == pytest.approx(((1 / 3) ** 2 + 1) ** 0.5)
    # Then the first mean is (2.7 + 0.6 - 0.2) / 1.7.
    mean = 3.1 / 1.7
    away = torch.tensor([3 - mean, mean - 1, mean + 1])
    assert torch.allclose(found.distances[1, :, 0], away)
    assert found.mean_distances[1, 0].item() == pytest.approx(float(MOVED[:, 0] @ away) / 1.7)
    assert torch.equal(found.couplings, torch.stack([EVEN, MOVED]))


def test_distances_from_means_are_those_from_poses():
    sums, means = convergence(voted()), convergence(voted(parents_are_means=True))
    assert torch.allclose(sums.distances, means.distances)


def test_distances_need_couplings_that_are_shares():
    seen = voted()
    odd = Voted(seen.votes, seen.activations, (Routed(*seen.steps[0][:2], EVEN - 0.6),), False, False)
    sentence = r"convergence: expected couplings from 0 to 1, got negative ones \(a learned prior\)\. "
    with pytest.raises(InputError, match=sentence):
        convergence(odd)


def test_parts_of_what_a_parent_receives_sum_to_one():
    found = sharing(voted(), parent=0)
    # 0.9 * 3 + 0.6 * 1 - 0.2 * 1 = 3.1 along the first axis
    assert torch.allclose(found.received, torch.tensor([3.1, 0.0]))
    assert torch.allclose(found.parts, torch.tensor([2.7, 0.6, -0.2]) / 3.1)
    assert found.child == 0  # the one that gives most
    assert found.couplings.tolist() == pytest.approx([0.9, 0.1])


def test_sharing_takes_the_most_active_parent_and_a_child_that_is_named():
    found = sharing(voted(), child=2)
    assert found.parent == int(voted().steps[-1].activations.argmax())
    assert found.couplings.tolist() == pytest.approx([0.2, 0.8])


def test_agreement_is_to_the_right():
    found = agreement(voted(), parents=(0, 1))
    assert found.parents == (0, 1)
    # Both axes of each plane are the whole plane here.
    assert torch.allclose(found.held, torch.ones(2))
    # The pose of the first parent lies along the first axis; children are shown in the order of their activations.
    assert torch.allclose(found.votes[0, :, 0], torch.tensor([1.0, -1.0, 3.0]))
    pose = voted().poses[1]
    assert torch.allclose(found.votes[1, :, 0], VOTES[[1, 2, 0], 1] @ pose / pose.norm())
    # Child 0 belongs to the first parent and opposes the second.
    assert found.child == 0
    assert found.cosines[0].item() == pytest.approx(1.0)
    against = float(-(pose[0] + pose[1]) / pose.norm())
    assert found.cosines[1].item() == pytest.approx(against / 2**0.5)
    assert found.cosines[1] < 0
    assert torch.allclose(found.marked[:, 0], torch.tensor([3.0, against]))
    assert found.before.tolist() == [0.5, 0.5]
    assert found.after.tolist() == pytest.approx([0.9, 0.1])


def test_agreement_shows_the_strongest_children_and_the_most_active_parents():
    found = agreement(voted(), count=2)
    assert found.votes.shape == (2, 2, 2)
    assert found.parents == tuple(voted().steps[-1].activations.argsort(descending=True).tolist())


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: sharing(voted(), child=3), "child: expected a child from 0 to 2, got 3. Choose one of these."),
        (lambda: sharing(voted(), parent=-1), "parent: expected a parent from 0 to 1, got -1. Choose one of these."),
        (
            lambda: agreement(voted(parents_are_means=True)),
            r"a routing by inner product \(attention, dynamic, entropy, inverted\), got one by distance",
        ),
    ],
)
def test_mistakes(call, said):
    with pytest.raises(InputError, match=said):
        call()
