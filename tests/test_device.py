"""No device or dtype is written into the code: everything runs where its inputs are.

The meta device knows shapes only, but refuses to mix with any tensor made elsewhere, which is what a GPU would do.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torchcaps as tc
from tests.test_compile import LAYER_CASES, ROUTING_CASES, in_double


def on_meta(inputs):
    if isinstance(inputs, torch.Tensor):
        return inputs.to("meta")
    return tc.Capsules(*(None if part is None else part.to("meta") for part in inputs))


@pytest.mark.parametrize(("name", "options"), [*ROUTING_CASES, ("dynamic", {"sampling": 0.5})], ids=str)
def test_routing_runs_where_its_votes_are(name, options):
    routing = tc.make_routing(name, **options).to("meta")
    votes, activations = torch.randn(2, 6, 3, 4, device="meta"), torch.rand(2, 6, device="meta")
    mask = torch.ones(2, 6, dtype=torch.bool, device="meta")
    routed = routing(votes, activations, mask=mask)
    assert [part.device.type for part in routed] == ["meta"] * 3
    started = routing(votes, activations, couplings=torch.rand(2, 6, 3, device="meta"))
    assert started.poses.shape == (2, 3, 4)


@pytest.mark.parametrize("case", LAYER_CASES)
def test_layer_runs_where_its_children_are(case):
    make, inputs = LAYER_CASES[case]
    parents = make().to("meta")(on_meta(inputs()))
    assert parents.poses.device.type == "meta"


@pytest.mark.parametrize("decoder", [tc.DenseDecoder, tc.ConvDecoder])
def test_decoder_and_losses_run_where_their_capsules_are(decoder):
    poses = torch.randn(2, 3, 4, device="meta")
    capsules = tc.Capsules(poses, tc.length(poses))
    images = decoder(3, 4, (1, 8, 8)).to("meta")(capsules)
    assert tc.reconstruction_loss(images, torch.zeros_like(images)).device.type == "meta"
    assert tc.margin_loss(capsules.activations, (capsules.activations > 0)).device.type == "meta"


@pytest.mark.parametrize("case", LAYER_CASES)
def test_layer_computes_in_float64_when_asked(case):
    make, inputs = LAYER_CASES[case]
    parents = make().double()(in_double(inputs()))
    assert parents.poses.dtype == parents.activations.dtype == torch.float64


@pytest.mark.parametrize("name", ["efficient", "capsnet", "matrix-small", "deep", "cnn-small"])
def test_gradients_are_where_the_model_is(name):
    model = tc.create_model(name, image_shape=(1, 28, 28), classes=5).to("meta")
    optimizer = torch.optim.AdamW(model.parameters(), fused=False)
    labels = torch.zeros(4, dtype=torch.int64, device="meta")
    tc.margin_loss(model(torch.empty(4, 1, 28, 28, device="meta")).activations, labels).backward()
    optimizer.step()
    assert {parameter.grad.device.type for parameter in model.parameters() if parameter.grad is not None} == {"meta"}


def test_a_step_forwards_stays_on_a_cuda_device(tmp_path):
    if shutil.which("c++") is None:
        pytest.skip("no C++ compiler for a guard of a CUDA device")
    command = [sys.executable, "-W", "error", "-m", "tests.support.fake_gpu", str(tmp_path)]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    models = "efficient capsnet matrix-small deep cnn-small text text-a text-b textcnn"
    assert done.stdout.split("\n") == ["two devices refused", *models.split(), ""]
