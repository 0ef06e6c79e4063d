"""Open data by what a user types: a name, a folder of pictures, an npz file, idx files, or tables of texts."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from torchcaps._core.errors import input_error
from torchcaps.data.base import Data, ImageSet, Labeled, Splits, hold_out, in_classes, stratified_order, three_way
from torchcaps.data.catalog import DATASETS, load_dataset
from torchcaps.data.files import load_folder, load_idx, load_npz
from torchcaps.data.pictures import Fit, Size, class_folders
from torchcaps.data.rows import is_table
from torchcaps.data.tables import Columns, load_table

# Names of the folders of a data set that is already split.
PARTS = {"train": "train", "training": "train", "val": "validation", "valid": "validation", "validation": "validation"}
PARTS |= {"dev": "validation", "test": "test", "testing": "test"}


def open_data(
    source: str,
    *,
    folder: Path | None = None,
    size: Size | None = None,
    fit: Fit = "stretch",
    color: bool | None = None,
    columns: Columns | None = None,
    validation: float = 0.1,
    seed: int = 0,
) -> Labeled | Splits:
    """Open the images or texts of `source`: `Splits` if they are already split, otherwise one set.

    source: the name of a data set, or the path of a folder, an .npz file, or a table. folder: where data sets by name
    are stored. size: the side to resize images to, in pixels, or (height, width). fit, color: see `load_folder`.
    columns: of tables. validation, seed: the fraction to hold out for validation, and its seed, if the data have a test
    part but no validation part.
    """
    path = Path(source).expanduser()
    data: Labeled | Splits
    if source in DATASETS:
        data = load_dataset(source, folder)
    elif path.suffix == ".npz" and path.is_file():
        data = load_npz(path)
    elif is_table(path) and path.is_file():
        data = load_table(path, columns)
    elif path.is_dir():
        data = _open_folder(path, size, fit, color, columns, validation, seed)
    else:
        files = "an .npz, .csv, .tsv, .json, .jsonl or .parquet file"
        expected = f"a folder with one subfolder for each class, {files}, or {_names()}"
        got = f"{source!r}, which is " + ("a file of another kind" if path.exists() else "none of these")
        raise input_error("data", expected, got, "Check the spelling and the folder you are in.")
    if size is None or (data.train if isinstance(data, Splits) else data).kind == "texts":
        return data
    if isinstance(data, ImageSet):
        return data.resize(size, fit)
    assert isinstance(data, Splits)
    if not isinstance(data.train, ImageSet):
        raise input_error(source, "no size: its images are made as they are shown", size, "Drop --size.")
    return Splits(*(None if part is None else part.resize(size, fit) for part in data))


def _names() -> str:
    return f"one of {', '.join(DATASETS)}"


def _open_folder(
    path: Path,
    size: Size | None,
    fit: Fit,
    color: bool | None,
    columns: Columns | None,
    validation: float,
    seed: int,
) -> Labeled | Splits:
    idx = sorted(file for file in path.iterdir() if "idx3" in file.name)
    if idx:
        return _combine(path, _idx_parts(idx), validation, seed)
    tables = _tables_of_parts(path)
    if tables:
        texts = {part: load_table(file, columns, prefix=f"{file.name}:") for part, file in tables.items()}
        return _combine(path, texts, validation, seed)
    folders = {sub.name: sub for sub in class_folders(path)}
    others = [name for name in folders if name.lower() not in PARTS]
    found = {PARTS[name.lower()] for name in folders if name.lower() in PARTS}
    if others and {"train", "test"} <= found:
        got = f"{others[0]} beside them"
        remedy = "Move it away, or rename the parts if these are classes."
        raise input_error(str(path), "nothing but parts beside the folders train and test", got, remedy)
    if others or not folders:
        return load_folder(path, size=size, color=color, fit=fit)
    parts: dict[str, ImageSet] = {}
    for name, sub in sorted(folders.items(), key=lambda item: PARTS[item[0].lower()] != "train"):
        parts[PARTS[name.lower()]] = load_folder(sub, size=size, color=color, fit=fit)
        color = parts[PARTS[name.lower()]].image_shape[0] == 3  # as the training part, which comes first
    return _combine(path, parts, validation, seed)


def _idx_parts(images: list[Path]) -> dict[str, ImageSet]:
    """Pairs of idx files with names like those of MNIST."""
    parts: dict[str, ImageSet] = {}
    for file in images:
        names = file.name.replace("images", "labels").replace("idx3", "idx1")
        twins = [file.with_name(name) for name in (names, names + ".gz", names.removesuffix(".gz"))]
        labels = next((twin for twin in twins if twin.exists()), None)
        if labels is None:
            raise input_error(str(file), f"its labels in {names}", "no such file", "Put the label file beside it.")
        part = "test" if re.search(r"(^|[-_])(t10k|test)([-_]|$)", file.name) else "train"
        if part in parts:
            got = f"{file.name} as another"
            raise input_error(str(file.parent), f"one file of {part} images", got, "Keep one pair, or train and t10k.")
        parts[part] = load_idx(file, labels)
    return parts


def _tables_of_parts(path: Path) -> dict[str, Path]:
    """The tables train, test, ... of a folder, by part; empty if subfolders have these names."""
    found: dict[str, Path] = {}
    if any(sub.is_dir() and sub.name.lower() in PARTS for sub in path.iterdir()):
        return found
    for file in sorted(path.iterdir()):
        part = PARTS.get(file.name.split(".")[0].lower())
        if part is None or not is_table(file):
            continue
        if part in found:
            got = f"{found[part].name} and {file.name}"
            raise input_error(str(path), f"one table of the {part} part", got, "Keep one.")
        found[part] = file
    return found


def _combine(path: Path, parts: dict[str, Data], validation: float, seed: int) -> Data | Splits:
    """Join the parts of a folder: a single one is a whole set; a missing validation part is held out of training."""
    if len(parts) == 1:
        return next(iter(parts.values()))
    if not {"train", "test"} <= parts.keys():
        got = ", ".join(parts)
        raise input_error(str(path), "a training and a test part", got, "Add the other, or put all classes together.")
    train = parts["train"]
    shapes = {part.image_shape for part in parts.values() if isinstance(part, ImageSet)}
    if len(shapes) > 1:
        got = " and ".join(" x ".join(map(str, shape)) for shape in shapes)
        raise input_error(str(path), "images of one shape in all parts", got, "Give --size.")
    test = in_classes(str(path), parts["test"], train.classes)
    if "validation" in parts:
        return Splits(train, in_classes(str(path), parts["validation"], train.classes), test)
    return hold_out(train, max(1, round(validation * len(train))) if validation else 0, test, seed)


def make_parts(
    data: Labeled | Splits,
    *,
    validation: float = 0.1,
    test: float = 0.2,
    seed: int = 0,
    fold: tuple[int, int] | None = None,
) -> Splits:
    """Training, validation and test parts: those that data already have, or new stratified ones.

    validation, test: the fractions of these parts. seed: of the split. fold: (k, n) takes the k-th of n parts, counted
    from 1, as the test part (cross-validation).
    """
    if fold is None:
        return data if isinstance(data, Splits) else three_way(data, validation, test, seed)
    if isinstance(data, Splits):
        raise input_error("--folds", "data in one piece", "data that have a test part of their own", "Drop --folds.")
    number, count = fold
    if len(data) < 2 * count:
        raise input_error(
            "--folds", f"at least {2 * count} examples for {count} folds", len(data), "Choose fewer folds."
        )
    places = [round(len(data) * place / count) for place in range(count + 1)]
    rest = stratified_order(data.labels, seed)
    test_rows = rest[places[number - 1] : places[number]]
    other = torch.cat([rest[: places[number - 1]], rest[places[number] :]])
    held = max(1, round(validation * len(other))) if validation else 0
    return hold_out(data.take(other), held, data.take(test_rows), seed)
