"""What stands in the pictures of trees, couplings, drawings and poses."""

import pytest
import torch
from matplotlib.patches import PathPatch, Rectangle

from tests.analysis.test_inside import Corners, Reader, corners, rows_of
from tests.analysis.test_trees import by_hand, deep, halves
from torchcaps.analysis.overlap import take_apart
from torchcaps.analysis.perturb import Meanings, perturb
from torchcaps.analysis.reconstruct import draw_classes, draw_triples
from torchcaps.analysis.trees import coupling_moves, routing_tree, trace_image
from torchcaps.data.generated import PairSet
from torchcaps.plots.capsules import (
    apart_figure,
    drawing_figure,
    meanings_figure,
    sheet_figure,
    tiles,
    triples_figure,
    two_colors,
)
from torchcaps.plots.style import save_figures
from torchcaps.plots.trees import moves_figure, tree_figure


def texts_of(axes):
    return [text.get_text() for text in axes.texts]


def lines_of(axes):
    return [patch for patch in axes.patches if isinstance(patch, PathPatch)]


def test_lines_of_a_tree_are_as_wide_as_couplings():
    tree = routing_tree(by_hand(), [0], most=3, branches=1)
    (axes,) = tree_figure(tree, ("ant", "bee")).axes
    widths = [line.get_linewidth() for line in lines_of(axes)]
    assert len(widths) == len(tree.edges) == 4
    # Of each layer the widest line is its largest coupling; drawn last, as the strongest.
    couplings = {layer: [edge.coupling for edge in reversed(tree.into(layer))] for layer in (1, 2)}
    expected = [0.3 + 2.9 * coupling / max(couplings[layer]) for layer in (1, 2) for coupling in couplings[layer]]
    assert widths == pytest.approx(expected)
    assert {"ant", "bee", "0.80", "0.30"} <= set(texts_of(axes))
    assert "100% of what reaches it" in " ".join(texts_of(axes))


def test_a_bare_root_is_drawn_without_lines(tmp_path):
    traced = by_hand()
    level = traced.levels[1]
    empty = type(level)(level.grid, level.activations, level.boxes, level.seen, -level.couplings)
    tree = routing_tree(type(traced)(traced.image, traced.activations, (traced.levels[0], empty)), [1])
    figure = tree_figure(tree, ("ant", "bee"))
    assert not lines_of(figure.axes[0])
    assert save_figures({"bare.png": figure}, tmp_path)[0].stat().st_size > 1000


def test_parts_stand_at_the_middle_of_what_they_see():
    tree = routing_tree(trace_image(halves(), torch.ones(1, 4, 4)), [0], most=2)
    (axes,) = tree_figure(tree, ("left", "right")).axes
    starts = {tuple(line.get_path().vertices[0].round(3)) for line in lines_of(axes)}
    assert starts == {(0.25, 0.25), (0.25, 0.75)}  # in heights of the image
    (frame,) = [patch for patch in axes.patches if isinstance(patch, Rectangle) and patch.get_linestyle() == "--"]
    assert (frame.get_width(), frame.get_height()) == (0.5, 0.5)
    assert len(axes.images) == 1


def test_each_layer_on_a_grid_has_a_panel(tmp_path):
    model = deep().eval()
    tree = routing_tree(trace_image(model, torch.rand(1, 9, 7)), [0, 2], most=3)
    figure = tree_figure(tree, ("a", "b", "c"))
    (axes,) = figure.axes
    assert len(axes.images) == 3
    assert len({line.get_edgecolor() for line in lines_of(axes)}) == 2  # a color for each class
    (path,) = save_figures({"tree.png": figure}, tmp_path)
    assert path.stat().st_size > 5000


def test_parts_without_a_place_stand_in_a_column_with_their_maps():
    traced = by_hand()
    alone = traced.levels[1]
    lower = type(alone)((1, 1), alone.activations, torch.tensor([[0, 0, 2, 4]]), alone.seen, alone.couplings)
    tree = routing_tree(type(traced)(traced.image, traced.activations, (lower,)), [0])
    (axes,) = tree_figure(tree, ("a", "b"), {0: torch.ones(2, 4), 1: torch.zeros(2, 4)}).axes
    assert len(axes.images) == 3  # the image, and two maps
    assert len({float(line.get_path().vertices[0, 0]) for line in lines_of(axes)}) == 1


def test_more_classes_than_fit_leave_the_most_active():
    traced = by_hand()
    activations = torch.linspace(0, 1, 30)[None]
    level = traced.levels[1]
    wide = type(level)((), level.activations, level.boxes, level.seen, torch.full((1, 1, 3, 30), 1 / 30))
    tree = routing_tree(type(traced)(traced.image, activations, (wide,)), [0])
    (axes,) = tree_figure(tree, [f"c{number}" for number in range(30)]).axes
    names = [text for text in texts_of(axes) if text.startswith("c")]
    assert names == ["c0", *(f"c{number}" for number in range(19, 30))]
    (axes,) = tree_figure(tree, [f"a long category {number}" for number in range(30)]).axes
    assert "a long c…ry 29" in texts_of(axes)


