"""Flags, hooks and options that once chose a wrong or slow way: what a routing says must hold for the very object."""

import pytest
import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

import torchcaps as tc
from tests.support.readers import planned
from torchcaps.routing import Dynamic
from torchcaps.routing.em import EM
from torchcaps.votes.algebra import Votes


def capsules(*shape, dim=6):
    return tc.Capsules(torch.randn(*shape, dim), torch.rand(*shape))


@pytest.mark.parametrize(
    ("routing", "options", "listens"),
    [
        ("em", {}, True),
        ("em", {"variant": 1}, False),
        ("em", {"variant": 2}, False),
        ("dynamic", {}, False),
        ("dynamic", {"amendment": True}, True),
    ],
)
def test_matrix_capsules_have_activations_where_their_routing_listens_to_them(routing, options, listens):
    model = tc.create_model("matrix-small", image_shape=(1, 20, 20), classes=3, routing=routing, **options)
    assert all(layer.routing.uses_activations == listens for layer in model.routed_layers)
    assert (model.primary.activations is not None) == listens
    answer = model(torch.rand(2, 1, 20, 20))
    (answer.poses.square().sum() + answer.activations.sum()).backward()
    unmoved = [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert not [name for name in unmoved if name.startswith("primary")]


@pytest.mark.parametrize("register", [register_module_forward_hook, register_module_forward_pre_hook])
@pytest.mark.parametrize("votes", ["full", "shared"])
def test_hooks_on_all_modules_see_votes_that_are_made(register, votes):
    layer = tc.DenseCapsules(7, 4, 6, 6, votes=votes, iterations=2)
    seen = []

    def look(module, inputs, *_):
        if isinstance(module, Dynamic):
            seen.append(inputs[0])

    handle = register(look)
    try:
        layer(capsules(16, 7))
    finally:
        handle.remove()
    assert seen
    assert not any(isinstance(each, Votes) for each in seen)


@pytest.mark.parametrize("name", ["efficient", "capsnet", "matrix-small"])
def test_models_take_the_options_of_their_layers(name):
    shape = (1, 28, 28)
    model = tc.create_model(name, image_shape=shape, classes=3, tile_bytes=0, routing="em")
    assert all(layer.tile_bytes == 0 for layer in model.routed_layers)
    with pytest.raises(ValueError, match=r"tile_bytes.*got tiles"):
        tc.create_model(name, image_shape=shape, classes=3, routing="em", tiles=0)


class Same(Dynamic):
    """The same under another name."""


class Reads(Dynamic):
    """Another reading of the same clusters."""

    def read(self, clusters, couplings, weights):
        return super().read(clusters, couplings, weights)


class Looks(Dynamic):
    """Looks at votes one by one, which only votes that are made allow."""

    def update(self, votes, weights, previous, step):
        return (weights.unsqueeze(-1) * votes).sum(-3)


class SameEM(EM):
    """The same under another name."""


def given_to(routing, **options):
    """The backend of a layer with this routing."""
    with torch.no_grad():
        return planned(tc.DenseCapsules(7, 4, 6, 6, routing=routing, **options), capsules(16, 7), learning=False)


@pytest.mark.parametrize("votes", ["full", "shared"])
@pytest.mark.parametrize("kind", [Same, Reads])
def test_a_subclass_that_changes_nothing_about_votes_keeps_its_speed(kind, votes):
    assert given_to(kind(), votes=votes) == given_to(Dynamic(), votes=votes) != "dense"


def test_a_subclass_that_looks_at_votes_is_given_them():
    assert given_to(Looks()) == "dense"
    plain, looks = (tc.DenseCapsules(7, 4, 6, 6, routing=kind()) for kind in (Dynamic, Looks))
    looks.load_state_dict(plain.state_dict())
    children = capsules(16, 7)
    torch.testing.assert_close(looks(children)[:2], plain(children)[:2])


@pytest.mark.usefixtures("native")
def test_a_subclass_of_a_routing_with_squares_keeps_its_speed():
    own = {"out_capsules": 4, "out_dim": 6}
    assert given_to(SameEM(**own)) == given_to(EM(**own)) == "native"
