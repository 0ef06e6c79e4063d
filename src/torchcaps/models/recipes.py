"""Training recipes of models. A recipe provides the options of `train` that a user leaves out.

Every model has recipes by the name of a preset (`recipes`), changes for single data sets (`data_recipes`) and for kinds
of pictures (`picture_recipes`), and `recipe`, which returns the recipe for a preset and a routing.
"""

from __future__ import annotations

from typing import Any, ClassVar

Recipe = dict[str, Any]
# "images" is the minimum number of training examples of a run, so that small data sets get more epochs.
COMMON: Recipe = {
    "images": 70_000,
    "epochs": 10,
    "batch_size": 64,
    "lr": 3e-3,
    "schedule": "one-cycle",
    "weight_decay": 0.01,
    "reconstruction": 0.0005,
}
COMMON_BEST: Recipe = {**COMMON, "epochs": 30, "images": 200_000}
SABOUR: Recipe = {**COMMON, "images": 0, "batch_size": 128, "lr": 1e-3, "schedule": "exponential", "weight_decay": 0.0}
HINTON: Recipe = {
    **SABOUR,
    "batch_size": 64,
    "lr": 3e-3,
    "schedule": "slow-exponential",
    "weight_decay": 2e-7,
    "epochs": 300,
    "reconstruction": 0.0,
    "option": ("standardize=true",),
}
# smallNORB as in Hinton et al. (2018): images of 48 pixels, of which a network sees crops of 32.
NORB: dict[tuple[str, str], Recipe] = {("paper", "smallnorb"): {"size": 48, "augment": "light", "option": ("crop=32",)}}
MATRIX: Recipe = {
    **COMMON,
    "images": 135_000,
    "batch_size": 32,
    "lr": 1e-2,
    "weight_decay": 1e-4,
    "reconstruction": 0.0,
}
TEXT: Recipe = {
    **COMMON,
    "images": 60_000,
    "epochs": 8,
    "batch_size": 50,
    "lr": 4e-3,
    "reconstruction": 0.0,
    "max_length": 200,
    "option": ("dim=128",),
}
ZHAO: Recipe = {
    **TEXT,
    "images": 0,
    "epochs": 20,
    "batch_size": 25,
    "lr": 1e-3,
    "schedule": "constant",
    "weight_decay": 0.0,
    "option": ("dim=300",),
}
# Gradients of the last iteration train as well as those of all, in two thirds of the time.
_TEXT_OPTIONS = (*TEXT["option"], "padding=true", "dropout=0.5", "word_dropout=0.1")
TEXT_CAPSULES: Recipe = {**TEXT, "epochs": 6, "lr": 6e-3, "option": (*_TEXT_OPTIONS, "gradients=last")}
TEXT_CAPSULES_BEST: Recipe = {**TEXT_CAPSULES, "epochs": 12, "option": _TEXT_OPTIONS}
# On frozen vectors of tokens, which know their context: few weights, which decay fast, and no n-grams.
TEXT_ENCODER: Recipe = {
    "images": 30_000,
    "epochs": 6,
    "lr": 6e-3,
    "weight_decay": 0.3,
    "loss": "cross-entropy",
    "routing": "attention",
    "option": ("ngrams=[1]", "filters=64", "capsules=4", "squash=quadratic", "word_dropout=0"),
}
ZHAO_CODE: Recipe = {
    **ZHAO,
    "down_weight": 0.25,
    "option": (
        "dim=300", "dropout=0", "capsules=16", "stride=2", "squash=half",
        "vote_bias=false", "leaky=false", "amendment=false",
    ),
}  # fmt: skip
# In addition to `calibrate`: options with which a routing trains in minutes rather than days.
ROUTING_OPTIONS: dict[str | None, tuple[str, ...]] = {
    "em": ("sharpness=0.0625", "variance_floor=0.1"),
    "heinsen": ("variance_floor=0.1",),
}


def with_options(recipe: Recipe, *options: str) -> Recipe:
    """The recipe with more options of the model or its routing, which replace those of the same name."""
    named = {text.partition("=")[0] for text in options}
    kept = (text for text in recipe.get("option", ()) if text.partition("=")[0] not in named)
    return {**recipe, "option": (*kept, *options)}


class HasRecipes:
    """Base class of models: the kind of its inputs, whether it routes, and its training recipes."""

    reads: ClassVar[str] = "images"
    routes: ClassVar[bool] = True
    recipes: ClassVar[dict[str, Recipe]] = {"default": {**COMMON, "reconstruction": 0.0}}
    data_recipes: ClassVar[dict[tuple[str, str], Recipe]] = {}  # by preset and data set
    picture_recipes: ClassVar[dict[str, Recipe]] = {}  # by kind of pictures, for the presets default and best
    encoder_recipe: ClassVar[Recipe] = {}  # beside a pretrained encoder, instead of those by kind of pictures
    many_classes_recipe: ClassVar[Recipe] = {"loss": "cross-entropy"}  # for the presets default and best
    origin: tuple[str, dict[str, Any]] | None = None  # the name and the options that `create_model` made it with
    class_names: tuple[str, ...] | None = None  # where the network was saved with them

    @classmethod
    def recipe(cls, preset: str, routing: str | None) -> Recipe:
        """The options of `train` that a user leaves out. routing: as a user gave it, else None."""
        return dict(cls.recipes[preset])
