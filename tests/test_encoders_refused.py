"""Encoders whose files are code, changed or broken: what is trusted, and what is refused in a sentence."""

import importlib.util
import json
import os
import shutil
import sys
import warnings

import pytest
import torch
from safetensors.torch import load_file, save_file

import torchcaps as tc
from tests.support.commands import refused, run
from tests.support.encoders import SHORT, SIDE, save_network, write_preprocessor
from torchcaps._core import extensions
from torchcaps.runs.run import Run


@pytest.fixture
def forgotten():
    yield
    os.environ.pop(extensions.VARIABLE, None)
    extensions._done.clear()
    for name in ("torchcaps_import_nets", "nets"):
        sys.modules.pop(name, None)


class Exported(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = torch.nn.Conv2d(3, 16, 3, stride=4)

    def forward(self, images):
        return self.convolution(images - 0.5).relu()


@pytest.mark.usefixtures("forgotten")
def test_a_program_is_an_encoder_and_runs_again_only_when_it_is_named(tmp_path, pictures, capsys):
    shapes = ({0: torch.export.Dim.DYNAMIC},)
    program = torch.export.export(Exported().eval(), (torch.rand(2, 3, SIDE, SIDE),), dynamic_shapes=shapes)
    torch.export.save(program, tmp_path / "net.pt2")
    out = tmp_path / "run"
    words = ["train", pictures, "--encoder", tmp_path / "net.pt2", "--option", "capsules=4", "--epochs", 2]
    assert run(*words, "--out", out) == 0
    assert Run.open(out).metadata.image_shape == (1, SIDE, SIDE)
    (tmp_path / "net.pt2").unlink()
    os.environ.pop(extensions.VARIABLE)
    extensions._done.clear()
    inside = out / "encoder" / "model.pt2"
    assert f"If you trust it, give --import {inside}" in refused(capsys, "evaluate", out)
    assert run("evaluate", out, "--import", inside) == 0
    assert run("export", out, "--import", inside) == 0


@pytest.mark.usefixtures("forgotten")
def test_a_function_of_an_imported_file_is_an_encoder(tmp_path, pictures, capsys):
    file = tmp_path / "nets.py"
    file.write_text(
        "import os\nimport torch\nfrom os import getcwd\n\n"
        "def tiny():\n    return torch.nn.Sequential(torch.nn.Conv2d(1, 16, 5, stride=4), torch.nn.ReLU())\n\n"
        "def number():\n    return 3\n"
    )
    out = tmp_path / "run"
    words = ["train", pictures, "--option", "capsules=4", "--epochs", 2, "--import", file]
    assert run(*words, "--encoder", "nets:tiny", "--out", out) == 0
    for name, said in (
        ("nets:none", "expected a function none in nets, got none"),
        ("nets:getcwd", "expected a function getcwd in nets, got none"),
        ("nets:number", "expected a function that returns a torch.nn.Module, got a int"),
        ("nowhere:tiny", "expected a module nowhere, got No module named 'nowhere'"),
    ):
        assert said in refused(capsys, *words, "--encoder", name)
    os.environ.pop(extensions.VARIABLE)
    extensions._done.clear()
    sys.modules.pop("torchcaps_import_nets")
    assert "nets:tiny, which could run code of its own" in refused(capsys, "evaluate", out)
    assert run("evaluate", out, "--import", file) == 0


@pytest.mark.usefixtures("forgotten")
def test_a_config_of_a_stranger_runs_no_function(tmp_path, pictures, capsys):
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"data": str(pictures), "encoder": "os:getpid", "option": ["capsules=4"]}))
    said = refused(capsys, "train", "--config", config, "--size", 20, "--out", tmp_path / "run")
    assert "os:getpid, which could run code of its own. If you trust it, give --import os:getpid" in said


def test_a_config_of_a_stranger_chooses_no_code(frozen, tmp_path):
    copy = shutil.copytree(frozen, tmp_path / "copy")
    path = copy / "encoder" / "config.json"
    config = json.loads(path.read_text())
    assert not {"auto_map", "_name_or_path", "quantization_config"} & config.keys()
    config |= {"auto_map": {"AutoModel": "evil--evil.Model"}, "_attn_implementation": "evil/kernel"}
    config |= {"quantization_config": {"quant_method": "evil"}, "attn_implementation": "evil/kernel"}
    path.write_text(json.dumps(config))
    images = torch.rand(1, 1, SIDE, SIDE)
    assert torch.equal(tc.load(copy)(images).poses, tc.load(frozen)(images).poses)


def test_a_folder_of_links_is_read(tmp_path, resnet):
    links = tmp_path / "snapshot"  # as caches of model hubs keep networks
    links.mkdir()
    for file in resnet.iterdir():
        (links / file.name).symlink_to(file)
    images = torch.rand(1, 3, SIDE, SIDE)
    assert torch.equal(tc.load_encoder(links)(images), tc.load_encoder(resnet)(images))


@pytest.mark.parametrize("name", ["config.json", "encoder.json", "model.safetensors"])
def test_links_and_changes_in_the_encoder_of_a_run_are_refused(name, frozen, tmp_path, capsys):
    copy = shutil.copytree(frozen, tmp_path / "run")
    place = copy / "encoder" / name
    content = bytearray(place.read_bytes())
    place.unlink()
    place.symlink_to(frozen / "encoder" / name)
    assert "got a link that leads out of it" in refused(capsys, "evaluate", copy)
    place.unlink()
    content[-8] ^= 1
    place.write_bytes(content if name == "model.safetensors" else b"[]")
    assert str(place) in refused(capsys, "evaluate", copy)


