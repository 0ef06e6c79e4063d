"""Pretrained encoders on the command line and in Python: trained, resumed, exported, explained, refused."""

import csv
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
from tests.support.encoders import SIDE, save_network
from torchcaps._core import extensions
from torchcaps.apps.export import load_onnx
from torchcaps.runs.run import Run
from torchcaps.train import features

SHORT = ("--size", SIDE, "--option", "capsules=8", "--batch-size", 16)


@pytest.fixture(scope="module")
def resnet(tmp_path_factory):
    return save_network(tmp_path_factory.mktemp("encoders") / "resnet")


@pytest.fixture(scope="module")
def frozen(tmp_path_factory, pictures):
    """A run with a frozen encoder, whose folder is gone."""
    folder = tmp_path_factory.mktemp("frozen")
    save_network(folder / "vit", "vit")
    assert run("train", pictures, "--encoder", folder / "vit", *SHORT, "--epochs", 8, "--out", folder / "run") == 0
    shutil.rmtree(folder / "vit")
    return folder / "run"


@pytest.fixture
def forgotten():
    yield
    os.environ.pop(extensions.VARIABLE, None)
    extensions._done.clear()
    for name in ("torchcaps_import_nets", "nets"):
        sys.modules.pop(name, None)


def losses(folder):
    with (folder / "metrics.csv").open() as file:
        return [float(row["train_loss"]) for row in csv.DictReader(file)]


def stored(folder):
    return load_file(folder / "encoder" / "model.safetensors")


@pytest.mark.parametrize("kind", ["resnet", "convnext", "vit"])
def test_a_frozen_encoder_lowers_the_loss_and_keeps_its_weights(kind, tmp_path, pictures):
    folder = save_network(tmp_path / kind, kind)
    before = tc.load_encoder(folder).network.state_dict()
    out = tmp_path / "run"
    assert run("train", pictures, "--encoder", folder, *SHORT, "--epochs", 6, "--out", out) == 0
    found = losses(out)
    assert found[-1] < 0.95 * found[0]
    after = tc.load(out).encoder.network.state_dict()
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert not [name for name in load_file(out / "model.safetensors") if name.startswith("encoder.")]


def test_a_tuned_encoder_learns_at_its_own_rate(tmp_path, pictures, resnet):
    before = tc.load_encoder(resnet).network.state_dict()
    moved = {}
    for rate in ("1e-5", "1e-3"):
        out = tmp_path / rate
        words = ["--encoder", resnet, "--encoder-lr", rate, *SHORT, "--epochs", 2, "--schedule", "constant"]
        assert run("train", pictures, *words, "--weight-decay", 0, "--out", out) == 0
        after = tc.load(out).encoder.network.state_dict()
        moved[rate] = max(
            float((after[name] - before[name]).abs().max()) for name in before if name.endswith("convolution.weight")
        )
        assert any(not torch.equal(after[name], before[name]) for name in before if "running_mean" in name)
        assert all(torch.equal(stored(out)[name], before[name]) for name in before)  # as training began
    assert 0 < moved["1e-5"] < 20e-5 < moved["1e-3"]  # Adam moves a weight by about its rate in each step


def test_a_run_works_without_the_folder_of_its_encoder(frozen, pictures, tmp_path, capsys):
    assert run("evaluate", frozen) == 0
    assert run("predict", frozen, pictures / "left" / "0.png") == 0
    assert "left" in capsys.readouterr().out
    assert run("explain", frozen, pictures / "left" / "0.png") == 0
    assert (frozen / "explain" / "tree.png").exists() or list((frozen / "explain").glob("*tree.png"))
    assert run("health", frozen, "--count", 10) == 0
    assert run("report", frozen, "--out", tmp_path / "report.html") == 0
    copy = shutil.copytree(frozen, tmp_path / "elsewhere")
    assert torch.equal(
        tc.load(copy)(torch.ones(1, 1, SIDE, SIDE)).poses, tc.load(frozen)(torch.ones(1, 1, 32, 32)).poses
    )


@pytest.mark.parametrize("kind", ["onnx", "torch"])
def test_exported_files_agree(frozen, tmp_path, kind):
    out = tmp_path / ("net.onnx" if kind == "onnx" else "net.pt2")
    assert run("export", frozen, "--out", out, *(["--torch"] if kind == "torch" else [])) == 0
    images = torch.rand(3, 1, SIDE, SIDE)
    answers = load_onnx(out) if kind == "onnx" else torch.export.load(out).module()
    with torch.no_grad():
        assert torch.allclose(answers(images)[0], tc.load(frozen)(images).activations, atol=1e-5)


@pytest.mark.parametrize("rate", [None, "1e-4"])
def test_a_resumed_run_ends_with_the_same_bits(rate, tmp_path, pictures, monkeypatch):
    from torchcaps.train import progress

    words = [] if rate is None else ["--encoder-lr", rate]
    encoder = save_network(tmp_path / "resnet")

    def train(out):
        return run("train", pictures, "--encoder", encoder, *words, *SHORT, "--epochs", 3, "--out", out)

    assert train(tmp_path / "whole") == 0
    usual = progress.Progress.on_train_epoch_end

    def interrupted(self, trainer, module):
        usual(self, trainer, module)
        if trainer.current_epoch == 0:
            raise KeyboardInterrupt

    monkeypatch.setattr(progress.Progress, "on_train_epoch_end", interrupted)
    assert train(tmp_path / "resumed") == 130
    monkeypatch.undo()
    shutil.rmtree(encoder)
    assert run("train", "--resume", tmp_path / "resumed") == 0
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "resumed")]
    assert weights[0] == weights[1]


