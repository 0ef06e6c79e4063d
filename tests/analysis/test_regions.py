"""Where the evidence for a class is."""

import pytest
import torch
from torch import nn

import torchcaps as tc
from tests.support.commands import run
from torchcaps.analysis.predict import full_picture
from torchcaps.analysis.regions import _windows, evidence
from torchcaps.plots.regions import evidence_figure
from torchcaps.plots.style import short
from torchcaps.runs.run import Run


class Spot(nn.Module):
    """The activation of class 1 is the brightness of one region, that of class 0 the rest."""

    def forward(self, images):
        bright = images[:, 0, 2:6, 10:14].mean((1, 2)).clamp(0.01, 0.99)
        return tc.Capsules(torch.zeros(len(images), 2, 4), torch.stack([1 - bright, bright], 1))


@pytest.fixture
def image():
    image = torch.full((1, 20, 24), 0.1)
    image[:, 2:6, 10:14] = 0.9
    return image


@pytest.mark.parametrize("size", [(20, 24), (4, 4), (5, 40), (64, 64)])
def test_windows_cover_every_pixel(size):
    assert _windows(*size).any(0).all()


def test_the_hottest_part_is_what_the_network_looks_at(image):
    found = evidence(Spot(), image, 1)
    assert found.heat.shape == (20, 24)
    assert found.hottest[3:5, 11:13].all()
    row, column = divmod(int(found.heat.argmax()), 24)
    assert 2 <= row < 6
    assert 10 <= column < 14
    assert found.activation == pytest.approx(0.9)
    assert found.covered < 0.3 < found.elsewhere


def test_a_map_of_nothing_is_no_better_than_chance(image):
    found = evidence(Spot(), torch.full_like(image, 0.5), 1)
    assert found.heat.abs().max() < 1e-5
    assert found.covered == pytest.approx(found.elsewhere, abs=1e-5)


def test_figure_has_the_size_of_the_picture_and_the_check(image):
    figure = evidence_figure(torch.rand(3, 50, 80), evidence(Spot(), image, 1), "a" * 60)
    left, right = figure.axes[:2]
    assert left.images[0].get_array().shape[:2] == right.images[1].get_array().shape == (50, 80)
    assert figure._suptitle.get_text() == f"{'a' * 39}\u2026 (0.90)"
    assert "covered elsewhere" in figure.texts[-1].get_text().replace("\n", " ")


def test_short_names_end_with_an_ellipsis():
    assert short("strawberry", 10) == "strawberry"
    assert short("strawberries", 10) == "strawberr\u2026"


def test_explain_writes_the_map_and_prints_the_check(trained, pictures, capsys):
    file = pictures / "left" / "0.png"
    assert run("explain", trained, file) == 0
    said = capsys.readouterr().out
    assert "of the picture that matter most to left covered: " in said
    assert (trained / "explain" / "0-evidence.png").stat().st_size > 5000
    assert full_picture(Run.open(trained), file).shape == (1, 20, 20)