def change(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def broken_networks(folder):
    """Folders that are no encoders, and what is said of each."""

    def copy(name):
        return shutil.copytree(folder, folder.parent / name)

    (folder.parent / "empty").mkdir()
    yield folder.parent / "empty", "expected a folder with config.json and model.safetensors, got no config.json"
    yield folder.parent / "nowhere", "nowhere, which is not there. Check the path or the name."
    pickled = copy("pickled")
    (pickled / "model.safetensors").unlink()
    torch.save({"a": torch.ones(1)}, pickled / "pytorch_model.bin")
    yield pickled, "expected weights in model.safetensors, got pytorch_model.bin, whose pickle could run code"
    cut = copy("cut")
    (cut / "model.safetensors").write_bytes((cut / "model.safetensors").read_bytes()[:-100])
    yield cut, "expected a file of safetensors"
    missing = copy("missing")
    state = load_file(missing / "model.safetensors")
    save_file(dict(list(state.items())[:-3]), missing / "model.safetensors")
    yield missing, "expected weights for all of ResNetModel, got none for"
    other = copy("other")
    change(other, hidden_sizes=[8, 16, 16, 64])
    yield other, "expected config.json and weights that fit together"
    infinite = copy("infinite")
    state = {name: tensor.clone() for name, tensor in state.items()}
    next(tensor for tensor in state.values() if tensor.is_floating_point()).fill_(float("nan"))
    save_file(state, infinite / "model.safetensors")
    yield infinite, "expected weights that are finite numbers"
    strange = copy("strange")
    change(strange, model_type="of_tomorrow")
    yield strange, "expected a model_type in config.json that transformers knows, got 'of_tomorrow'"
    deep = copy("deep")
    change(deep, depths=[1, 1, 1, 10**9])
    yield deep, "expected depths between 0 and 1000, got 1000000000"
    no_json = copy("no-json")
    (no_json / "config.json").write_text("{")
    yield no_json, "expected a JSON file of a network"
    odd = copy("odd")
    (odd / "preprocessor_config.json").write_text('{"image_mean": "gray"}')
    yield odd, "expected image_mean and image_std as lists of numbers, got 'gray'"
    texts = save_network(folder.parent / "bert", "bert")
    yield texts, "expected an encoder for images, got bert, which reads input_ids"


def test_what_is_no_encoder_is_refused_in_a_sentence(tmp_path, pictures, capsys):
    for folder, said in broken_networks(save_network(tmp_path / "resnet")):
        assert said in refused(capsys, "train", pictures, "--encoder", folder, *SHORT, "--out", tmp_path / "run")
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--encoder-lr", "1e-4"], "--encoder-lr: expected an --encoder beside it, got none"),
        (["--encoder", "RESNET", "--encoder-lr", "-1"], "expected encoder_lr above 0, got -1.0"),
        (["--encoder", "RESNET", "--model", "capsnet"], "expected a model that reads its features, got capsnet"),
        (["--encoder", "RESNET", "--option", "stem=photo"], "expected no stem beside an encoder, got 'photo'"),
        (["--encoder", "RESNET", "--option", "capsules=5"], "got 32 channels for 5 capsules"),
        (["--encoder", "nothing"], "got nothing, which is not there"),
        (["--option", "encoder=vgg"], "for an encoder --encoder"),
    ],
)
def test_options_that_do_nothing_are_refused(words, said, pictures, resnet, capsys):
    words = [resnet if word == "RESNET" else word for word in words]
    assert said in refused(capsys, "train", pictures, "--size", SIDE, *words)


def test_texts_take_no_encoder_of_images(tmp_path, resnet, capsys):
    table = tmp_path / "texts.csv"
    table.write_text("text,label\n" + "good,1\nbad,0\n" * 10)
    said = "expected an encoder for texts, got resnet, which reads pixel_values. Choose one like bert"
    assert said in refused(capsys, "train", table, "--encoder", resnet)
    write_preprocessor(shutil.copytree(resnet, tmp_path / "sized"), size=48)
    assert said in refused(capsys, "train", table, "--encoder", tmp_path / "sized")


def test_timm_is_named_where_it_is_missing(pictures, capsys):
    if importlib.util.find_spec("timm") is not None:
        pytest.skip("timm is installed")
    said = refused(capsys, "train", pictures, "--encoder", "timm:resnet18")
    assert "expected the package timm, got it not installed. Run: pip install timm" in said


def test_transformers_is_named_where_it_is_missing(pictures, resnet, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    said = refused(capsys, "train", pictures, "--encoder", resnet)
    assert "expected the package transformers, got it not installed. Run: pip install 'torchcaps[encoders]'" in said


def test_sizes_that_a_network_does_not_take_are_refused(tmp_path, pictures, capsys):
    encoder = save_network(tmp_path / "vit", "vit")
    with warnings.catch_warnings():
        said = refused(capsys, "train", pictures, "--encoder", encoder, "--size", 4, "--option", "capsules=8")
    assert "expected an encoder for images (1, 4, 4), got an error" in said
