"""The tables of docs/papers.md on presets say what the presets are."""

import inspect
import json
import re
from pathlib import Path

import pytest
import torch

import torchcaps as tc
from torchcaps.losses import READOUTS
from torchcaps.models import MODELS
from torchcaps.routing import EM_PRESETS, routing_options
from torchcaps.runs.config import TrainConfig
from torchcaps.runs.recipes import resolve, with_size
from torchcaps.train import learning_rate_factor

PAGE = (Path(__file__).parents[1] / "docs" / "papers.md").read_text(encoding="utf-8")
SECTIONS = re.findall(r"^### (.*--preset.*)\n(?:(?![#|]).*\n)+((?:\|.*\n)+)", PAGE, re.MULTILINE)
DATA = {heading: (re.findall(r" on `([\w-]+)`", heading) or ["mnist"])[0] for heading, _ in SECTIONS}
TABLES = {
    (name, preset, DATA[heading]): table
    for heading, table in SECTIONS
    for name, preset in re.findall(r"`([\w-]+) --preset (\w+)`", heading)
}
IMAGES = {"mnist": (1, 28, 28), "smallnorb": (2, 48, 48)}


def claims(table):
    """The values that a table names, `name=value`, in its last column."""
    for row in table.splitlines()[2:]:
        for name, value in re.findall(r"`(\w+)=([^`]+)`", row.strip("|").split("|")[-1]):
            try:
                yield name, json.loads(value)
            except ValueError:
                yield name, value


def made(model, config):
    shape = IMAGES.get(config.data)
    size = {"vocabulary": 30} if MODELS[model].reads == "texts" else {"image_shape": shape}
    return tc.create_model(model, classes=5 if config.data == "smallnorb" else 10, **size, **config.model_options())


def facts(name, preset, data):
    """What a preset is: the resolved options, those of the model and its routing, and what follows from them."""
    texts = MODELS[name].reads == "texts"
    config = resolve(with_size(TrainConfig(data, model=name, preset=preset)), 60_000, texts=texts)
    model = made(name, config)
    found = {word: p.default for kind in reversed(type(model).__mro__) for word, p in keywords(kind).items()}
    found |= config.model_options() | vars(config)
    found["loss"] = config.loss or READOUTS[model.readout]
    found["down_weight"] = 0.5 if config.down_weight is None else config.down_weight
    convention = "official" if config.loss == "official-margin" else "paper"
    margins = {word: p.default for word, p in inspect.signature(tc.margin_loss).parameters.items() if "margin" in word}
    found |= {**margins, "convention": convention}
    found["margin_start"], found["margin_end"] = tc.spread_margin(0), tc.spread_margin(50_000)
    for steps in (2000, 20_000):
        found[f"decay_{steps}"] = learning_rate_factor(config.schedule, steps, 10**6)
    found["decay_epoch"] = learning_rate_factor(config.schedule, 10, 100, 10)
    found["lowest_rate"] = learning_rate_factor(config.schedule, 10**9, 10**9, 10**4)
    found["parameters"] = sum(p.numel() for p in model.parameters())
    if model.routes:
        layer = model.routed_layers[-1]
        found |= {
            word: getattr(layer.routing, word) for word in routing_options("dynamic") if hasattr(layer.routing, word)
        }
        found |= {"weight_std": layer.transform.std, "bias": found.get("bias") is not None}
        if isinstance(layer.routing, tc.routing.EM):
            temperature = float(layer.routing.inverse_temperature)
            found["inverse_temperature"] = temperature
            found["temperatures"] = [temperature * layer.routing.annealing(step) for step in range(3)]
            found |= {word: getattr(layer.routing, word) for word in ("variance_floor", "mass_floor", "damping")}
    return found


def keywords(kind):
    return inspect.signature(vars(kind)["__init__"]).parameters if "__init__" in vars(kind) else {}


def test_there_is_a_table_for_every_preset_of_a_source():
    wanted = {
        (name, preset) for name, model in MODELS.items() for preset in model.recipes if preset in ("paper", "code")
    }
    assert {(name, preset) for name, preset, _ in TABLES} == wanted


@pytest.mark.parametrize("name", TABLES, ids="-".join)
def test_a_table_says_what_the_preset_is(name):
    found, told = facts(*name), dict(claims(TABLES[name]))
    assert len(told) >= 6
    for word, value in told.items():
        wanted = found[word]
        if isinstance(wanted, tuple):
            wanted = list(wanted)
        assert wanted == (pytest.approx(value, rel=5e-3) if isinstance(value, float | list) else value), word


def test_the_table_of_the_official_em_code_says_what_its_presets_are():
    (table,) = re.findall(r"^### `em` with `preset=official`\n(?:(?![#|]).*\n)+((?:\|.*\n)+)", PAGE, re.MULTILINE)
    model = tc.create_model("matrix", image_shape=(1, 32, 32), classes=5, preset="official", sizes=(4, 3, 3, 3))
    conv, last = model.routed_layers[0].routing, model.routed_layers[-1].routing
    assert (conv.preset, last.preset) == ("official", "official-class")
    for row in table.splitlines()[2:]:
        word, *cells = (cell.strip(" `") for cell in row.strip("|").split("|"))
        if word in EM_PRESETS["official"]:
            for preset, routing, cell in zip(("official", "official-class"), (conv, last), cells[-2:], strict=True):
                assert EM_PRESETS[preset][word] == pytest.approx(float(cell), rel=5e-3)
                value = getattr(routing, word)
                value = float(value.detach().mean()) if isinstance(value, torch.Tensor) else value
                assert value == pytest.approx(float(cell), rel=5e-3)
