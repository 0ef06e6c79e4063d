"""What is reached without a network, in seconds: linear models of words for texts, classifiers of edges and colors.

Texts: a logistic regression on words and pairs of words, or of characters in Chinese (TF-IDF). Images: histograms of
oriented gradients (Dalal and Triggs 2005) and of colors, with a support vector machine or a random forest.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, interpolate, normalize, one_hot

from torchcaps.analysis.evaluate import Evaluation
from torchcaps.data import ImageSet, Strings, TextSet, split
from torchcaps.data.words import spaceless

MOST = 5000  # training images of a baseline: more would take minutes
SIDE, CELL, ANGLES, COLORS = 32, 8, 9, 8


def bag_of_words(train: TextSet, test: TextSet) -> Evaluation:
    """Fit on the training part, predict the test part. Multi-label data get one regression for each class.

    Where scripts have no spaces between words, characters and pairs of them take the place of words.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.pipeline import make_pipeline

    regression = LogisticRegression(C=10, max_iter=1000)
    cut: dict[str, Any] = {"analyzer": "char"} if spaceless(train.texts) else {"token_pattern": r"\w+|[^\w\s]"}
    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, **cut)
    pipeline = make_pipeline(words, OneVsRestClassifier(regression) if train.many else regression)
    pipeline.fit(train.texts, train.labels.numpy())
    shares = np.zeros((len(test), len(test.classes)), dtype=np.float32)
    known = range(len(test.classes)) if train.many else pipeline.classes_
    shares[:, list(known)] = pipeline.predict_proba(test.texts)
    labels = test.labels if test.many else test.labels.unsqueeze(-1)
    return Evaluation(test.classes, labels, torch.from_numpy(shares), None)


def baselines(train: Any, test: Any) -> dict[str, Evaluation]:
    """The answers of all baselines for these data to the test part, by name; none where there is none for them."""
    if isinstance(train, TextSet) and not isinstance(train.texts, Strings):
        return {"logistic regression": bag_of_words(train, test)}
    if isinstance(train, ImageSet) and train.labels_per_image == 1:
        return {"support vectors": support_vectors(train, test), "random forest": random_forest(train, test)}
    return {}


def support_vectors(train: ImageSet, test: ImageSet, seed: int = 0) -> Evaluation:
    """A support vector machine on gradients and colors, fitted on at most 5,000 training images."""
    from sklearn.svm import SVC

    return _answers(SVC(C=10), train, test, seed)


def random_forest(train: ImageSet, test: ImageSet, seed: int = 0) -> Evaluation:
    """A random forest of 200 trees on gradients and colors, fitted on at most 5,000 training images."""
    from sklearn.ensemble import RandomForestClassifier

    return _answers(RandomForestClassifier(200, random_state=seed, n_jobs=1), train, test, seed)


def _answers(classifier: Any, train: ImageSet, test: ImageSet, seed: int) -> Evaluation:
    few = train if len(train) <= MOST else split(train, [MOST], seed)[0]
    classifier.fit(picture_features(few).numpy(), few.labels.numpy())
    said = torch.from_numpy(classifier.predict(picture_features(test).numpy()))
    activations = one_hot(said.long(), len(test.classes)).float()
    return Evaluation(test.classes, test.labels.unsqueeze(-1), activations, None)


def picture_features(images: ImageSet) -> Tensor:
    """Histograms of gradients and colors of each image, [n features]."""
    return torch.cat([torch.cat([_gradients(part), _colors(part)], -1) for part in _parts(images)])


def _parts(images: ImageSet) -> list[Tensor]:
    """All images from 0 to 1 at 32 pixels a side, a few at a time."""
    rows = torch.arange(len(images)).split(512)
    found = (images.batch(each).inputs for each in rows)
    return [interpolate(part, (SIDE, SIDE), mode="bilinear", antialias=True) for part in found]


def _gradients(images: Tensor) -> Tensor:
    """The strength of edges by direction, in cells of 8 pixels, normalized over 2 x 2 cells."""
    gray = images.mean(1)
    down, across = torch.gradient(gray, dim=(1, 2))
    angle = torch.atan2(down, across).remainder(math.pi) / math.pi * ANGLES
    nearest = angle.long().clamp(max=ANGLES - 1)
    strength = (down.square() + across.square()).sqrt()
    by_angle = one_hot(nearest, ANGLES).movedim(-1, 1) * strength.unsqueeze(1)
    cells = avg_pool2d(by_angle, CELL)  # [n angle y x]
    blocks = cells.unfold(2, 2, 1).unfold(3, 2, 1).permute(0, 2, 3, 1, 4, 5).flatten(3)
    return normalize(blocks, dim=-1, eps=0.02).flatten(1)


def _colors(images: Tensor) -> Tensor:
    """How often each of 8 levels occurs in each channel, in each quarter of an image."""
    levels = one_hot((images * COLORS).long().clamp(0, COLORS - 1), COLORS).float()  # [n c y x level]
    quarters = avg_pool2d(levels.permute(0, 1, 4, 2, 3).flatten(1, 2), SIDE // 2)
    return quarters.flatten(1)