def test_moves_have_a_panel_for_each_part_and_a_line_for_each_class():
    moves = coupling_moves(trace_image(halves(), torch.ones(1, 4, 4)), 0, most=3)
    figure = moves_figure(moves, ("left", "right"))
    shown = [axes for axes in figure.axes if axes.axison]
    assert len(shown) == 3
    assert all(len(axes.lines) == 2 for axes in shown)
    assert shown[0].lines[-1].get_ydata() == pytest.approx(moves.couplings[:, 0, 0])
    assert shown[0].get_title() == "type 0 at 0, 0"
    low, high = shown[0].get_ylim()
    assert low == 0
    assert high > float(moves.couplings.max())
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["left", "right"]


def test_one_iteration_is_drawn_as_bars():
    traced = by_hand()
    figure = moves_figure(coupling_moves(traced, 0), ("a", "b"))
    first = figure.axes[0]
    heights = {round(patch.get_x() + patch.get_width() / 2): patch.get_height() for patch in first.patches}
    assert heights == pytest.approx({0: 0.7, 1: 0.3})


def test_drawings_say_class_activation_and_error():
    image = torch.zeros(1, 6, 6)
    image[0, 2, 0] = 0.5
    drawing = draw_classes(Reader(), image, [2, 0])
    figure = drawing_figure(drawing, "abcd")
    assert [axes.get_title() for axes in figure.axes][:2] == ["image", "c (0.50)\nerror 0.000"]
    assert len(drawing_figure(drawing, "abcd", things=2).axes) == 4


def test_triples_are_written_over_each_pair():
    cases = draw_triples(Reader(), rows_of([0, 1, 3], [0, 1, 2]), right=2, wrong=1)
    figure = triples_figure(cases, "abcd")
    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert titles == ["(a, a, a)", "(b, b, b)", "(c, d, d)", "(c, d, c)"]
    assert len(figure.axes) == 8
    long = triples_figure(cases, ("airplane", "bicycle", "car", "dog"))
    assert long.axes[4].get_title() == "car\ndog\ndog"


def test_absent_classes_have_a_star():
    cases = take_apart(Corners(), PairSet(corners(), length=40, shift=0), right=1, absent=1)
    figure = apart_figure(cases, "abcd")
    assert len(figure.axes) == 6
    first, second = (texts_of(figure.axes[place])[:2] for place in (0, 3))
    assert not any("*" in text for text in first)
    assert ["*" in text for text in second] == [False, True]


def test_two_things_are_white_where_they_overlap():
    things = torch.zeros(2, 1, 1, 3)
    things[0, 0, 0, :2] = 1
    things[1, 0, 0, 1:] = 1
    colors = two_colors(things)
    assert colors.shape == (3, 1, 3)
    assert colors[0, 0, 0] > colors[2, 0, 0]  # orange
    assert colors[2, 0, 2] > colors[0, 0, 2]  # blue
    assert colors[:, 0, 1].min() > 0.9


def test_a_sheet_has_a_row_for_each_dimension():
    sheet = perturb(Reader(), torch.full((1, 6, 6), 0.5), 1)
    axes, bars = sheet_figure(sheet, "abcd").axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0", "1", "2"]
    assert [label.get_text() for label in axes.get_xticklabels()][::5] == ["-0.25", "+0.00", "+0.25"]
    assert axes.images[0].get_array().shape == (3 * 7 - 1, 11 * 7 - 1)
    assert [patch.get_width() for patch in bars.patches] == pytest.approx(sheet.effects.tolist())


def test_tiles_keep_every_image_in_its_place():
    images = torch.rand(2, 3, 3, 4, 5)
    whole = tiles(images)
    assert whole.shape == (3, 9, 17)
    for row in range(2):
        for column in range(3):
            cut = whole[:, 5 * row : 5 * row + 4, 6 * column : 6 * column + 5]
            torch.testing.assert_close(cut, images[row, column])
    assert (whole[:, 4] == 1).all()


def test_meanings_have_a_map_for_all_and_for_each_class():
    correlations = torch.linspace(-1, 1, 3 * 4 * 2).view(3, 4, 2)
    correlations[1] = torch.nan
    meanings = Meanings(("a", "b", "c"), ("x", "y"), correlations, correlations)
    figure = meanings_figure(meanings)
    assert [axes.get_title() for axes in figure.axes if axes.get_title()] == ["mean |r| over classes", "a", "c"]
    assert texts_of(figure.axes[0])[0] == f"{float(meanings.strength[0, 0]):.2f}"
