"""Pictures of health: what they show, not only that they are there."""

from dataclasses import replace

import pytest
import torch
from matplotlib.colors import to_rgba
from matplotlib.container import BarContainer

from torchcaps.analysis.ablate import ALL, Ablation, Ablations
from torchcaps.analysis.cost import GradientNorms, IterationCost
from torchcaps.analysis.couplings import CouplingFacts
from torchcaps.analysis.health import Health, LayerHealth
from torchcaps.analysis.moves import Mirror
from torchcaps.plots.health import ablations_figure, couplings_figure, entropy_figure, health_pictures, mass_figure
from torchcaps.plots.style import WRONG


def layer(name, entropy, mass, even=0.25):
    histogram = torch.zeros(50, dtype=torch.float64)
    histogram[3], histogram[40] = 30, 10
    facts = CouplingFacts(
        entropy, (0.0,) * len(entropy), 0.5, 0.3, 0.2, torch.tensor(mass), even, histogram, torch.zeros(2, len(mass))
    )
    active = torch.ones(len(mass))
    costs = (IterationCost(1, 0.1, 5),)
    return LayerHealth(name, "em", 4, len(mass), active, 0.1, facts, Mirror(0, 0), GradientNorms(1, 1), costs)


@pytest.fixture
def health():
    layers = (layer("layer 1", (1.0, 0.8, 0.5), [1.2, 0.05, 1.75]), layer("classes", (1.0, 0.3), [0.5, 1.0, 1.5]))
    return Health(10, ("cat$_$", "dog"), (), layers, None)


@pytest.fixture
def ablations():
    def row(kind, layer, accuracy):
        return Ablation(kind, layer, accuracy, (accuracy - 0.1, accuracy + 0.05), 0.9 - accuracy, (0, 1))

    rows = (row("uniform", "layer 1", 0.5), row("uniform", "classes", 0.6), row("uniform", ALL, 0.4))
    rows += tuple(row(kind, "classes", 0.7) for kind in ("random", "frozen", "one iteration"))
    left_out = {("no squash", ALL): "em has no squash", ("no transform", ALL): "sizes differ"}
    return Ablations(100, 0.9, (0.85, 0.94), rows, left_out)


def test_a_line_of_entropy_for_each_layer(health):
    (axes,) = entropy_figure(health).axes
    lines = [line for line in axes.lines if not line.get_label().startswith("_")]
    assert [line.get_label() for line in lines] == ["layer 1 (em)", "classes (em)"]
    assert [list(line.get_ydata()) for line in lines] == [[1.0, 0.8, 0.5], [1.0, 0.3]]
    assert list(lines[0].get_xdata()) == [1, 2, 3]
    assert list(axes.get_xticks()) == [1, 2, 3]
    assert axes.get_ylim()[0] == 0


def test_a_histogram_of_couplings_for_each_layer(health):
    panels = couplings_figure(health).axes
    assert [axes.get_title() for axes in panels] == ["layer 1 (em)", "classes (em)"]
    bars = panels[0].patches
    assert len(bars) == 50
    assert {place: bar.get_height() for place, bar in enumerate(bars) if bar.get_height()} == {3: 0.75, 40: 0.25}
    assert bars[40].get_x() == pytest.approx(0.8)
    assert list(panels[0].lines[0].get_xdata()) == [0.25, 0.25]  # where couplings would be uniform


def test_starved_parents_are_red_and_classes_have_names(health):
    inner, classes = mass_figure(health).axes
    assert [bar.get_height() for bar in inner.patches] == pytest.approx([1.2, 0.05, 1.75])
    red = to_rgba(WRONG)
    assert [bar.get_facecolor() == red for bar in inner.patches] == [False, True, False]
    assert [label.get_text() for label in classes.get_xticklabels()] == ["cat$_$", "dog", "noise"]
    assert inner.get_xlabel() == "type of parent"


def test_bars_of_ablations_have_intervals_and_say_what_cannot_be_done(ablations):
    (axes,) = ablations_figure(ablations).axes
    bars = [bar for container in axes.containers if isinstance(container, BarContainer) for bar in container]
    assert [bar.get_width() for bar in bars] == pytest.approx([0.5, 0.6, 0.4, 0.7, 0.7, 0.7])
    ends = [segment[:, 0].tolist() for container in axes.collections for segment in container.get_segments()]
    assert ends[0] == pytest.approx([0.4, 0.55])
    words = [label.get_text() for label in axes.get_yticklabels()]
    assert words[:3] == ["uniform, layer 1", "uniform, classes", f"uniform, {ALL}"]
    assert words[-2:] == ["no squash", "no transform"]
    assert [text.get_text() for text in axes.texts] == [
        "cannot be done: em has no squash",
        "cannot be done: sizes differ",
    ]
    assert list(axes.lines[0].get_xdata()) == [0.9, 0.9]
    assert "90.0%" in axes.get_title()


def test_pictures_are_written_under_their_names(health, ablations, tmp_path):
    names = [path.name for path in health_pictures(health, ablations, tmp_path)]
    assert names == ["couplings.png", "mass.png", "entropy.png", "ablations.png"]
    assert all((tmp_path / name).stat().st_size > 5000 for name in names)
    once = replace(health, layers=(layer("classes", (0.5,), [1.0, 1.0]),))
    assert len(health_pictures(once, None, tmp_path)) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["couplings.png", "mass.png"]  # of this call alone
