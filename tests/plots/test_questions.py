"""Pictures of attacks, jumbled and strange images: what is drawn is what was measured."""

import pytest
import torch
from matplotlib.colors import to_hex

from torchcaps.analysis.attacks import AttackCurve, AttackExamples, AttackPoint
from torchcaps.analysis.evaluate import Evaluation
from torchcaps.analysis.images import InMemoryImages
from torchcaps.analysis.jumble import JUMBLES, JumbleResult, jumbled_sets
from torchcaps.analysis.strange import roc
from torchcaps.plots.attacks import attack_examples_figure, attack_figure
from torchcaps.plots.jumble import confidence_figure, jumble_figure
from torchcaps.plots.strange import roc_figure
from torchcaps.plots.style import PALETTE, RIGHT, WRONG, save_figures


def curve(method, rights, driven=None):
    epsilons = (0.0, 0.1, 0.2)
    driven = driven or [None] * 3
    points = [AttackPoint(e, 10, right, to) for e, right, to in zip(epsilons, rights, driven, strict=True)]
    return AttackCurve(method, tuple(points), 0.0)


def test_a_line_for_each_run_and_method(tmp_path):
    figure = attack_figure(
        {"caps": [curve("fgsm", [10, 8, 5]), curve("bim", [10, 4, 0])], "cnn": [curve("fgsm", [9, 1, 0])]}
    )
    (axes,) = figure.axes
    assert [line.get_ydata().tolist() for line in axes.lines] == [[1, 0.8, 0.5], [1, 0.4, 0], [0.9, 0.1, 0]]
    assert axes.lines[0].get_xdata().tolist() == [0, 0.1, 0.2]
    assert [line.get_color() for line in axes.lines] == [PALETTE[0], PALETTE[0], PALETTE[1]]
    assert [line.get_linestyle() for line in axes.lines] == ["-", "--", "-"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["caps, fgsm", "caps, bim", "cnn, fgsm"]
    assert len(axes.collections) == 3  # the intervals
    low, high = (
        axes.collections[0].get_paths()[0].vertices[:, 1].min(),
        axes.collections[0].get_paths()[0].vertices[:, 1].max(),
    )
    assert (low, high) == pytest.approx((AttackPoint(0.2, 10, 5).interval[0], 1))
    assert save_figures({"curve.png": figure}, tmp_path)[0].stat().st_size > 5000


def test_targets_have_a_panel_of_their_own_and_the_source_is_named():
    figure = attack_figure({"caps": [curve("fgsm", [10, 8, 5], [0, 1, 3])]}, "other")
    left, right = figure.axes
    assert right.lines[0].get_ydata().tolist() == [0, 0.1, 0.3]
    assert "changes made on other" in left.get_title()
    assert right.get_title() == "share answered with the target"


def test_examples_say_what_was_answered_and_whether_it_is_right(tmp_path):
    activations = torch.tensor([[[0.9, 0.1], [0.2, 0.7]], [[0.3, 0.6], [0.2, 0.8]]])
    images = torch.rand(2, 2, 1, 5, 5)
    examples = AttackExamples((0.0, 0.1), images, activations, torch.tensor([0, 1]), torch.tensor([1, 0]), ("a$", "b"))
    figure = attack_examples_figure(examples, "bim")
    assert [axes.get_title() for axes in figure.axes] == ["a$ (0.90)", "b (0.60)", "b (0.70)", "b (0.80)"]
    assert [to_hex(axes.title.get_color()) for axes in figure.axes] == [RIGHT, WRONG, RIGHT, RIGHT]
    texts = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert set(texts) == {"a$\n→ b", "as it is", "ε = 0.1", "b\n→ a$"}
    assert torch.equal(torch.as_tensor(figure.axes[1].images[0].get_array()), images[1, 0, 0])
    assert save_figures({"examples.png": figure}, tmp_path)[0].exists()


def results(seed=0):
    images = torch.zeros(3, 1, 12, 12)
    images[..., 2:10, 2:10] = torch.rand(3, 1, 8, 8)
    data = InMemoryImages(images, torch.tensor([0, 1, 2]), ("a", "b", "c"))
    sets = jumbled_sets(data, seed)
    found = {
        kind: JumbleResult(kind, Evaluation(data.classes, shown.labels.view(3, -1), torch.rand(3, 3), None))
        for kind, shown in sets.items()
    }
    return sets, found


def test_jumbled_images_stand_in_columns_with_their_answers(tmp_path):
    sets, found = results()
    figure = jumble_figure(sets, found, torch.tensor([2, 1]))
    assert len(figure.axes) == 2 * 6
    columns = [text.get_text() for axes in figure.axes[:6] for text in axes.texts]
    assert columns == ["whole", "2 x 2 shuffled", "3 x 3 shuffled", "rows shuffled", "parts mirrored", "side by side"]
    active = found["3x3"].evaluation.activations[1]
    assert figure.axes[6 + 2].get_title() == f"{'abc'[active.argmax()]} ({active.max():.2f})"
    assert figure.axes[5].get_title().count("(") == 2
    assert torch.equal(torch.as_tensor(figure.axes[6 + 2].images[0].get_array()), sets["3x3"].images[1, 0])
    assert save_figures({"examples.png": figure}, tmp_path)[0].exists()


def test_histograms_show_shares_of_images_for_each_run_and_kind():
    figure = confidence_figure({"caps": results()[1], "cnn": results()[1]})
    assert len(figure.axes) == 2 * (len(JUMBLES) + 1)
    for axes in figure.axes:
        whole, jumbled = (patch.get_path().vertices for patch in axes.patches)
        assert whole[:, 1].max() <= 1
        assert jumbled[:, 1].max() <= 1
    assert [axes.get_ylabel() for axes in figure.axes[::5]] == ["caps", "cnn"]


@pytest.mark.parametrize("kinds", [1, 4])
def test_curves_of_detectors_have_a_panel_for_each_kind(tmp_path, kinds):
    known = roc(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([3.0, 5.0]))
    names = ["noise", "jumbled", "attacked", "other"][:kinds]
    images = InMemoryImages(torch.rand(1, 1, 4, 4), torch.tensor([0]), ("a", "b"))
    figure = roc_figure(
        {name: {"reconstruction": known, "confidence": known} for name in names}, dict.fromkeys(names, images)
    )
    heads = [axes for axes in figure.axes if axes.get_title()]
    assert [axes.get_title() for axes in heads] == names
    panels = [axes for axes in figure.axes if axes.lines]
    assert len(panels) == kinds
    assert all(axes.get_legend() is None and not axes.child_axes for axes in panels)  # nothing covers the curves
    assert list(panels[0].lines[0].get_ydata()) == known.found.tolist()
    assert list(panels[0].lines[0].get_xdata()) == known.alarms.tolist()
    legend = [text.get_text() for text in heads[-1].get_legend().get_texts()]
    interval = "area 0.833 ({:.3f} to {:.3f})".format(*known.interval)
    assert legend == [f"reconstruction\n{interval}", f"confidence\n{interval}"]
    assert save_figures({"roc.png": figure}, tmp_path)[0].exists()
