"""Processes that load batches: the same training, whatever their number."""

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

import torchcaps as tc
from torchcaps._core.errors import InputError
from torchcaps.data import DatasetExamples, ImageSet
from torchcaps.data.disk_store import VARIABLE, Records, Stack
from torchcaps.runs.config import TrainConfig
from torchcaps.train import module
from torchcaps.train.module import EpochOrder, loader

SHAPE = (1, 16, 16)


class Noisy(Dataset):
    """Pictures that are drawn anew each time, from all three generators."""

    classes = ("dark", "bright")

    def __len__(self):
        return 40

    def __getitem__(self, row):
        noise = torch.rand(SHAPE) * 0.2 + float(np.random.rand()) * 0.1
        return noise + row % 2 * 0.5, row % 2


def on_disk(monkeypatch, count=40):
    """Images that are read from a file when they are asked for."""
    monkeypatch.setenv(VARIABLE, "0")
    records = Records("test")
    images = torch.randint(256, (count, *SHAPE), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    for image in images:
        records.append(image.numpy().tobytes())
    stack = Stack(records, SHAPE).held()
    assert isinstance(stack, Stack)
    return ImageSet(stack, torch.arange(count) % 2, ("even", "odd")), images


def batches(data, **options):
    config = TrainConfig(device="cpu", **options)
    order = EpochOrder(data, 4, seed=0)
    return [share.batch for share in loader(data, order, config)]


def test_workers_read_the_same_images_from_disk(monkeypatch):
    data, images = on_disk(monkeypatch)
    alone, helped = batches(data), batches(data, workers=2)
    rows = torch.cat(list(EpochOrder(data, 4, seed=0).rows().split(4)))
    torch.testing.assert_close(torch.cat([each.inputs for each in helped]), images[rows].float() / 255, rtol=0, atol=0)
    for mine, other in zip(alone, helped, strict=True):
        assert torch.equal(mine.inputs, other.inputs)
        assert torch.equal(mine.labels, other.labels)


def test_training_with_workers_ends_with_the_same_weights(tmp_path):
    weights = []
    for workers in (0, 2):
        torch.manual_seed(0)
        model = tc.create_model("efficient", image_shape=SHAPE, classes=2, decoder=False)
        options = {"epochs": 2, "batch_size": 8, "device": "cpu", "workers": workers}
        tc.fit(model, Noisy(), Noisy(), out=tmp_path / str(workers), **options)
        weights.append([parameter.detach().clone() for parameter in model.parameters()])
    for mine, other in zip(*weights, strict=True):
        assert torch.equal(mine, other)


@pytest.mark.parametrize(("device", "workers", "pinned"), [("cpu", 0, False), ("cuda", 2, True), ("mps", 2, False)])
def test_a_gpu_has_workers_for_examples_that_are_loaded(device, workers, pinned, monkeypatch):
    monkeypatch.setattr(module, "choose_device", lambda owner, name: torch.device(device))
    made = {}
    monkeypatch.setattr(module, "DataLoader", lambda data, **options: made.update(options))
    data = DatasetExamples(Noisy(), Noisy.classes)
    loader(data, EpochOrder(data, 4, seed=0), TrainConfig())
    assert (made["num_workers"], made["pin_memory"]) == (workers, pinned)
    held = ImageSet(torch.zeros(4, *SHAPE, dtype=torch.uint8), torch.arange(4) % 2, ("even", "odd"))
    loader(held, EpochOrder(held, 4, seed=0), TrainConfig())
    assert (made["num_workers"], made["pin_memory"]) == (0, pinned)


def test_workers_need_fork(monkeypatch):
    monkeypatch.setattr(module, "CAN_FORK", False)
    with pytest.raises(InputError, match=r"workers: expected a system with fork, got .* Drop workers\."):
        batches(DatasetExamples(Noisy(), Noisy.classes), workers=1)


def test_negative_workers_are_refused(tmp_path):
    with pytest.raises(InputError, match="workers"):
        tc.fit(torch.nn.Identity(), Noisy(), workers=-1, out=tmp_path / "run")
