"""Encoders: features of networks of transformers, normalization, token maps, freezing."""

import json

import pytest
import torch
from torch import nn

import torchcaps as tc
from tests.support.encoders import SIDE, save_network, write_preprocessor
from torchcaps.models.encoders import Encoder, head_of, token_map

SHAPES = {
    "resnet": (32, 1, 1),
    "convnext": (32, 1, 1),
    "vit": (32, 4, 4),
    "dinov2": (32, 4, 4),
    "swin": (32, 4, 4),
    "clip": (32, 4, 4),
}


@pytest.mark.parametrize("kind", SHAPES)
def test_networks_of_transformers_give_feature_maps(kind, tmp_path):
    encoder = tc.load_encoder(save_network(tmp_path / kind, kind))
    with torch.no_grad():
        assert encoder(torch.rand(2, 3, SIDE, SIDE)).shape[1:] == SHAPES[kind]
        assert encoder(torch.rand(2, 1, SIDE, SIDE)).shape[1:] == SHAPES[kind]  # gray


@pytest.mark.parametrize("kind", ["resnet", "vit"])
def test_features_are_those_of_the_network_on_normalized_images(kind, tmp_path):
    import transformers

    folder = save_network(tmp_path / kind, kind)
    encoder = tc.load_encoder(folder)
    plain = transformers.AutoModel.from_pretrained(folder).eval()
    images = torch.rand(2, 3, SIDE, SIDE)
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    with torch.no_grad():
        wanted = plain((images - mean.view(3, 1, 1)) / std.view(3, 1, 1)).last_hidden_state
        if kind == "vit":
            wanted = wanted[:, 1:].transpose(1, 2).view(2, 32, 4, 4)
        assert torch.allclose(encoder(images), wanted, atol=1e-6)


def test_a_preprocessor_gives_normalization_and_size(tmp_path):
    folder = save_network(tmp_path / "net")
    write_preprocessor(folder, image_mean=[0.5] * 3, image_std=[0.25] * 3, size={"height": 48, "width": 48})
    encoder = tc.load_encoder(folder)
    assert (encoder.mean.flatten().tolist(), encoder.std.flatten().tolist()) == ([0.5] * 3, [0.25] * 3)
    assert encoder.size == 48
    write_preprocessor(folder, rescale_factor=1 / 127.5, image_mean=[1.0], image_std=[1.0], size={"shortest_edge": 20})
    encoder = tc.load_encoder(folder)
    assert (float(encoder.mean), float(encoder.std), encoder.size) == (0.5, 0.5, 20)
    write_preprocessor(folder, do_normalize=False, size=40, crop_size={"height": 36, "width": 36})
    encoder = tc.load_encoder(folder)
    assert (float(encoder.mean), float(encoder.std), encoder.size) == (0.0, 1.0, 36)


def test_a_vision_transformer_takes_other_sizes(tmp_path):
    encoder = tc.load_encoder(save_network(tmp_path / "vit", "vit"))
    with torch.no_grad():
        assert encoder(torch.rand(1, 3, 48, 64)).shape == (1, 32, 6, 8)


def test_weights_in_several_files_are_read(tmp_path):
    from safetensors.torch import load_file, save_file

    folder = save_network(tmp_path / "net")
    before = tc.load_encoder(folder).state_dict()
    state = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    parts = {name: f"model-{1 + number % 2}.safetensors" for number, name in enumerate(state)}
    for file in set(parts.values()):
        save_file({name: state[name] for name in state if parts[name] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": parts}))
    after = tc.load_encoder(folder).state_dict()
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_an_encoder_is_frozen_until_it_is_tuned():
    encoder = Encoder(nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16)), "mine")
    encoder.train()
    assert not encoder.network.training
    assert not any(parameter.requires_grad for parameter in encoder.parameters())
    encoder.tune()
    encoder.train()
    assert encoder.network[1].training
    assert all(parameter.requires_grad for parameter in encoder.parameters())


def test_tokens_before_the_patches_are_left_out():
    tokens = torch.arange(7.0).view(1, 7, 1)
    assert token_map("mine", tokens, (8, 12), 4).flatten().tolist() == [1, 2, 3, 4, 5, 6]
    assert token_map("mine", tokens, (8, 12), None).shape == (1, 1, 2, 3)
    with pytest.raises(ValueError, match="got 7 tokens"):
        token_map("mine", tokens, (8, 8), None)


def test_a_head_shares_its_weights_with_the_network():
    encoder = Encoder(nn.Conv2d(3, 16, 3, stride=2), "mine")
    model = tc.create_model("efficient", image_shape=(3, 12, 12), classes=3, encoder=encoder, decoder=False)
    head = head_of(model)
    images = torch.rand(2, 3, 12, 12)
    assert torch.equal(head(encoder(images)).poses, model(images).poses)
    assert {id(each) for each in head.parameters()} == {id(each) for each in model.parameters() if each.requires_grad}
    assert model.encoder is encoder


def test_a_stem_beside_an_encoder_is_refused():
    with pytest.raises(ValueError, match="no stem beside an encoder, got 'photo'"):
        tc.create_model("efficient", image_shape=(3, 12, 12), classes=3, encoder=nn.Conv2d(3, 16, 3), stem="photo")
