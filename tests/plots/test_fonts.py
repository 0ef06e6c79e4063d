"""Letters that the usual font lacks, in figures."""

from matplotlib.figure import Figure
from matplotlib.font_manager import findfont

from torchcaps.plots import style


def test_texts_use_an_installed_font_that_has_their_letters(tmp_path):
    usual, other = style._letters(findfont("DejaVu Sans")), style._letters(findfont("STIXGeneral"))
    letter = min(other - usual)
    figure = Figure()
    plain, strange = figure.text(0, 0, "plain"), figure.text(0, 0.5, f"a {letter}")
    before = plain.get_fontfamily()
    style.save_figures({"a.png": figure}, tmp_path)
    assert plain.get_fontfamily() == before
    assert len(strange.get_fontfamily()) == len(before) + 1
    assert letter in style._letters(findfont(strange.get_fontfamily()[-1]))


def test_letters_that_no_font_has_are_boxes(tmp_path, monkeypatch):
    monkeypatch.setattr(style, "_font_with", lambda letters: None)
    figure = Figure()
    figure.text(0, 0, "胶囊网络")
    (path,) = style.save_figures({"a.png": figure}, tmp_path)
    assert path.stat().st_size > 0