def test_features_are_computed_once_without_augmentation(tmp_path, pictures, resnet, monkeypatch, capsys):
    seen = []
    usual = features.features_of
    monkeypatch.setattr(features, "features_of", lambda *given: seen.append(given) or usual(*given))
    words = ["train", pictures, "--encoder", resnet, *SHORT, "--epochs", 2]
    assert run(*words, "--out", tmp_path / "plain") == 0
    assert len(seen) == 2  # of the training and validation parts
    assert "frozen, features computed once; images less 0.485" in capsys.readouterr().out
    assert run(*words, "--augment", "mirror", "--out", tmp_path / "mirror") == 0
    assert len(seen) == 2
    assert "features computed in every epoch because of augment mirror" in capsys.readouterr().out
    assert losses(tmp_path / "mirror") != losses(tmp_path / "plain")


def test_features_that_do_not_fit_in_memory_are_on_disk(tmp_path, pictures, resnet, monkeypatch):
    words = ["train", pictures, "--encoder", resnet, *SHORT, "--epochs", 2]
    assert run(*words, "--out", tmp_path / "memory") == 0
    monkeypatch.setenv("TORCHCAPS_DATA_BYTES", "1000")
    monkeypatch.setenv("TORCHCAPS_DATA", str(tmp_path))
    assert run(*words, "--out", tmp_path / "disk") == 0
    assert losses(tmp_path / "disk") == losses(tmp_path / "memory")


def test_a_decoder_beside_a_frozen_encoder_draws_images(tmp_path, pictures, resnet):
    out = tmp_path / "run"
    words = ["--encoder", resnet, *SHORT, "--epochs", 2, "--reconstruction", 0.01]
    assert run("train", pictures, *words, "--out", out) == 0
    model = tc.load(out)
    images = torch.rand(3, *model.image_shape)
    assert model.reconstruct(model(images), torch.tensor([0, 1, 0])).shape == images.shape


def test_the_size_of_an_encoder_is_the_default(tmp_path, pictures):
    encoder, out = save_network(tmp_path / "vit", "vit"), tmp_path / "run"
    assert run("train", pictures, "--encoder", encoder, "--option", "capsules=8", "--epochs", 1, "--out", out) == 0
    assert Run.open(out).metadata.image_shape == (1, SIDE, SIDE)


def test_fit_takes_an_encoder_and_its_rate(tmp_path, resnet):
    images, labels = torch.randint(0, 256, (40, 3, SIDE, SIDE), dtype=torch.uint8), torch.arange(40) % 2
    kinds = {"classes": 2, "image_shape": (3, SIDE, SIDE), "capsules": 8, "decoder": False}
    frozen_run = tc.fit(
        tc.create_model("efficient", encoder=tc.load_encoder(resnet), **kinds),
        (images, labels), epochs=2, batch_size=16, out=tmp_path / "frozen",
    )  # fmt: skip
    assert frozen_run.config.encoder == str(resnet)
    assert isinstance(tc.load(tmp_path / "frozen"), tc.models.EfficientCapsNet)
    model = tc.create_model("efficient", encoder=tc.load_encoder(resnet), **kinds)
    tc.fit(model, (images, labels), epochs=2, batch_size=16, encoder_lr=1e-3, out=tmp_path / "tuned")
    again = tc.load(tmp_path / "tuned")
    few = images[:3].float() / 255
    assert torch.allclose(again(few).activations, model(few).activations, atol=1e-6)
    assert tc.evaluate(tmp_path / "tuned", (images, labels)).accuracy > 0.4
    plain = tc.create_model("efficient", **kinds)
    with pytest.raises(ValueError, match="encoder_lr: expected an encoder beside it, got none"):
        tc.fit(plain, (images, labels), encoder_lr=1e-3, out=tmp_path / "none")


def test_an_own_network_with_an_encoder_keeps_the_weights_that_it_was_trained_with(tmp_path, resnet):
    class Mine(tc.models.CapsuleModel):
        def __init__(self, encoder):
            primary = tc.PrimaryCapsules(32, 4, 8)
            super().__init__((3, SIDE, SIDE), 2, encoder, primary, [tc.DenseCapsules(4, 2, 8, 8)])

    images, labels = torch.rand(20, 3, SIDE, SIDE), torch.arange(20) % 2
    model = Mine(tc.load_encoder(resnet))
    tc.fit(model, (images, labels), epochs=1, batch_size=10, out=tmp_path / "run")
    other = tc.load_encoder(resnet)
    other.network.embedder.embedder.convolution.weight.data.zero_()
    again = tc.load(tmp_path / "run", model=Mine(other))
    assert torch.allclose(again(images[:2]).poses, model(images[:2]).poses, atol=1e-6)


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
    assert "expected images as data, got texts" in refused(capsys, "train", table, "--encoder", resnet)


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
