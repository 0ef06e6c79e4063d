"""Pretrained encoders on the command line and in Python: trained, resumed, exported, explained."""

import csv
import shutil

import pytest
import torch
from safetensors.torch import load_file

import torchcaps as tc
from tests.support.commands import run
from tests.support.encoders import SHORT, SIDE, save_network
from torchcaps.apps.export import load_onnx
from torchcaps.runs.run import Run
from torchcaps.train import features


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
