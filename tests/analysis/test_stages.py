"""The stages of a network are what its layers compute, and the figure shows them."""

import pytest
import torch

import torchcaps as tc
from torchcaps._core.errors import InputError
from torchcaps.analysis.stages import stages
from torchcaps.plots.stages import mosaic, stages_figure


def network(name, **options):
    return tc.create_model(name, image_shape=(1, 20, 20), classes=3, **options)


def test_stages_of_capsnet_end_with_its_answer_and_its_drawing():
    model, image = network("capsnet", channels=6, capsules=2), torch.rand(1, 20, 20)
    found = stages(model, image)
    assert [(stage.name, stage.shape) for stage in found] == [
        ("image", (20, 20, 1)),
        ("feature map", (12, 12, 6)),
        ("primary capsules", (2, 2, 2, 8)),
        ("class capsules", (3, 16)),
        ("hidden", (512,)),
        ("hidden", (1024,)),
        ("reconstruction", (20, 20, 1)),
    ]
    assert model.training
    model.eval()
    answer = model(image.unsqueeze(0))
    torch.testing.assert_close(found[3].poses, answer.poses[0])
    torch.testing.assert_close(found[3].activations, answer.activations[0])
    torch.testing.assert_close(found[2].maps.movedim(0, -1), model.children_of(image.unsqueeze(0)).activations[0])
    torch.testing.assert_close(found[-1].maps, model.reconstruct(answer)[0])
    torch.testing.assert_close(model.decoder.layers[4](found[5].maps[0]).sigmoid(), found[-1].maps.reshape(1, -1))


def test_stages_of_matrix_capsules_say_what_makes_them():
    found = stages(network("matrix", sizes=(4, 3, 2, 2), iterations=2), torch.rand(1, 20, 20))
    assert [stage.shape for stage in found] == [
        (20, 20, 1),
        (8, 8, 4),
        (8, 8, 3, 16),
        (3, 3, 2, 16),
        (1, 1, 2, 16),
        (3, 16),
    ]
    assert [stage.how for stage in found[1:4]] == [
        "convolution\n5 x 5, stride 2",
        "convolution\n1 x 1",
        "window 3 x 3\nvotes 4 x 4\nem, 2 x",
    ]


@pytest.mark.parametrize("name", ["efficient", "deep"])
def test_stages_are_of_any_network_of_capsules(name):
    assert stages(network(name), torch.rand(1, 20, 20))[-1].shape in ((20, 20, 1), (3, 16))


def test_stages_are_of_capsules_only():
    with pytest.raises(InputError, match="stages: expected a network of capsules for images, got SmallCNN"):
        stages(network("cnn-small"), torch.rand(1, 20, 20))


def test_a_mosaic_holds_the_strongest_maps():
    maps = torch.stack([torch.full((3, 3), float(number)) for number in range(20)])
    canvas = mosaic(maps)
    assert canvas.shape == (15, 15)
    assert canvas[0, 0] == 4
    assert canvas[-1, -1] == 19
    assert canvas[3].isnan().all()
    assert mosaic(torch.arange(5.0).view(1, 1, 5)).nan_to_num(-1).tolist() == [[0, 1, 2], [3, 4, -1]]


def test_a_panel_for_each_stage_and_an_arrow_between_them():
    found = stages(network("capsnet", channels=6, capsules=2), torch.rand(1, 20, 20))
    figure = stages_figure(found, ("a", "b", "c"), "capsnet")
    panels, arrows = figure.axes[::2], figure.axes[1::2]
    assert [axes.get_title().replace("\n", " ") for axes in panels] == [stage.name for stage in found]
    assert [axes.texts[-1].get_text() for axes in arrows] == [stage.how for stage in found[1:]]
    best = int(found[3].activations.argmax())
    assert [label.get_weight() for label in panels[3].get_yticklabels()].index("bold") == best
