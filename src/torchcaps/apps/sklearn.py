"""Capsule networks as scikit-learn classifiers of images and vectors, in pipelines and grid searches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor

from torchcaps._core.device import choose_device
from torchcaps._core.errors import check_choice, input_error, shape_text
from torchcaps.data import ArraySet, Examples
from torchcaps.models import MODELS, Model, VectorCapsules, create_model, models_for
from torchcaps.runs.config import TrainConfig, required
from torchcaps.runs.recipes import resolve

BATCH = 256  # examples that are answered at once


@dataclass(eq=False, repr=False, kw_only=True)
class _Capsules(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Base class of both classifiers."""

    routing: str | None = None
    iterations: int | None = None
    options: dict[str, Any] | None = None
    loss: str | None = None
    epochs: int | None = None
    batch_size: int | None = None
    lr: float | None = None
    class_weight: Any = None
    device: str = "auto"
    random_state: Any = None
    verbose: int = 0
    classes_: np.ndarray = field(init=False)
    model_: Model = field(init=False)
    many_: bool = field(init=False)

    def decision_function(self, X: Any) -> np.ndarray:  # noqa: N803
        """The activation of each class, [n y], from 0 to 1; for two classes, the difference of their shares, [n]."""
        activations = self._activations(X)
        if len(self.classes_) > 2 or self.many_:
            return activations
        first, second = _shares(activations).T
        return second - first

    def predict_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """The activations divided by their sum, [n y]. They are not calibrated probabilities.

        Where an example may have several classes, the activations themselves.
        """
        activations = self._activations(X)
        return activations if self.many_ else _shares(activations)

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """The most active class of each example, [n]; where it may have several, 1 for those above a half, [n y]."""
        activations = self._activations(X)  # first: it checks that the classifier is fitted
        return (activations > 0.5).astype(int) if self.many_ else self.classes_[activations.argmax(1)]

    def _inputs(self, X: Any) -> Sequence[Tensor]:  # noqa: N803
        """Batches of inputs of the network."""
        raise NotImplementedError

    @torch.no_grad()
    def _activations(self, X: Any) -> np.ndarray:  # noqa: N803
        check_is_fitted(self)
        device = choose_device(type(self).__name__, self.device)
        model = self.model_.to(device)
        found = [model(inputs.to(device)).activations.cpu() for inputs in self._inputs(X)]
        return torch.cat(found).numpy().astype(np.float64)

    def _labels(self, y: Any) -> Tensor:
        """Set `classes_`, and return the labels as class indices, or as truth values [n y] if that is what they are."""
        check_classification_targets(y)
        self.many_ = type_of_target(y) == "multilabel-indicator"
        if self.many_:
            truth = torch.from_numpy(np.asarray(y) != 0)
            self.classes_ = np.arange(truth.shape[1])
            return truth
        self.classes_, numbers = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise input_error(type(self).__name__, "at least two classes in y", "1 class", "Add examples of another.")
        return torch.from_numpy(numbers).long()

    def _config(self, model: str, examples: int, **more: Any) -> TrainConfig:
        """The options of training, with defaults from the model's recipe for these numbers of examples and classes."""
        config = TrainConfig(
            model=model,
            routing=self.routing,
            iterations=self.iterations,
            loss=self.loss,
            epochs=self.epochs,
            batch_size=self.batch_size,
            lr=self.lr,
            device=choose_device(type(self).__name__, self.device).type,
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
            **more,
        )
        texts = MODELS[model].reads == "texts"
        return resolve(config, examples, texts=texts, classes=len(self.classes_), several=self.many_)

    def _weights(self, y: Any, sample_weight: Any) -> Tensor | None:
        """Weights of examples, one on average, from those of their classes and their own."""
        if self.class_weight is None and sample_weight is None:
            return None
        own = _check_sample_weight(sample_weight, np.zeros(len(y)), ensure_non_negative=True)
        weights = torch.from_numpy(own * compute_sample_weight(self.class_weight, y)).float()
        return weights / weights.mean().clamp(min=1e-30)

    def _train(
        self, data: Examples, config: TrainConfig, weights: Tensor | None, table: Tensor | None = None, **sizes: Any
    ) -> None:
        """Make and train the network. weights: of examples. table: of word vectors. sizes: of the network."""
        from torchcaps.train import fit_model

        options = {**config.model_options(), **(self.options or {})}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            model = self._new_model(config, options, **sizes)
            if table is not None:
                model.set_vectors(table)  # type: ignore[operator]  # a model of texts
            learner, data = self._to_learn(model, data)
            fit_model(learner, data, config, verbose=bool(self.verbose), weights=weights)
        self.model_ = model.cpu().eval()

    def _to_learn(self, model: Model, data: Examples) -> tuple[Model, Examples]:
        """The part of the network that learns, and what it reads."""
        return model, data

    def _new_model(self, config: TrainConfig, options: dict[str, Any], **sizes: Any) -> Model:
        model: Model = create_model(required(config.model), classes=len(self.classes_), **sizes, **options)
        return model


