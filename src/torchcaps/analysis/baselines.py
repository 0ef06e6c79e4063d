"""What is reached without any network: a logistic regression on the words and pairs of words of a text (TF-IDF)."""

from __future__ import annotations

import numpy as np
import torch

from torchcaps.analysis.evaluate import Evaluation
from torchcaps.data import TextSet


def bag_of_words(train: TextSet, test: TextSet) -> Evaluation:
    """Fit on the training part and answer the test part; one regression for each class where any number may be true."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.pipeline import make_pipeline

    regression = LogisticRegression(C=10, max_iter=1000)
    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\w+|[^\w\s]")
    pipeline = make_pipeline(words, OneVsRestClassifier(regression) if train.many else regression)
    pipeline.fit(train.texts, train.labels.numpy())
    shares = np.zeros((len(test), len(test.classes)), dtype=np.float32)
    known = range(len(test.classes)) if train.many else pipeline.classes_
    shares[:, list(known)] = pipeline.predict_proba(test.texts)
    labels = test.labels if test.many else test.labels.unsqueeze(-1)
    return Evaluation(test.classes, labels, torch.from_numpy(shares), None)
