"""Commands run in this process, and small pictures to run them on."""

import warnings

import numpy as np
from PIL import Image

from torchcaps.apps.cli.main import main
from torchcaps.data import write_norb

SMALL = ["--epochs", "1", "--option", "capsules=8", "--batch-size", "32", "--reconstruction", "0.0005"]


def run(*words):
    with warnings.catch_warnings():  # main shows warnings in its own way
        warnings.simplefilter("default")
        return main([str(word) for word in words])


def refused(capsys, *words):
    """The one sentence with which a command refuses these words."""
    capsys.readouterr()
    assert run(*words) == 2
    said = capsys.readouterr().err.strip()
    assert "Traceback" not in said
    assert len(said.splitlines()) == 1, said
    return said


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


def save_norb(folder):
    """Sixty noisy pairs of pictures for training and for testing, in the files of smallNORB."""
    generator = np.random.default_rng(0)
    (folder / "smallnorb").mkdir(parents=True)
    for stem in ("5x46789x9x18x6x2x96x96-training", "5x01235x9x18x6x2x96x96-testing"):
        start = folder / "smallnorb" / f"smallnorb-{stem}"
        views = np.stack([np.arange(60) % 5, np.arange(60) % 9, 2 * (np.arange(60) % 18), np.arange(60) % 6], 1)
        write_norb(f"{start}-dat.mat", generator.integers(0, 256, (60, 2, 96, 96), dtype=np.uint8))
        write_norb(f"{start}-cat.mat", (np.arange(60) // 12).astype(np.int32))
        write_norb(f"{start}-info.mat", views.astype(np.int32))
    return folder
