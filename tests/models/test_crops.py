"""Windows of images, as the paper on matrix capsules takes them from smallNORB."""

import pytest
import torch

import torchcaps as tc
from tests.support.commands import run, save_norb, save_pictures
from torchcaps.models.crops import PATCHES, Crop, Patches
from torchcaps.runs.config import TrainConfig
from torchcaps.runs.recipes import resolve, with_size

SMALL = {"image_shape": (1, 24, 24), "classes": 3, "sizes": (8, 2, 2, 2), "iterations": 1, "crop": 18}


def windows_of(image, size):
    rows, columns = (side - size + 1 for side in image.shape[-2:])
    return {
        (top, left): image[:, top : top + size, left : left + size] for top in range(rows) for left in range(columns)
    }


def test_training_sees_windows_at_every_place():
    torch.manual_seed(0)
    image = torch.rand(2, 7, 6)
    seen = Crop(4).train()(image.expand(400, -1, -1, -1))
    places = windows_of(image, 4)
    found = [next(place for place, part in places.items() if torch.equal(part, each)) for each in seen]
    assert set(found) == set(places)


def test_judging_sees_the_middle():
    images = torch.rand(3, 1, 10, 8)
    assert torch.equal(Crop(4).eval()(images), images[:, :, 3:7, 2:6])


def test_thirteen_patches_are_the_middle_and_four_corners_at_three_distances():
    assert len(set(PATCHES)) == 13
    assert sorted({max(map(abs, place)) for place in PATCHES}) == [0, 1, 2, 3]
    assert all(abs(down) == abs(right) for down, right in PATCHES)


def test_patches_average_answers_to_moved_images():
    torch.manual_seed(1)
    model = tc.create_model("matrix-small", **SMALL).eval()
    image = torch.rand(1, 24, 24)
    whole = tc.create_model("matrix-small", **{**SMALL, "image_shape": (1, 18, 18), "crop": None}).eval()
    state = {word.replace("encoder.1", "encoder.0"): tensor for word, tensor in model.state_dict().items()}
    whole.load_state_dict(state)
    parts = torch.stack([image[:, 3 + down : 21 + down, 3 + right : 21 + right] for down, right in PATCHES])
    with torch.no_grad():
        expected, got, middle = whole(parts), Patches(model)(image[None]), model(image[None])
    torch.testing.assert_close(got.activations[0], expected.activations.mean(0))
    torch.testing.assert_close(got.poses[0], expected.poses.mean(0))
    torch.testing.assert_close(middle.activations[0], expected.activations[0])


@pytest.mark.parametrize("name", ["matrix-small", "cnn-norb"])
def test_the_network_is_as_large_as_for_images_of_that_size(name):
    cropped = tc.create_model(name, image_shape=(2, 48, 48), classes=5, crop=32)
    plain = tc.create_model(name, image_shape=(2, 32, 32), classes=5)
    assert sum(p.numel() for p in cropped.parameters()) == sum(p.numel() for p in plain.parameters())


def test_refusals():
    with pytest.raises(ValueError, match="crop between 1 and 24, got 25"):
        tc.create_model("matrix-small", **{**SMALL, "crop": 25})
    with pytest.raises(ValueError, match="no decoder beside crop"):
        tc.create_model("matrix-small", **SMALL, decoder=True)
    with pytest.raises(ValueError, match="a network that takes whole images"):
        Patches(tc.create_model("matrix-small", **{**SMALL, "crop": None}))
    with pytest.raises(ValueError, match="windows with 4 pixels to spare"):
        Patches(tc.create_model("matrix-small", **{**SMALL, "crop": 20}))


@pytest.mark.parametrize("model", ["matrix", "matrix-small", "cnn-norb"])
def test_the_papers_preset_takes_smallnorb_as_the_paper_does(model):
    config = with_size(TrainConfig("smallnorb", model=model, preset="paper"))
    config = resolve(config, 21870)
    assert config.size == 48
    assert config.model_options()["crop"] == 32
    assert config.model_options()["standardize"] is True
    assert (config.augment, config.schedule, config.batch_size, config.lr) == ("light", "slow-exponential", 64, 3e-3)
    other = resolve(with_size(TrainConfig("toys", model=model, preset="paper")), 4500)
    assert other.size is None
    assert "crop" not in other.model_options()


def test_smallnorb_by_the_papers_preset_is_trained_and_judged_on_patches(tmp_path, capsys):
    data, out = save_norb(tmp_path / "data"), tmp_path / "run"
    words = ["smallnorb", "--data-dir", data, "--model", "matrix-small", "--preset", "paper", "--iterations", 1]
    assert run("train", *words, "--epochs", 1, "--option", "sizes=[8,2,2,2]", "--out", out) == 0
    assert tc.load(out).image_shape == (2, 48, 48)
    capsys.readouterr()
    assert run("evaluate", out, "--json", "--no-pictures") == 0
    assert run("evaluate", out, "--json", "--no-pictures", "--patches") == 0
    assert capsys.readouterr().out.count('"examples": 60,') == 2
    assert [path.name for path in (out / "evaluation").iterdir() if path.is_dir()] == ["smallnorb-test-patches"]


def test_patches_of_a_network_that_takes_whole_images_are_refused(tmp_path, capsys):
    pictures, out = save_pictures(tmp_path / "data"), tmp_path / "run"
    assert run("train", pictures, "--model", "cnn-norb", "--epochs", 1, "--out", out) == 0
    assert run("evaluate", out, "--patches") == 2
    assert "expected windows that can move by 3 pixels either way" in capsys.readouterr().err
