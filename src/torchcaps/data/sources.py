"""From what a user types to labelled images: a name, a folder of pictures, an npz file, or a folder of idx files."""

from __future__ import annotations

from pathlib import Path

from torchcaps.data.base import ImageSet, Splits, hold_out, three_way
from torchcaps.data.catalogue import DATASETS, load_dataset
from torchcaps.data.files import load_folder, load_idx, load_npz
from torchcaps.errors import complaint


def open_data(
    source: str, *, folder: Path | None = None, size: int | None = None, colour: bool | None = None
) -> ImageSet | Splits:
    """The images of `source`: a data set by name comes in its parts, a user's own images in one piece.

    folder: where data sets by name live. size: pixels a side to resize to. colour: see `load_folder`.
    """
    path = Path(source).expanduser()
    data: ImageSet | Splits
    if source in DATASETS:
        data = load_dataset(source, folder)
    elif path.suffix == ".npz" and path.is_file():
        data = load_npz(path)
    elif path.is_dir():
        idx = sorted(file for file in path.iterdir() if "idx3" in file.name)
        data = _idx_folder(path, idx) if idx else load_folder(path, size=size, colour=colour)
    else:
        expected = f"a folder with one subfolder for each class, an .npz file, or one of {', '.join(DATASETS)}"
        got = f"{source!r}, which is " + ("a file of another kind" if path.exists() else "none of these")
        raise complaint("data", expected, got, "Check the spelling and the folder you are in.")
    if size is None:
        return data
    if isinstance(data, ImageSet):
        return data.resize(size)
    if not isinstance(data.train, ImageSet):
        raise complaint(source, "no size: its images are made as they are shown", size, "Drop --size.")
    novel = None if data.novel is None else data.novel.resize(size)
    return Splits(data.train.resize(size), data.validation.resize(size), data.test.resize(size), novel)


def _idx_folder(path: Path, images: list[Path]) -> ImageSet | Splits:
    """Pairs of idx files with the names of MNIST's; one pair is a whole set, one of t10k the test part."""
    sets: dict[bool, ImageSet] = {}
    for file in images:
        names = file.name.replace("images", "labels").replace("idx3", "idx1")
        twins = [file.with_name(name) for name in (names, names + ".gz", names.removesuffix(".gz"))]
        labels = next((twin for twin in twins if twin.exists()), None)
        if labels is None:
            raise complaint(str(file), f"its labels in {names}", "no such file", "Put the label file beside it.")
        sets[file.name.startswith(("t10k", "test"))] = load_idx(file, labels)
    if len(sets) < 2:
        return next(iter(sets.values()))
    if sets[True].classes != sets[False].classes:
        got = f"{len(sets[False].classes)} and {len(sets[True].classes)}"
        raise complaint(str(path), "the same classes in training and test", got, "Check the label files.")
    return hold_out(sets[False], len(sets[False]) // 10, sets[True])


def make_parts(data: ImageSet | Splits, *, validation: float = 0.1, test: float = 0.2, seed: int = 0) -> Splits:
    """Training, validation and test parts: those the data came with, or new stratified ones."""
    return data if isinstance(data, Splits) else three_way(data, validation, test, seed)
