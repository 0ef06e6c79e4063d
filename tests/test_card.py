"""The card of a run, as a model hub reads it, and the way back to the model."""

import json

import pytest
import torch

import torchcaps as tc
from tests.support.commands import SMALL, run, save_pictures
from torchcaps.runs.run import Run


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("card")
    data = save_pictures(folder / "left|right", 12)
    assert run("train", data, *SMALL, "--out", folder / "run") == 0
    return folder / "run"


def card_of(folder):
    hub = pytest.importorskip("huggingface_hub")
    return hub.ModelCard.load(folder / "README.md")


def test_a_hub_reads_the_card(trained):
    card = card_of(trained)
    assert card.data.library_name == "torchcaps"
    assert card.data.pipeline_tag == "image-classification"
    assert "efficient" in card.data.tags
    assert card.data.eval_results is None  # nothing was tested yet
    assert "left, right" in card.text
    assert str(trained.parent) not in card.content  # no paths of this machine
    parameters = sum(parameter.numel() for parameter in tc.load(trained).parameters())
    assert f"{parameters:,}" in card.text
    assert "torchcaps train 'left|right' --model efficient" in card.text


def test_the_card_tells_what_evaluate_found(trained):
    assert run("evaluate", trained, "--no-pictures") == 0
    found = json.loads((trained / "evaluation" / "results.json").read_text())["test"]
    (result,) = card_of(trained).data.eval_results
    assert result.metric_value == pytest.approx(found["accuracy"], abs=1e-6)
    assert result.dataset_name == "left|right"
    assert f"{found['accuracy']:.2%} of {found['examples']:,}" in (trained / "README.md").read_text()
    before = (trained / "README.md").read_text()
    assert run("evaluate", trained, "--part", "train", "--no-pictures") == 0
    assert (trained / "README.md").read_text() == before  # other parts are not the test


def test_a_folder_gives_its_model_back(trained):
    images = torch.rand(2, *Run.open(trained).metadata.image_shape)
    model = tc.load(str(trained))
    assert not model.training
    assert torch.equal(model(images).activations, Run.open(trained).load_model()(images).activations)
