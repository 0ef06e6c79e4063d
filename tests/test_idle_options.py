"""Options that have no effect beside others are refused in one sentence; those that a preset brings never are."""

import pytest
import torch

import torchcaps as tc
from torchcaps._core.errors import InputError
from torchcaps.models import IMAGE_MODELS, MODELS, model_options
from torchcaps.runs.config import TrainConfig
from torchcaps.runs.recipes import resolve

IMAGES = {"image_shape": (1, 20, 20), "classes": 3}


def text(name="text-a", **options):
    return tc.create_model(name, vocabulary=20, classes=3, **options)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: text(window=0, window_capsules=4), "no window_capsules with window=0, got 4"),
        (lambda: text("text", window_capsules=4), "no convolutional capsules, got window or window_capsules"),
        (lambda: text(expected_children=4), "no expected_children, got expected_children. Give std"),
        (lambda: text(capsule_dim=0), "capsule_dim to be a whole number from 1 on"),
        (lambda: text("textcnn", filters=0), "filters to be a whole number from 1 on"),
        (lambda: text("textcnn", ngrams=(3, 0)), "ngrams to be a whole number from 1 on"),
        (lambda: text("bilstm", hidden=0), "hidden to be a whole number from 1 on"),
        (lambda: tc.create_model("capsnet", channels=0, **IMAGES), "channels to be a whole number from 1 on"),
        (lambda: tc.create_model("matrix", sizes=(4, 4), **IMAGES), r"four sizes A, B, C and D, got \(4, 4\)"),
        (lambda: tc.create_model("matrix", sizes=(4, 0, 4, 4), **IMAGES), "sizes to be a whole number from 1 on"),
        (lambda: tc.create_model("matrix", squash="half", **IMAGES), "got squash. Drop"),
        (lambda: tc.create_model("deep", expected_children=9, **IMAGES), "parents are means of votes"),
        (lambda: tc.create_model("efficient", expected_children=9, std=0.1, **IMAGES), "or with std, got 9"),
        (lambda: tc.PrimaryCapsules(8, 2, 4, kind="matrix", squash="half"), 'no squash with kind="matrix"'),
        (lambda: tc.make_routing("gaussian", variance=0.5), "got variance, which has no effect there"),
        (lambda: tc.make_routing("heinsen", out_capsules=3, variance=0.5), 'no variance unless covariance="fixed"'),
        *[
            (lambda name=name, each=options: tc.make_routing(name, hard=True, **each), f"no {word} with hard=True")
            for name, word, options in (
                ("dynamic", "sharpness", {"sharpness": 0.5}),
                ("kmeans", "sharpness", {"sharpness": 2.0}),
                ("kde", "sharpness", {"sharpness": 1.0}),
                ("entropy", "entropy_weight", {"entropy_weight": 0.5}),
                ("entropy", "entropy_decay", {"entropy_decay": 0.5}),
            )
        ],
        *[
            (lambda each=options: tc.make_routing("em", variant=1, **each), f"no {next(iter(options))} with variant=1")
            for options in (
                {"beta_use": 0.5},
                {"beta_active": 0.5},
                {"beta_active_scale": 2.0},
                {"beta_per_dimension": True},
                {"inverse_temperature": 0.1},
                {"inverse_temperature_decay": 0.5},
                {"learned_temperature": True},
            )
        ],
    ],
)  # fmt: skip
def test_an_option_without_effect_is_refused(make, sentence):
    with pytest.raises(InputError, match=sentence):
        make()


def test_an_option_with_its_default_is_no_mistake():
    tc.make_routing("gaussian", variance=1.0)
    tc.make_routing("dynamic", hard=True, sharpness=1.0)
    tc.make_routing("em", variant=1, inverse_temperature=0.01)


@pytest.mark.parametrize(
    ("model", "changes"),
    [
        ("matrix", {}),
        ("efficient", {"loss": "cross-entropy"}),
        ("efficient", {"routing": "gaussian"}),
        ("efficient", {"routing": "em", "option": ("variant=1",)}),
        ("text", {"loss": "nll"}),
        ("cnn", {}),
    ],
)
def test_a_weight_of_absent_classes_is_refused_for_losses_without_one(model, changes):
    config = TrainConfig(model=model, down_weight=0.3, **changes)
    with pytest.raises(InputError, match="the margin loss, which has a weight of absent classes, got another one"):
        resolve(config, 100, texts=model == "text")


@pytest.mark.parametrize("changes", [{}, {"loss": "margin", "routing": "em"}, {"routing": "entropy"}])
def test_a_weight_of_absent_classes_is_taken_by_the_margin_loss(changes):
    assert resolve(TrainConfig(model="efficient", down_weight=0.3, **changes), 100).down_weight == 0.3


def test_fit_refuses_a_weight_of_absent_classes_that_its_loss_lacks(tmp_path):
    model = tc.create_model("cnn-small", image_shape=(1, 16, 16), classes=2)
    data = torch.rand(20, 1, 16, 16), torch.arange(20) % 2
    with pytest.raises(InputError, match="down_weight: expected the margin loss"):
        tc.fit(model, data, down_weight=0.3, epochs=1, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


CASES = [(model, preset) for model in MODELS if MODELS[model].routes for preset in MODELS[model].recipes]


@pytest.mark.parametrize(("model", "preset"), CASES)
def test_a_preset_fails_over_no_option_that_was_not_given(model, preset):
    """With any routing and loss, and with options of the user that would clash with some of its own."""
    texts = model not in IMAGE_MODELS
    size = {"vocabulary": 20} if texts else {"image_shape": (1, 20, 20)}
    own = () if texts else {"capsnet": ("channels=4", "capsules=2"), "matrix": ("sizes=[4,3,3,3]",)}.get(model, ())
    for routing in (None, *tc.ROUTINGS):
        hard = ("hard=true",) if "hard" in model_options(model, routing) else ()
        for loss, option in ((None, ()), ("cross-entropy", ()), (None, hard)):
            config = TrainConfig(model=model, preset=preset, routing=routing, loss=loss, option=(*own, *option))
            config = resolve(config, 100, texts=texts)
            tc.create_model(model, classes=3, **size, **config.model_options())


def test_the_code_preset_leaves_out_what_another_routing_or_loss_has_no_use_for():
    plain = resolve(TrainConfig(model="text-a", preset="code"), 100, texts=True)
    assert "amendment=false" in plain.option
    assert plain.down_weight == 0.25
    em = resolve(TrainConfig(model="text-a", preset="code", routing="em"), 100, texts=True)
    assert "amendment=false" not in em.option
    assert em.down_weight is None
    entropy = resolve(TrainConfig(model="text-a", preset="code", loss="cross-entropy"), 100, texts=True)
    assert entropy.down_weight is None