@dataclass(eq=False, repr=False, kw_only=True)
class CapsuleClassifier(_Capsules):
    """A classifier of images or vectors.

    X is images [n h w] or [n c h w], or vectors [n features]. Images are scaled to the range from 0 to 1 by the
    smallest and the largest value seen in training; vectors to mean zero and variance one, for a `VectorCapsules`
    network.

    model: a name (torchcaps list models), for images; default: "efficient". routing, iterations: default: the model's
    own. options: further options of the model and its routing, as in `create_model`. loss: a key of `LOSSES`. epochs:
    passes through the examples, batch_size, lr: default: those of the model's recipe, which has more epochs for fewer
    examples. reconstruction: the weight of a decoder's error; 0 for no decoder. augment: how images are varied, a key
    of `AUGMENTATIONS`. class_weight: "balanced", or a dict of a weight for each class. device: "auto", "cpu", "cuda" or
    "mps". random_state: an integer makes fits repeatable. verbose: 1 for a bar.

    After fit: classes_, model_ (the network), input_shape_ (of one example), n_features_in_ (X.shape[1]).
    """

    model: str | None = field(default=None, kw_only=False)
    reconstruction: float = 0.0
    augment: str = "none"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> CapsuleClassifier:  # noqa: N803
        """Train on examples X with labels y [n]. sample_weight: of each example, [n]."""
        X, y = validate_data(self, X, y, dtype=np.float64, allow_nd=True)  # noqa: N806
        labels = self._labels(y)
        if X.ndim > 4:
            expected = "images [n h w] or [n c h w], or vectors [n features]"
            raise input_error("CapsuleClassifier", expected, shape_text(X.shape), "Reshape them.")
        if X.ndim == 4 and X.shape[1] > 4 >= X.shape[3]:
            got = f"{shape_text(X.shape)}, channels last"
            raise input_error(
                "CapsuleClassifier", "images [n c h w]", got, "Move the channels: X.transpose(0, 3, 1, 2)."
            )
        vectors = X.ndim == 2
        if vectors and (self.model is not None or self.reconstruction or self.augment != "none"):
            expected = "images [n h w] or [n c h w] for model, reconstruction and augment"
            got = f"vectors {shape_text(X.shape)}"
            raise input_error("CapsuleClassifier", expected, got, "Reshape X, or drop them.")
        name = "efficient" if self.model is None else self.model
        check_choice("CapsuleClassifier", "model", name, models_for("images"))
        self.input_shape_ = X.shape[1:]
        axes = 0 if vectors else None
        self.offset_ = X.mean(axes) if vectors else X.min()
        scale = X.std(axes) if vectors else X.max() - X.min()
        zero = 10 * np.finfo(np.float64).eps * np.abs(X).max(axes)  # rounding aside
        self.scale_ = np.where(scale > zero, scale, 1.0)
        images = self._as_images(X)
        data = ArraySet(images, labels, tuple(map(str, self.classes_)))
        drawn = None if not MODELS[name].routes else self.reconstruction
        config = self._config(name, len(X), reconstruction=drawn, augment=self.augment)
        self._train(data, config, self._weights(y, sample_weight), image_shape=tuple(images.shape[1:]))
        return self

    def _new_model(self, config: TrainConfig, options: dict[str, Any], **sizes: Any) -> Model:
        if len(self.input_shape_) > 1:
            return super()._new_model(config, options, **sizes)
        options.pop("decoder")
        return VectorCapsules(self.input_shape_[0], len(self.classes_), **options)

    def _as_images(self, X: np.ndarray) -> Tensor:  # noqa: N803
        scaled = torch.from_numpy(((X - self.offset_) / self.scale_).astype(np.float32))
        if X.ndim == 2:
            return scaled[..., None, None]
        return scaled.unsqueeze(1) if X.ndim == 3 else scaled

    def _inputs(self, X: Any) -> Sequence[Tensor]:  # noqa: N803
        X = validate_data(self, X, dtype=np.float64, allow_nd=True, reset=False)  # noqa: N806
        if X.shape[1:] != self.input_shape_:
            expected = f"examples {shape_text(self.input_shape_)}, as in fit"
            raise input_error("CapsuleClassifier", expected, shape_text(X.shape[1:]), "Reshape or resize them.")
        return self._as_images(X).split(BATCH)


def _shares(activations: np.ndarray) -> np.ndarray:
    """The activations divided by their sum; equal shares if all are zero."""
    sums = activations.sum(1, keepdims=True)
    even = np.full_like(activations, 1 / activations.shape[1])
    return np.divide(activations, sums, out=even, where=sums > 0)
