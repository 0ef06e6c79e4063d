"""What the explaining pictures show, read back from the figures."""

import numpy as np
import pytest
import torch
from matplotlib.patches import FancyBboxPatch, PathPatch, Rectangle, StepPatch

import torchcaps as tc
from tests.analysis.test_diagrams import VIEWS, view_grid
from tests.analysis.test_sharing import voted
from torchcaps.analysis.convergence import Convergence
from torchcaps.analysis.sharing import agreement, sharing
from torchcaps.analysis.textshapes import text_shapes
from torchcaps.analysis.weights import weight_counts
from torchcaps.plots.convergence import convergence_figure
from torchcaps.plots.diagrams import text_figure, views_figure, weights_figure
from torchcaps.plots.sharing import THICK, agreement_figure, sharing_figure
from torchcaps.plots.style import PALETTE, WRONG

IMAGE = torch.rand(1, 8, 8)


def texts_of(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_histograms_hold_the_couplings_of_near_votes():
    couplings = torch.tensor([[0.5, 0.5], [0.75, 0.25], [0.25, 0.75]]).expand(2, 3, 2)
    distances = torch.tensor([[[0.1, 0.1], [0.1, 0.9], [0.9, 0.9]], [[0.0, 0.9], [0.0, 0.9], [0.0, 0.9]]])
    found = Convergence(distances, couplings, torch.tensor([[0.2, 0.3], [0.9, 0.1]]))
    figure = convergence_figure(found, IMAGE, ("cat", "dog"), [1])
    image, *panels = figure.axes
    assert len(image.images) == 1
    assert [axes.get_title() for axes in panels] == ["cat", "dog", "", ""]
    bars = [axes.patches[0] for axes in panels]
    assert all(isinstance(bar, StepPatch) for bar in bars)
    heights = [bar.get_data().values for bar in bars]
    assert heights[0].max() == pytest.approx(1.25)  # two votes at 0.1
    assert heights[2][0] == pytest.approx(1.5)  # all votes at zero
    assert np.allclose(bars[1].get_facecolor()[:3], np.array([int(PALETTE[1][i : i + 2], 16) / 255 for i in (1, 3, 5)]))
    assert panels[2].lines[0].get_xdata()[0] == 0
    assert [text for text in texts_of(figure) if text.startswith("a =")] == [
        "a = 0.20",
        "a = 0.30",
        "a = 0.90",
        "a = 0.10",
    ]


def test_ribbons_are_as_wide_as_couplings_and_parts():
    shown = sharing(voted(), child=0, parent=0)
    figure = sharing_figure(shown, IMAGE, ("cat", "dog"), count=2)
    picture, split, receive = figure.axes
    assert len(picture.images) == 1
    widths = [
        [patch.get_linewidth() for patch in axes.patches if isinstance(patch, PathPatch)] for axes in (split, receive)
    ]
    assert widths[0] == pytest.approx([THICK * 0.9, THICK * 0.1])
    assert widths[1] == pytest.approx([THICK * 2.7 / 3.1, THICK * 0.6 / 3.1, THICK * 0.2 / 3.1])
    assert receive.patches[2].get_edgecolor()[0] == pytest.approx(int(WRONG[1:3], 16) / 255)  # against the parent
    texts = texts_of(figure)
    assert {"cat   0.90", "dog   0.10", "child 0   +87.1%", "1 more   -6.5%"} <= set(texts)
    assert "its couplings sum to 1.00" in split.get_title()
    assert "length 3.10" in receive.get_title()


def test_arrows_are_the_votes():
    shown = agreement(voted(), parents=(0, 1))
    figure = agreement_figure(shown, ("cat", "dog"))
    first, second = figure.axes
    tips = [text.xy for text in first.texts]
    np.testing.assert_allclose(tips[:3], shown.votes[0], atol=1e-6)
    assert tips[3] == (3.0, 0.0)  # the parent, as long as the longest vote
    np.testing.assert_allclose(tips[4], shown.marked[0], atol=1e-6)
    assert first.get_title() == "child 0 agrees with cat: cosine +1.00, coupling 0.500 → 0.900"
    assert second.get_title().startswith("child 0 opposes dog: cosine -")


def test_lines_of_one_color_are_one_matrix():
    sizes = (3, 2, 4, 5)
    figure = weights_figure(weight_counts(*sizes), sizes)
    colors = [{str(line.get_color()) for line in axes.lines} for axes in figure.axes]
    assert [len(axes.lines) for axes in figure.axes] == [6, 6]
    assert [len(each) for each in colors] == [6, 2]
    assert figure.axes[0].get_title() == "full weights\n6 matrices of 4 x 5, one for each pair:\n120 numbers"
    assert figure.axes[1].get_title() == "shared weights\n2 matrices of 4 x 5, one for each parent:\n40 numbers"


def test_many_capsules_are_left_out_of_the_lines_but_not_of_the_numbers():
    sizes = (100, 10, 4, 4)
    figure = weights_figure(weight_counts(*sizes), sizes)
    assert len(figure.axes[0].lines) == 4 * 3
    assert {"u100", "v10", "⋮", "100 children", "10 parents"} <= set(texts_of(figure))


def test_boxes_are_the_layers_of_the_text_model():
    model = tc.create_model("text-b", vocabulary=20, classes=2)
    shapes = text_shapes(model, torch.arange(1, 11).unsqueeze(0), tuple("abcdefghij"))
    figure = text_figure(shapes, "text-b")
    boxes = [patch for patch in figure.axes[0].patches if isinstance(patch, FancyBboxPatch)]
    assert len(boxes) == 1 + 3 * 4 + 1
    texts = texts_of(figure)
    assert {
        "10 x 50",
        "8 x 32 x 16",
        "6 x 16 x 16",
        "3 x 16",
        "2 x 16",
        "mean of poses",
        "a\nb\nc\nd\ne\nf\ng\nh\ni\nj",
    } <= {*texts}


def test_framed_views_are_the_familiar_ones():
    figure = views_figure(view_grid(VIEWS, "cone", 5))
    assert len(figure.axes) == 4
    assert [len(axes.images) for axes in figure.axes] == [1, 1, 1, 0]
    framed = [any(isinstance(patch, Rectangle) for patch in axes.patches) for axes in figure.axes]
    assert framed == [True, False, True, False]
    assert [axes.get_title() for axes in figure.axes[:2]] == ["0°", "180°"]
    assert texts_of(figure) == ["30°", "50°"]
