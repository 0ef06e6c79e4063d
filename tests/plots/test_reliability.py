"""The reliability of probabilities, as a figure, and the progress of training in words."""

import pytest
import torch

from torchcaps.plots.evaluation import reliability_figure
from torchcaps.train import progress
from torchcaps.train.progress import duration


def test_points_lie_on_the_diagonal_where_probabilities_are_true():
    generator = torch.Generator().manual_seed(0)
    sure = torch.rand(20_000, generator=generator, dtype=torch.float64) * 0.5 + 0.5
    likely = torch.stack([sure, 1 - sure], 1)
    labels = (torch.rand(len(sure), generator=generator) > sure).long()
    figure = reliability_figure(likely, labels)
    points = [line.get_xydata()[0] for line in figure.axes[0].lines if line.get_marker() == "o"]
    assert len(points) == 5
    assert all(abs(x - y) < 0.03 for x, y in points)
    assert sum(patch.get_height() for patch in figure.axes[1].patches) == len(sure)


@pytest.mark.parametrize(("seconds", "said"), [(40, "40 s"), (600, "10 min"), (7200, "2.0 h")])
def test_durations_have_words(seconds, said):
    assert duration(seconds) == said


def test_without_a_terminal_a_long_epoch_is_not_silent(tmp_path, monkeypatch, capsys):
    from tests.support.commands import SMALL, run, save_pictures

    monkeypatch.setattr(progress, "HEARTBEAT", 0.0)
    words = [save_pictures(tmp_path / "all", 30), *SMALL, "--epochs", 2, "--batch-size", 8]
    assert run("train", *words, "--out", tmp_path / "run") == 0
    said = capsys.readouterr()
    assert "1 of 6 batches, loss " in said.err
    assert " left\n" in said.err
    first, last = (line for line in said.out.splitlines() if line.startswith("epoch"))
    assert first.endswith(" s left")
    assert "left" not in last
