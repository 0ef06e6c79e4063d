"""Picture files: which are found, in which order, and how they get their size."""

import os

import numpy as np
import pytest
import torch
from PIL import Image

from tests.support.commands import refused, run, save_pictures
from torchcaps._core.errors import InputError
from torchcaps.data import ImageSet, load_folder, pictures, pictures_in, read_picture
from torchcaps.data.pictures import BARS, FITS, parse_size, resize_images
from torchcaps.runs.run import Run


def draw(path, size=(6, 4), value=128):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", size, value).save(path, "PNG")
    return path


def test_names_are_in_natural_order(tmp_path):
    for folder in ("10", "9", "a2", "a10"):
        for name in ("b10.png", "b9.png"):
            draw(tmp_path / folder / name)
    data = load_folder(tmp_path)
    assert data.classes == ("9", "10", "a2", "a10")
    assert list(data.names)[:2] == ["9/b9.png", "9/b10.png"]


def test_jfif_and_avif_are_pictures(tmp_path):
    for name in ("1.jfif", "2.JPE", "3.avif"):
        (tmp_path / name).write_bytes(b"")
    assert [os.path.basename(file) for file in pictures_in(tmp_path)] == ["1.jfif", "2.JPE", "3.avif"]


def test_avif_is_read_where_pillow_can(tmp_path):
    if not Image.registered_extensions().get(".avif"):
        pytest.skip("this Pillow reads no AVIF")
    Image.new("RGB", (8, 8), (250, 10, 10)).save(tmp_path / "1.avif")
    assert read_picture(tmp_path / "1.avif", None)[4, 4, 0] > 200


def test_other_files_are_named(tmp_path):
    for name in ("a", "b"):
        draw(tmp_path / name / "1.png")
    (tmp_path / "a" / "notes.txt").write_text("x")
    (tmp_path / "b" / "raw.heic").write_text("x")
    for name in (".DS_Store", "Thumbs.db"):
        (tmp_path / "a" / name).write_text("x")
    with pytest.warns(UserWarning, match=r"left out 2 files that are no pictures: a/notes.txt, b/raw.heic$"):
        assert len(load_folder(tmp_path)) == 2


def test_links_to_folders_are_followed_once(tmp_path):
    draw(tmp_path / "elsewhere" / "1.png")
    (tmp_path / "all" / "a").mkdir(parents=True)
    (tmp_path / "all" / "a" / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "all" / "a" / "back").symlink_to(tmp_path / "all" / "a")
    assert len(pictures_in(tmp_path / "all" / "a")) == 1


@pytest.mark.parametrize(
    ("text", "size"), [(None, None), (64, 64), ("64", 64), ("48x64", (48, 64)), ("4x1024", (4, 1024))]
)
def test_size_is_a_side_or_height_and_width(text, size):
    assert parse_size("--size", text) == size


@pytest.mark.parametrize("text", ["48*64", "x64", "3", 2000, "64x2", "big", "1x2x3", "٦٤x64x"])
def test_other_sizes_get_one_sentence(text):
    with pytest.raises(InputError, match="a side of 4 to 1024 pixels, or height x width"):
        parse_size("--size", text)


def halves(height, width):
    """The left half dark, the right half bright."""
    pixels = np.full((height, width, 3), 40, np.uint8)
    pixels[:, width // 2 :] = 220
    return pixels


@pytest.mark.parametrize("fit", FITS)
def test_files_and_tensors_are_resized_alike(fit, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (3, 5, 3), dtype=np.uint8).repeat(10, 0).repeat(10, 1)
    Image.fromarray(pixels).save(tmp_path / "1.png")
    from_file = read_picture(tmp_path / "1.png", (12, 16), fit=fit).astype(int)
    from_tensor = resize_images(torch.from_numpy(pixels).movedim(-1, 0)[None], (12, 16), fit)[0].movedim(0, -1).numpy()
    assert np.abs(from_file - from_tensor).mean() < 3


def test_pad_keeps_proportions_between_gray_bars(tmp_path):
    Image.fromarray(halves(20, 40)).save(tmp_path / "1.png")
    padded = read_picture(tmp_path / "1.png", 16, fit="pad")
    assert (padded[:4] == BARS).all()
    assert (padded[-4:] == BARS).all()
    assert padded[5, 2, 0] == 40
    assert padded[5, 13, 0] == 220


def test_crop_keeps_proportions_and_the_center(tmp_path):
    pixels = halves(20, 40)
    pixels[:, :10] = pixels[:, 30:] = 0  # what is cut off
    Image.fromarray(pixels).save(tmp_path / "1.png")
    cropped = read_picture(tmp_path / "1.png", 16, fit="crop")
    assert cropped[8, 2, 0] == 40
    assert cropped[8, 13, 0] == 220


@pytest.mark.parametrize("fit", FITS)
def test_image_sets_take_any_size(fit):
    data = ImageSet(torch.zeros(3, 1, 9, 7, dtype=torch.uint8), torch.tensor([0, 1, 0]), ("a", "b"))
    assert data.resize((5, 11), fit).image_shape == (1, 5, 11)


def test_a_run_reads_new_pictures_as_it_was_trained(tmp_path, monkeypatch, capsys):
    save_pictures(tmp_path / "all")
    options = ["--size", "16x24", "--fit", "pad", "--epochs", 1, "--batch-size", 8]
    assert run("train", tmp_path / "all", *options, "--out", tmp_path / "run") == 0
    assert Run.open(tmp_path / "run").metadata.image_shape == (1, 16, 24)
    seen = []
    read = pictures.read_picture
    monkeypatch.setattr(
        "torchcaps.analysis.predict.read_picture", lambda *a, **b: seen.append((a[1], b)) or read(*a, **b)
    )
    assert run("predict", tmp_path / "run", tmp_path / "all" / "left" / "0.png") == 0
    assert seen == [((16, 24), {"color": False, "fit": "pad"})]


def test_fit_without_size_is_refused(tmp_path, capsys):
    save_pictures(tmp_path / "all")
    assert "--fit: expected --size beside it, got none" in refused(capsys, "train", tmp_path / "all", "--fit", "crop")
