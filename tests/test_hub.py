"""Networks as model hubs keep them: a folder that save_pretrained writes and from_pretrained reads."""

import json

import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file, save_file
from torch import nn

import torchcaps as tc
from torchcaps._core.errors import InputError


def images_model(**options):
    return tc.create_model("efficient", image_shape=(1, 8, 8), classes=3, capsules=4, **options).eval()


def test_a_network_of_images_comes_back(tmp_path):
    model = images_model(routing="em", iterations=2)
    tc.save_pretrained(model, tmp_path, class_names=["a", "b", "c"])
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "model.safetensors", "README.md"}
    again = tc.from_pretrained(tmp_path)
    inputs = torch.rand(4, 1, 8, 8)
    assert torch.equal(again(inputs).activations, model(inputs).activations)
    assert not again.training
    assert again.class_names == ("a", "b", "c")
    assert again.routed_layers[-1].routing.iterations == 2
    assert tc.predict(again, inputs)[0].labels[0] in ("a", "b", "c")


def test_a_network_of_texts_comes_back(tmp_path):
    model = tc.create_model("text", vocabulary=30, classes=2, dim=8).eval()
    tc.save_pretrained(model, str(tmp_path / "texts"))
    again = tc.from_pretrained(str(tmp_path / "texts"))
    words = torch.randint(1, 30, (2, 9))
    assert torch.equal(again(words).activations, model(words).activations)
    assert again.class_names is None


def test_the_shipped_networks_can_be_saved(tmp_path):
    model = tc.load_pretrained("mnist-efficient")
    tc.save_pretrained(model, tmp_path)
    images = torch.rand(2, 1, 28, 28)
    assert torch.equal(tc.from_pretrained(tmp_path)(images).activations, model(images).activations)


def test_a_hub_reads_the_card(tmp_path):
    tc.save_pretrained(images_model(), tmp_path, class_names=["x", "y", "z"])
    card = ModelCard.load(tmp_path / "README.md")
    assert card.data.library_name == "torchcaps"
    assert "capsule-network" in card.data.tags
    assert "images in 3 classes (x, y, z)" in card.text


def test_what_cannot_be_saved_is_told(tmp_path):
    with pytest.raises(InputError, match="a network of create_model"):
        tc.save_pretrained(tc.models.EfficientCapsNet((1, 8, 8), 3, capsules=4), tmp_path)
    with pytest.raises(InputError, match="a network of create_model, got Linear"):
        tc.save_pretrained(nn.Linear(2, 2), tmp_path)
    model = tc.create_model("efficient", image_shape=(1, 8, 8), classes=3, encoder=nn.Conv2d(1, 16, 3))
    with pytest.raises(InputError, match="options that can be stored as JSON, got encoder"):
        tc.save_pretrained(model, tmp_path)
    with pytest.raises(InputError, match="3 class_names, got 1"):
        tc.save_pretrained(images_model(), tmp_path, class_names=["a"])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "change",
    [
        {"name": "no-such-model"},
        {"classes": 10**9},
        {"classes": "many"},
        {"options": {"capsules": 10**9}},
        {"options": {"nonsense": 1}},
        {"image_shape": [1]},
        {"class_names": ["only one"]},
    ],
)
def test_a_strangers_folder_is_refused_in_a_sentence(tmp_path, change):
    tc.save_pretrained(images_model(), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **change}))
    with pytest.raises(InputError) as caught:
        tc.from_pretrained(tmp_path)
    assert "\n" not in str(caught.value)


def test_broken_and_other_folders_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"a folder with config\.json, got none"):
        tc.from_pretrained(tmp_path)
    tc.save_pretrained(images_model(), tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"broken")
    with pytest.raises(InputError, match="a network that save_pretrained wrote"):
        tc.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"), [("missing", "Missing key"), ("more", "Unexpected key"), ("nan", "finite numbers")]
)
def test_weights_that_are_not_those_of_the_network_are_refused(tmp_path, change, message):
    tc.save_pretrained(images_model(), tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    name = next(name for name, tensor in state.items() if tensor.is_floating_point())
    if change == "missing":
        del state[name]
    elif change == "more":
        state["model.more"] = torch.zeros(1)
    else:
        state[name] = state[name] * float("nan")
    save_file(state, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=message) as caught:
        tc.from_pretrained(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_run_folder_is_sent_to_load(tmp_path):
    tc.save_pretrained(images_model(), tmp_path)
    (tmp_path / "metadata.json").write_text("{}")
    with pytest.raises(InputError, match=r"got a run folder\. Use torchcaps\.load"):
        tc.from_pretrained(tmp_path)


def test_from_pretrained_leaves_the_random_generator_alone(tmp_path):
    tc.save_pretrained(images_model(), tmp_path)
    before = torch.random.get_rng_state()
    tc.from_pretrained(tmp_path)
    assert torch.equal(torch.random.get_rng_state(), before)
