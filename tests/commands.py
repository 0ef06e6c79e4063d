"""Commands run in this process, and small pictures to run them on."""

import warnings

import numpy as np
from PIL import Image

from torchcaps.cli import main

SMALL = ["--epochs", "1", "--option", "capsules=8", "--batch-size", "32"]


def run(*words):
    with warnings.catch_warnings():  # main shows warnings in its own way
        warnings.simplefilter("default")
        return main([str(word) for word in words])


def save_pictures(folder, per_class=12, size=20):
    """Bright squares on the left or on the right."""
    generator = np.random.default_rng(0)
    for label, name in enumerate(("left", "right")):
        (folder / name).mkdir(parents=True)
        for number in range(per_class):
            pixels = generator.integers(0, 60, (size, size), dtype=np.uint8)
            pixels[5:15, 2 + 9 * label : 9 + 9 * label] += 180
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder
