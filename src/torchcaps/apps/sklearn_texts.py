"""Capsule networks as a scikit-learn classifier of texts."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import column_or_1d
from torch import Tensor

from torchcaps._core.device import choose_device
from torchcaps._core.errors import check_choice, input_error
from torchcaps.apps.sklearn import BATCH, _Capsules
from torchcaps.data import Examples, TextSet, Vocabulary, read_vectors
from torchcaps.models import MODELS, Model, models_for
from torchcaps.models.encoders import head_of
from torchcaps.models.tokens import TextEncoder
from torchcaps.runs.encoders import allow, load_encoder

FEW = 1000  # texts, below which words are hardly learned from them alone


@dataclass(eq=False, repr=False, kw_only=True)
class CapsuleTextClassifier(_Capsules):
    """A classifier of texts: X is a list of str, y a class for each, or zeros and ones [n y] for any number of classes.

    model: a name (torchcaps list models), for texts. max_length: words of a text that are read; default: 200. vectors:
    pretrained word vectors, a file in GloVe's format or "glove-6b-50d". encoder: a pretrained network in place of word
    vectors, a folder or the name of a package, see `load_encoder`; it stays as it is. routing, iterations, options,
    loss, epochs, batch_size, lr, class_weight, device, random_state, verbose: as in `CapsuleClassifier`.

    After fit: classes_, model_, vocabulary_.
    """

    model: str = field(default="text", kw_only=False)
    max_length: int | None = None
    vectors: str | None = None
    encoder: str | Path | None = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True
        tags.classifier_tags.multi_label = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> CapsuleTextClassifier:  # noqa: N803
        """Train on texts X with labels y [n] or [n y]. sample_weight: of each text, [n]."""
        texts = _texts(X)
        several = type_of_target(y) == "multilabel-indicator"
        labels = self._labels(y if several else column_or_1d(y, warn=True))
        if len(labels) != len(texts):
            expected = f"{len(texts)} labels, one for each text"
            raise input_error("CapsuleTextClassifier", expected, len(labels), "Give as many.")
        check_choice("CapsuleTextClassifier", "model", self.model, models_for("texts"))
        self._check_words()
        source = None if self.encoder is None else allow(self.encoder)
        if len(texts) < FEW and self.vectors is None and source is None:
            warnings.warn(
                f"CapsuleTextClassifier: {len(texts)} texts are few to learn words from; compare with "
                "make_pipeline(TfidfVectorizer(), LogisticRegression()), or give vectors= or encoder=.",
                stacklevel=2,
            )
        given = {"max_length": self.max_length, "vectors": self.vectors, "encoder": source}
        config = self._config(self.model, len(texts), **given)
        known = None if self.vectors is None else read_vectors(self.vectors)
        encoder = None if source is None else _text_encoder(source)
        self.longest_ = config.max_length
        if encoder is None:
            self.vocabulary_ = Vocabulary.build(texts, () if known is None else known.words, longest=self.longest_)
        else:
            self.vocabulary_ = encoder.vocabulary
        names = tuple(map(str, self.classes_))
        data = TextSet(texts, labels, names, vocabulary=self.vocabulary_, max_length=self.longest_)
        sizes: dict[str, Any] = {} if MODELS[self.model].routes else {"many": self.many_}
        if encoder is not None:
            sizes["encoder"] = encoder
        table = None
        if known is not None:
            table = known.table(self.vocabulary_.words, torch.Generator().manual_seed(config.seed))
            sizes["dim"] = table.shape[1]
        weights = self._weights(y, sample_weight)
        self._train(data, config, weights, table, vocabulary=len(self.vocabulary_), **sizes)
        return self

    def _check_words(self) -> None:
        """Raise an `InputError` for word vectors beside an encoder, and for another size of pretrained vectors."""
        if self.vectors is not None and self.encoder is not None:
            remedy = "Drop one of them."
            raise input_error("CapsuleTextClassifier", "no vectors beside an encoder", "both", remedy)
        if (self.vectors is not None or self.encoder is not None) and "dim" in (self.options or {}):
            expected = "no option dim beside vectors or an encoder, which have their own size"
            raise input_error("CapsuleTextClassifier", expected, "both", "Drop one of them.")

    def _to_learn(self, model: Model, data: Examples) -> tuple[Model, Examples]:
        if self.encoder is None:
            return model, data
        from torchcaps.train.features import TokenFeatures, token_features

        device = choose_device("CapsuleTextClassifier", self.device)
        features = TokenFeatures(data, token_features(model.encoder, data, device))  # type: ignore[arg-type]
        return head_of(model), features  # type: ignore[arg-type]

    def _inputs(self, X: Any) -> Sequence[Tensor]:  # noqa: N803
        texts = _texts(X)
        starts = range(0, len(texts), BATCH)
        return [self.vocabulary_.read(texts[start : start + BATCH], self.longest_) for start in starts]


def _texts(X: Any) -> tuple[str, ...]:  # noqa: N803
    """Texts as a tuple of str; an `InputError` for anything else."""
    if isinstance(X, str) or not all(isinstance(text, str) for text in X) or len(X) == 0:
        got = "one str" if isinstance(X, str) else "none" if len(X) == 0 else "others"
        raise input_error("CapsuleTextClassifier", "a list of str", got, "Pass texts as [text, ...].")
    return tuple(map(str, X))


def _text_encoder(source: str) -> TextEncoder:
    """The encoder of texts of this source; an `InputError` for one of images."""
    encoder = load_encoder(source)
    if not isinstance(encoder, TextEncoder):
        remedy = "Choose one like bert, roberta or distilbert."
        raise input_error("CapsuleTextClassifier", "an encoder of texts", f"{source}, one of images", remedy)
    return encoder
