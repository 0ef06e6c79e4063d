"""The options: they are the command line, they are written down whole, and they can be read back."""

import dataclasses
import json
import shlex
from pathlib import Path

import pytest

from torchcaps._core.errors import InputError
from torchcaps.apps.cli.commands.train import Train
from torchcaps.apps.cli.parsing import parse
from torchcaps.models import IMAGE_MODELS, MODELS, TEXT_MODELS
from torchcaps.runs.config import TrainConfig, command_of, load_config, save_config
from torchcaps.runs.recipes import resolve

# Scripts rely on these names: adding one is fine, renaming one is not.
FLAGS = """data out model routing iterations encoder encoder_lr option preset epochs batch_size accumulate lr schedule
weight_decay loss down_weight balance reconstruction augment size fit color deduplicate viewpoint text label separator
encoding delimiter tokens vectors tune max_length validation test folds fold limit data_dir seed patience stop_at
device devices nodes strategy precision workers compile tensorboard imports"""


def test_flags_are_frozen():
    assert [field.name for field in dataclasses.fields(TrainConfig)] == FLAGS.split()


@pytest.mark.parametrize("preset", ["default", "paper", "best"])
def test_every_model_has_a_recipe_that_fills_in_everything(preset):
    assert {name for name, model in MODELS.items() if model.reads == "texts"} == TEXT_MODELS.keys()
    papers = [name for name, model in MODELS.items() if "paper" in model.recipes]
    assert set(MODELS) - set(papers) == {"deep", "text"}  # which are of no paper
    for model in papers if preset == "paper" else MODELS:
        config = resolve(TrainConfig(model=model, preset=preset), 1000, texts=model in TEXT_MODELS)
        for name in ("epochs", "batch_size", "lr", "schedule", "weight_decay", "reconstruction", "augment"):
            assert getattr(config, name) is not None


def test_small_sets_get_more_epochs_and_given_options_win():
    assert resolve(TrainConfig(), 55_000).epochs == 10
    assert resolve(TrainConfig(), 3_500).epochs == 20  # 70,000 images shown
    config = resolve(TrainConfig(epochs=3, lr=0.1), 10)
    assert (config.epochs, config.lr) == (3, 0.1)


def test_paper_presets_are_the_papers():
    sabour = resolve(TrainConfig(model="capsnet", preset="paper"), 60_000)
    assert (sabour.lr, sabour.batch_size, sabour.schedule, sabour.augment) == (1e-3, 128, "exponential", "shift")
    assert sabour.reconstruction == 0.0005
    hinton = resolve(TrainConfig(model="matrix", preset="paper"), 24_300)
    assert (hinton.lr, hinton.batch_size, hinton.weight_decay, hinton.reconstruction) == (3e-3, 64, 2e-7, 0)


def test_word_vectors_bring_their_own_size_beside_the_papers_preset():
    config = TrainConfig(model="text-a", preset="paper")
    assert "dim=300" in resolve(config, 100, texts=True).option
    with_vectors = dataclasses.replace(config, vectors="glove-6b-50d")
    assert "dim=300" not in resolve(with_vectors, 100, texts=True).option


def test_the_code_preset_of_capsnet_is_the_papers_for_other_routings():
    config = resolve(TrainConfig(model="capsnet", preset="code"), 100)
    assert (config.loss, config.option) == ("official-margin", ("bias=true",))
    config = resolve(TrainConfig(model="capsnet", preset="code", routing="em"), 100)
    assert (config.loss, config.option) == (None, ())


def test_pairs_take_any_model_and_preset_without_augmentation():
    for model in IMAGE_MODELS:
        for preset in MODELS[model].recipes:
            config = resolve(TrainConfig("multimnist", model=model, preset=preset), 1000, several=True)
            assert (config.augment, config.loss) == ("none", None)


def test_options_of_the_model_are_parsed():
    config = TrainConfig(option=("capsules=8", "leaky=true", "squash=exponential", "sizes=[1,2]"), reconstruction=0.0)
    assert config.model_options() == {
        "capsules": 8,
        "leaky": True,
        "squash": "exponential",
        "sizes": (1, 2),
        "decoder": False,
    }
    with pytest.raises(InputError, match="expected NAME=VALUE, got 'leaky'"):
        TrainConfig(option=("leaky",)).model_options()


def test_config_is_read_back_as_it_was(tmp_path):
    config = resolve(TrainConfig(option=("a=1",), out=Path("somewhere"), routing="em"), 500)
    save_config(config, tmp_path / "config.json")
    assert load_config(tmp_path / "config.json") == config


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "expected a JSON file of options"),
        ("[1]", "expected a JSON object of options, got list"),
        (json.dumps({"learning_rate": 1}), "expected options among .*, got learning_rate"),
    ],
)
def test_bad_config_file_is_told(tmp_path, text, sentence):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(InputError, match=sentence):
        load_config(tmp_path / "config.json")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"epochs": 0}, "epochs to be a whole number from 1 on"),
        ({"lr": -1.0}, "lr above 0"),
        ({"validation": 1.5}, "validation between 0 and 0.9"),
        ({"model": "capsnett"}, "model to be one of 'efficient', 'capsnet'"),
        ({"weight_decay": -1.0}, "weight_decay between 0"),
    ],
)
def test_bad_options_are_told(changes, sentence):
    with pytest.raises(InputError, match=sentence):
        resolve(TrainConfig(**changes), 100)


@pytest.mark.parametrize(
    "config",
    [
        TrainConfig(),
        TrainConfig("a folder", option=("leaky=true", "a=[1, 2]"), lr=0.1, color=False, tune=False, out=Path("x y")),
        TrainConfig("t.csv", label=("good", "bad"), separator=";", folds=3, fold=1, compile=True, stop_at=0.5),
    ],
)
def test_a_config_as_a_command_is_the_same_config(config):
    words = shlex.split(command_of(config))
    again = parse(Train, words[2:], "train", "", Train())
    assert words[:2] == ["torchcaps", "train"]
    assert {name: getattr(again, name) for name in vars(config)} == vars(config)


def test_a_command_says_only_what_is_unusual():
    assert command_of(TrainConfig(epochs=3)) == "torchcaps train mnist-5k --epochs 3"


def test_the_weight_of_reconstructions_falls_with_the_number_of_pixels():
    """The error is summed over pixels: at 224 it would be most of the loss."""
    assert resolve(TrainConfig(), 500, numbers=28 * 28).reconstruction == 0.0005
    assert resolve(TrainConfig(), 500, numbers=3 * 224 * 224).reconstruction == pytest.approx(0.0005 / 49)
    assert resolve(TrainConfig(reconstruction=0.0005), 500, numbers=3 * 224 * 224).reconstruction == 0.0005


def test_many_classes_are_compared_by_cross_entropy():
    """Of 150 classes, 149 are absent: their terms would be nearly all of the margin loss."""
    for model, texts in (("text", True), ("efficient", False)):
        assert resolve(TrainConfig(model=model), 1000, texts=texts, classes=150).loss == "cross-entropy"
        assert resolve(TrainConfig(model=model), 1000, texts=texts, classes=20).loss is None
        assert resolve(TrainConfig(model=model, loss="margin"), 1000, texts=texts, classes=150).loss == "margin"
        assert resolve(TrainConfig(model=model), 1000, texts=texts, classes=150, several=True).loss is None
    assert resolve(TrainConfig(model="efficient", preset="paper"), 1000, classes=150).loss is None
    assert resolve(TrainConfig(model="efficient", routing="gaussian"), 1000, classes=150).loss is None
