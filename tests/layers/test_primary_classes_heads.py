import pytest
import torch

import torchcaps as tc


def grid_of(*grid, types=3, dim=16, batch=2):
    poses = torch.randn(batch, *grid, types, dim)
    return tc.Capsules(poses, torch.rand(poses.shape[:-1]))


# Primary capsules


def test_primary_capsules_group_the_channels_of_one_site():
    layer = tc.PrimaryCapsules(2, 3, 4, kernel_size=1, squash="none")
    features = torch.randn(2, 2, 5, 6)
    channels = layer.poses(features)  # [b (i e) h w]
    capsules = layer(features)
    assert capsules.poses.shape == (2, 5, 6, 3, 4)
    for i in range(3):
        torch.testing.assert_close(capsules.poses[:, :, :, i], channels[:, 4 * i : 4 * i + 4].permute(0, 2, 3, 1))


def test_changing_one_site_changes_only_its_capsules():
    layer = tc.PrimaryCapsules(2, 3, 4, kernel_size=1)
    features = torch.randn(1, 2, 5, 6)
    changed = features.clone()
    changed[:, :, 2, 3] += 1
    moved = (layer(features).poses != layer(changed).poses).any(-1).any(-1)[0]
    assert moved.nonzero().tolist() == [[2, 3]]


def test_vector_primary_capsules_are_squashed_over_their_own_numbers():
    capsules = tc.PrimaryCapsules(2, 3, 8)(100 * torch.randn(2, 2, 5, 5))
    assert (capsules.poses.norm(dim=-1) <= 1).all()
    torch.testing.assert_close(capsules.activations, capsules.poses.norm(dim=-1))


def test_matrix_primary_capsules_have_an_activation_of_their_own():
    layer = tc.PrimaryCapsules(2, 3, 16, kind="matrix")
    features = torch.randn(2, 2, 5, 5)
    capsules = layer(features)
    torch.testing.assert_close(capsules.activations, layer.activations(features).sigmoid().movedim(1, -1))
    assert sum(p.numel() for p in layer.parameters()) == (2 + 1) * 3 * 17


def test_primary_capsules_in_one_dimension():
    assert tc.PrimaryCapsules(5, 3, 4, kernel_size=3, dimensions=1)(torch.randn(2, 5, 9)).poses.shape == (2, 7, 3, 4)
    volume = tc.PrimaryCapsules(5, 3, 4, kernel_size=2, dimensions=3)(torch.randn(2, 5, 3, 4, 5))
    assert volume.poses.shape == (2, 2, 3, 4, 3, 4)


def test_primary_capsules_pass_groups_to_their_convolution():
    layer = tc.PrimaryCapsules(12, 3, 4, kernel_size=5, groups=12)
    assert sum(p.numel() for p in layer.parameters()) == 12 * 25 + 12


def test_primary_capsules_squash_long_halves():
    layer = tc.PrimaryCapsules(2, 3, 8).half()
    assert (layer(torch.full((1, 2, 3, 3), 2000.0).half()).activations > 0.99).all()


def test_flatten_joins_the_grid_in_order():
    grid = grid_of(4, 5)
    flat = grid._replace(mask=grid.activations > 0.5).flatten()
    assert flat.poses.shape == (2, 60, 16)
    torch.testing.assert_close(flat.poses[:, (2 * 5 + 3) * 3 + 1], grid.poses[:, 2, 3, 1])
    torch.testing.assert_close(flat.mask, flat.activations > 0.5)


# Class capsules


def test_class_capsules_share_transforms_over_positions():
    layer = tc.ClassCapsules(3, 5, 16, 16, coordinates=None)
    assert layer.transform.weight.numel() == 3 * 5 * 16
    votes = layer.vote(layer.gather(grid_of(4, 6)))
    assert votes.shape == (2, 72, 5, 16)
    same = tc.Capsules(torch.ones(1, 2, 2, 3, 16), torch.ones(1, 2, 2, 3))
    votes = layer.vote(layer.gather(same)).view(4, 3, 5, 16)
    torch.testing.assert_close(votes, votes[:1].expand_as(votes))


def test_coordinates_tell_positions_apart():
    layer = tc.ClassCapsules(3, 5, 16, 16, coordinate_scale=2.0)
    same = tc.Capsules(torch.zeros(1, 4, 5, 3, 16), torch.ones(1, 4, 5, 3))
    votes = layer.vote(layer.gather(same)).view(4, 5, 3, 5, 16)
    rows, columns = votes[:, 0, 0, 0, 3], votes[0, :, 0, 0, 7]  # the first two of the right-hand column
    torch.testing.assert_close(rows, torch.tensor([-0.75, -0.25, 0.25, 0.75]))
    torch.testing.assert_close(columns, torch.tensor([-0.8, -0.4, 0.0, 0.4, 0.8]))
    others = [h for h in range(16) if h not in (3, 7)]
    assert (votes[..., others] == 0).all()


def test_coordinates_at_the_first_elements():
    votes = tc.add_coordinates(torch.zeros(1, 2, 2, 1, 1, 5), "first")
    torch.testing.assert_close(
        votes[0, :, :, 0, 0, :2].reshape(4, 2),
        torch.tensor([[-0.25, -0.25], [-0.25, 0.25], [0.25, -0.25], [0.25, 0.25]]),
    )


def test_class_capsules_in_one_dimension_with_a_mask():
    layer = tc.ClassCapsules(3, 5, 8, 8, votes="full", routing="dynamic", coordinates=None, dimensions=1)
    short = grid_of(6, dim=8)
    long = tc.Capsules(*(torch.cat([part, torch.ones_like(part)], 1) for part in short[:2]))
    mask = (torch.arange(12) < 6).view(1, 12, 1).expand(2, 12, 3)
    torch.testing.assert_close(layer(long._replace(mask=mask))[:2], layer(short)[:2])


