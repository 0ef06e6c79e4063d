"""How often a training step waits for its device: once, for what the progress line shows."""

import pytest
import torch
from torch import Tensor

from tests.support.waits import Waits
from torchcaps.data import ImageSet
from torchcaps.models import create_model
from torchcaps.runs.config import TrainConfig
from torchcaps.runs.recipes import resolve
from torchcaps.train.prepare import fit_model


@pytest.mark.parametrize("name", ["matrix-small", "efficient"])
def test_a_step_looks_at_numbers_once(name, monkeypatch):
    # Values of labels are checked on CPUs alone.
    monkeypatch.setattr("torchcaps._core.types.can_look_at", lambda values: False)

    def looks(steps):
        """How often numbers are looked at in a training of so many steps."""
        images = torch.randint(256, (4 * steps, 1, 20, 20), dtype=torch.uint8)
        data = ImageSet(images, torch.arange(4 * steps) % 2, ("even", "odd"))
        config = resolve(TrainConfig(model=name, epochs=1, batch_size=4, device="cpu"), len(data))
        model = create_model(name, image_shape=(1, 20, 20), classes=2)
        lists = []
        monkeypatch.setattr(Tensor, "tolist", lambda self: lists.append(self.shape) or self.numpy().tolist())
        with Waits() as waits:
            fit_model(model, data, config)
        return len(waits.seen) + len([shape for shape in lists if shape])

    assert looks(7) - looks(4) == 3
