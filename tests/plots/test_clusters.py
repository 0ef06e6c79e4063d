"""What the pictures of clusters show, read back from the figures."""

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb
from matplotlib.patches import Ellipse
from PIL import Image

from torchcaps.analysis.clusters import trace_clusters
from torchcaps.analysis.points import make_points
from torchcaps.plots.clusters import blended, cluster_frames, clusters_figure, membership_figure, save_clusters_gif
from torchcaps.plots.style import PALETTE


def trace(routing="gaussian", points="blobs", iterations=3, **options):
    drawn = make_points(points)
    return trace_clusters(drawn.points, routing, drawn.parents, iterations, **options)


def test_colors_are_mixed_by_the_couplings():
    first, second = (torch.tensor(to_rgb(color)) for color in PALETTE[:2])
    mixed = blended(torch.tensor([[1.0, 0.0], [0.25, 0.75], [0.0, 0.0]]))
    assert torch.allclose(mixed[0], first)
    assert torch.allclose(mixed[1], 0.25 * first + 0.75 * second)
    assert torch.allclose(mixed[2], torch.tensor(to_rgb("#dddddd")))  # nobody's


def test_still_has_a_row_for_each_routing_and_a_column_for_each_iteration():
    figure = clusters_figure([trace(covariance="full"), trace("em")])
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == [*(f"iteration {n}" for n in (1, 2, 3)), "objective", *(f"iteration {n}" for n in (1, 2, 3)), ""]
    assert figure.axes[0].get_ylabel() == "gaussian, covariance=full"
    assert figure.axes[4].get_ylabel() == "em"
    assert figure.axes[7].texts[0].get_text() == "no objective known"


def test_still_without_an_objective_has_no_column_for_it():
    assert [axes.get_title() for axes in clusters_figure([trace("em")]).axes] == [f"iteration {n}" for n in (1, 2, 3)]


def test_still_of_many_iterations_shows_the_first_and_the_last():
    titles = [axes.get_title() for axes in clusters_figure([trace(iterations=12)], columns=4).axes]
    assert titles == ["iteration 1", "iteration 5", "iteration 8", "iteration 12", "objective"]


def test_panel_shows_points_couplings_and_ways():
    shown = trace("kmeans")
    axes = clusters_figure([shown]).axes[2]
    (scatter,) = axes.collections
    np.testing.assert_allclose(scatter.get_offsets(), shown.points)
    np.testing.assert_allclose(scatter.get_facecolors()[:, :3], blended(shown.steps[2].couplings))
    ways = [line for line in axes.lines if line.get_color() == PALETTE[1] and len(line.get_xdata()) == 3]
    np.testing.assert_allclose(ways[0].get_xdata(), [step.centers[1, 0] for step in shown.steps])


def test_panel_shows_ellipses_of_one_and_two_deviations():
    shown = trace(points="ellipses", covariance="full")
    axes = clusters_figure([shown]).axes[0]
    ellipses = [patch for patch in axes.patches if isinstance(patch, Ellipse)]
    assert len(ellipses) == 2 * 3
    covariance = shown.steps[0].covariances[0]
    wide = 2 * torch.linalg.eigvalsh(covariance).sqrt()
    assert ellipses[0].width == pytest.approx(wide[1].item())
    assert ellipses[0].height == pytest.approx(wide[0].item())
    assert ellipses[1].width == pytest.approx(2 * wide[1].item())
    along = torch.tensor([np.cos(np.radians(ellipses[0].angle)), np.sin(np.radians(ellipses[0].angle))]).double()
    assert along @ covariance @ along == pytest.approx((wide[1].item() / 2) ** 2)


def test_directions_are_arrows_as_long_as_their_parents_are_active():
    shown = trace("dynamic", "directions", 2)
    axes = clusters_figure([shown]).axes[1]
    tips = torch.tensor([text.xy for text in axes.texts]).double()  # of both iterations, for each of three parents
    step = shown.steps[1]
    reach = shown.points.norm(dim=1).max()
    assert torch.allclose(tips[1::2].norm(dim=1), reach * step.activations)
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()  # arrows that end outside would not be drawn
    assert all(left < x < right and bottom < y < top for x, y in tips.tolist())
    assert torch.allclose(tips[1::2] / tips[1::2].norm(dim=1, keepdim=True), step.centers / step.activations[:, None])


def test_objective_is_drawn_as_it_is():
    shown = trace("kmeans", iterations=4)
    (line,) = clusters_figure([shown]).axes[-1].lines
    np.testing.assert_allclose(line.get_ydata(), [step.objective for step in shown.steps])


def test_membership_bars_are_the_couplings():
    shown = trace(points="overlap", covariance="spherical")
    bars = membership_figure(shown).axes[1].patches
    couplings = shown.steps[-1].couplings
    assert len(bars) == couplings.numel()
    first, second = (np.array([bar.get_height() for bar in half]) for half in np.split(np.array(bars), 2))
    np.testing.assert_allclose(first + second, 1, rtol=1e-5)
    np.testing.assert_allclose(np.sort(first), couplings[:, 0].sort().values, rtol=1e-5)


def test_frames_hold_iterations_and_nothing_between(tmp_path):
    several = [trace(iterations=3), trace("kmeans", iterations=2)]
    frames = cluster_frames(several)
    assert [frame.axes[0].get_title() for frame in frames] == [f"gaussian: iteration {n} of 3" for n in (1, 2, 3)]
    assert [frame.axes[1].get_title() for frame in frames] == [f"kmeans: iteration {n} of 2" for n in (1, 2, 2)]
    assert [len(frame.axes[2].lines[0].get_xdata()) for frame in frames] == [1, 2, 3]
    path = save_clusters_gif(several, tmp_path / "new" / "moving.gif")
    with Image.open(path) as picture:
        held = []
        for number in range(picture.n_frames):
            picture.seek(number)
            held.append(picture.info["duration"])
    assert held == [1000, 1000, 3000]