def test_class_capsules_of_a_volume_know_all_three_coordinates():
    layer = tc.ClassCapsules(3, 5, 16, 16, dimensions=3)
    same = tc.Capsules(torch.zeros(1, 2, 3, 4, 3, 16), torch.ones(1, 2, 3, 4, 3))
    votes = layer.vote(layer.gather(same)).view(2, 3, 4, 3, 5, 16)
    torch.testing.assert_close(votes[:, 0, 0, 0, 0, 3], torch.tensor([-0.25, 0.25]))
    torch.testing.assert_close(votes[0, 0, :, 0, 0, 11], torch.tensor([-0.375, -0.125, 0.125, 0.375]))
    assert layer(same).poses.shape == (1, 5, 16)


# Decoders


def class_capsules(batch=4, classes=10, dim=16):
    poses = tc.squash(torch.randn(batch, classes, dim))
    return tc.Capsules(poses, tc.length(poses))


@pytest.mark.parametrize("decoder", [tc.DenseDecoder, tc.ConvDecoder])
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 33, 17)])
def test_decoders_draw_images_of_any_shape(decoder, shape):
    draw = decoder(10, 16, shape)
    images = draw(class_capsules(), torch.tensor([1, 2, 3, 4]))
    assert images.shape == (4, *shape)
    assert ((images >= 0) & (images <= 1)).all()
    assert draw(class_capsules(1)).shape == (1, *shape)


def test_decoder_draws_several_capsules_apart():
    draw = tc.DenseDecoder(10, 16, (1, 8, 8))
    capsules = class_capsules()
    labels = torch.tensor([[1, 2], [3, 4], [5, 6], [0, 9]])
    images = draw(capsules, labels)
    assert images.shape == (4, 2, 1, 8, 8)
    torch.testing.assert_close(images[:, 1], draw(capsules, labels[:, 1]))
    top = capsules.activations.topk(2).indices
    torch.testing.assert_close(draw(capsules, top=2), draw(capsules, top))


def test_masking_by_label_and_by_prediction():
    activations = torch.tensor([[0.2, 0.9, 0.4], [0.8, 0.1, 0.3]])
    assert tc.class_mask(activations).tolist() == [[0, 1, 0], [1, 0, 0]]
    assert tc.class_mask(activations, torch.tensor([2, 2])).tolist() == [[0, 0, 1], [0, 0, 1]]
    assert tc.class_mask(activations, top=2).argmax(-1).tolist() == [[1, 2], [0, 2]]
    both = torch.tensor([[True, True, False], [False, False, True]])
    for truth in (both, both.long(), both.float()):
        assert tc.class_mask(activations, truth).tolist() == [[1, 1, 0], [0, 0, 1]]


def test_masking_keeps_the_identity_of_the_class():
    """The same pose in another class capsule must draw another image: 160 inputs, not 16."""
    draw = tc.DenseDecoder(10, 16, (1, 8, 8))
    pose = torch.randn(1, 1, 16).expand(1, 10, 16)
    capsules = tc.Capsules(pose, tc.length(pose))
    assert draw.layers[0].in_features == 160
    assert not torch.allclose(draw(capsules, torch.tensor([3])), draw(capsules, torch.tensor([5])))


def test_silenced_capsules_have_no_say():
    draw = tc.DenseDecoder(10, 16, (1, 8, 8))
    capsules = class_capsules(1)
    other = capsules.poses.clone()
    other[:, [0, 1, 2, 4, 5, 6, 7, 8, 9]] = 5
    label = torch.tensor([3])
    torch.testing.assert_close(draw(capsules, label), draw(capsules._replace(poses=other), label))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: tc.PrimaryCapsules(2, 3, 4)(torch.ones(1, 3, 5, 5)),
            r"features \[b c h w\] with c=2, got \(1, 3, 5, 5\)",
        ),
        (lambda: tc.PrimaryCapsules(2, 3, 4, kind="scalar"), "kind to be one of 'vector', 'matrix'"),
        (
            lambda: tc.ClassCapsules(3, 5, 16, 16, coordinates="corner"),
            "coordinates to be one of 'column', 'first', got 'corner'",
        ),
        (lambda: tc.ClassCapsules(3, 5, 16, 16)(grid_of(4)), r"poses \[b h w i e\]"),
        (lambda: tc.add_coordinates(torch.zeros(1, 2, 2, 1, 1, 5)), 'Put the coordinates "first"'),
        (lambda: tc.class_mask(torch.ones(2, 3), torch.ones(2)), "or one truth value"),
        (lambda: tc.class_mask(torch.ones(2, 3), torch.ones(2, 2) > 0), r"truth values \[b y\] = \(2, 3\)"),
        (lambda: tc.class_mask(torch.ones(2, 3), torch.tensor([0, 3])), "class indices from 0 to 2, got 3"),
        (lambda: tc.class_mask(torch.ones(2, 3), torch.tensor([0, 1]), top=2), "labels or top, got both"),
        (lambda: tc.ClassCapsules(3, 5, 8, 8, votes="full"), "ClassCapsules: expected square pose matrices"),
        (lambda: tc.DenseDecoder(10, 16, 784), "three numbers"),
        (lambda: tc.class_mask(torch.ones(2, 3), top=4), "top between 1 and 3"),
        (lambda: tc.DenseDecoder(10, 16, (28, 28)), "three numbers"),
        (lambda: tc.DenseDecoder(10, 16, (1, 8, 8))(class_capsules(classes=9)), "Set in_capsules=9"),
    ],
)
def test_wrong_arguments_get_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
