"""Labeled texts from tables: which columns hold them, and how labels are written."""

from __future__ import annotations

import json
import warnings
import zlib
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from torchcaps._core.errors import input_error
from torchcaps._core.files import lines_of
from torchcaps._core.progress import bar
from torchcaps.data.disk_store import Records, Strings
from torchcaps.data.encodings import encoding_of
from torchcaps.data.packed import open_text
from torchcaps.data.rows import Row, check_columns, is_json, is_table, place, read_rows
from torchcaps.data.texts import TextSet

TRUE, FALSE = ("1", "true", "yes", "t", "y", "1.0"), ("0", "false", "no", "f", "n", "", "0.0")
MISSING = ("", "nan", "NaN")  # cells without text or label; nan is how pandas writes them
SEPARATORS = (";", "|")


@dataclass(frozen=True)
class Columns:
    """The columns of a table.

    text: the column of texts. label: the column of labels; several columns are truth values, one for each class. Both
    are names, or numbers from 1 for tables without a header. separator: between the labels of a cell, if it may hold
    any number of them. encoding, delimiter: of the file; left out, they are told from its content.
    """

    text: str = "text"
    label: tuple[str, ...] = ("label",)
    separator: str | None = None
    encoding: str | None = None
    delimiter: str | None = None

    def __post_init__(self) -> None:
        if self.separator == "" or (self.separator is not None and len(self.label) > 1):
            got = "none" if self.separator == "" else "several columns of labels beside it"
            raise input_error("--separator", "what stands between the labels of one column", got, "Drop or correct it.")
        if len(set(self.label)) < len(self.label):
            raise input_error("--label", "different columns", ", ".join(self.label), "Name each once.")
        delimiter = {"tab": "\t", "\\t": "\t"}.get(str(self.delimiter), self.delimiter)
        if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
            remedy = "Give one like ';', or the word tab."
            raise input_error("--delimiter", "one character between cells", repr(delimiter), remedy)
        object.__setattr__(self, "delimiter", delimiter)

    def rows(self, path: Path, *, labels: bool = True) -> Iterator[tuple[int, Row]]:
        """Iterate over the rows of a table: line or row number, and cells. labels: their columns must be there too."""
        wanted = (self.text, *(self.label if labels else ()))
        return read_rows(path, wanted, self.encoding, self.delimiter)


def load_table(path: Path, columns: Columns | None = None, prefix: str = "") -> TextSet:
    """Load the texts and labels of a table; rows without a text or a label are left out with a warning.

    path: a table (see `is_table`). columns: where texts and labels are; left out, `Columns()`. prefix: of the names of
    the texts, before the row. Classes are sorted by name, or in the order of the columns. Large tables are stored on
    disk.
    """
    columns = columns or Columns()
    texts, names = Records(str(path), path.stat().st_size), Records(str(path))
    numbers: dict[str, int] = {}  # of classes, as they are met
    marks, places = array("q"), array("q")  # the classes of texts, and which texts they are
    left_out = array("q")
    seen: set[str] = set()
    for number, row in bar(columns.rows(path), "rows"):
        text = _text(path, number, row.get(columns.text))
        found = _labels(path, number, row, columns)
        seen |= row.keys()
        if text.strip() in MISSING or found is None:
            left_out.append(number)
            continue
        marks.extend(numbers.setdefault(label, len(numbers)) for label in found)
        places.extend(len(texts) for _ in found)
        texts.append(text.encode())
        names.append(f"{prefix}{number}".encode())
    if not len(texts):
        if left_out:
            check_columns(path, (columns.text, *columns.label), sorted(seen))
        got = "none" if not left_out else f"{len(left_out)} rows without one or the other"
        raise input_error(str(path), "rows with a text and a label", got, "Add some.")
    if left_out:
        first = f"the first in {place(path, left_out[0])}"
        what = f"left out {len(left_out):,} rows of {path.name} without text or label (empty or nan), {first}"
        warnings.warn(what, stacklevel=2)
    classes = columns.label if len(columns.label) > 1 else tuple(sorted(numbers))
    if not classes:
        raise input_error(str(path), "labels", "none in any row", "Choose another --label or --separator.")
    if columns.separator is None and len(columns.label) == 1:
        often = Counter(marks)
        _hint_at_lists(path, Counter({name: often[number] for name, number in numbers.items()}))
    order = {name: number for number, name in enumerate(classes)}
    labels = torch.tensor([order[name] for name in numbers], dtype=torch.long)[torch.tensor(marks)]
    if columns.separator is not None or len(columns.label) > 1:
        truth = torch.zeros(len(texts), len(classes), dtype=torch.bool)
        truth[torch.tensor(places), labels] = True
        labels = truth
    return TextSet(Strings(texts).held(), labels, classes, Strings(names).held())


def _text(path: Path, number: int, value: Any) -> str:
    """What stands in a cell: a string, or a number as JSON has it; nothing for null and what is no number."""
    if isinstance(value, list | dict):
        got = f"a {type(value).__name__} in {place(path, number)}"
        raise input_error(str(path), "a text or a number in each cell", got, "Correct it.")
    if value is None or value != value:
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).encode("utf-8", "replace").decode("utf-8")  # lone surrogates are not valid


def _labels(path: Path, number: int, row: dict[str, Any], columns: Columns) -> list[str] | None:
    """The labels of a row; None if it lacks a required label."""
    if len(columns.label) > 1:
        return [name for name in columns.label if _is_true(path, number, name, row.get(name))]
    value = row.get(columns.label[0])
    if columns.separator is not None:
        cells = value if isinstance(value, list) else _listed(_text(path, number, value), columns.separator)
        named = {_text(path, number, cell).strip() for cell in cells}
        return sorted(named - set(MISSING))
    if isinstance(value, list | dict):
        got = f"{json.dumps(value)[:60]} in {place(path, number)}"
        raise input_error(str(path), "one label in each row", got, "Give --separator where a row has several.")
    text = _text(path, number, value).strip()
    return None if text in MISSING else [text]


def _listed(text: str, separator: str) -> list[str]:
    """The labels of a cell, which may look like a list of Python or JSON: ["a", "b"]."""
    text = text.strip()
    if text[:1] + text[-1:] != "[]":
        return text.split(separator)
    return [cell.strip().strip("\"'") for cell in text[1:-1].split(separator)]


def _hint_at_lists(path: Path, counts: Counter[str]) -> None:
    """Warn if most labels look like lists of labels. counts: how many rows have each label."""
    signs = {
        **{sign: [name for name in counts if sign in name] for sign in SEPARATORS},
        ",": [name for name in counts if name.startswith("[") and name.endswith("]")],
    }
    for sign, names in signs.items():
        if 2 * sum(counts[name] for name in names) > counts.total():
            what = f"most labels of {path.name} look like lists, such as {names[0][:40]!r}"
            warnings.warn(f"{what}: --separator '{sign}' reads every part as a label", stacklevel=3)
            return


def _is_true(path: Path, number: int, name: str, value: Any) -> bool:
    text = "" if value is None else str(value).strip().lower()
    if text not in TRUE and text not in FALSE:
        got = f"{str(value)[:40]!r} in {place(path, number)}, column {name!r}"
        raise input_error(str(path), "0 or 1 in the column of each class", got, "Correct it, or give one --label.")
    return text in TRUE


def texts_in(path: Path, columns: Columns | None = None) -> Iterator[str]:
    """Iterate over the texts of a file without labels. path, columns: see `cells_in`."""
    return (text for text, _ in cells_in(path, columns))


def cells_in(path: Path, columns: Columns | None = None) -> Iterator[tuple[str, Row]]:
    """Iterate over the texts of a file without labels, each with all cells of its row.

    path: a table, or a text file, of which every line is a text. columns: the column of texts, encoding and delimiter;
    left out, `Columns()`.
    """
    columns = columns or Columns()
    if is_table(path):
        for count, (number, row) in enumerate(columns.rows(path, labels=False)):
            if not count and is_json(path):
                check_columns(path, (columns.text,), list(row))
            text = _text(path, number, row.get(columns.text))
            yield "" if text.strip() in MISSING else text, row
        return
    try:
        with open_text(path, encoding_of(path, columns.encoding), newline="") as lines:
            for line in lines_of(lines):
                yield line.rstrip("\r\n"), {}
    except (OSError, EOFError, UnicodeError, zlib.error) as error:
        raise input_error(str(path), f"text in {columns.encoding}", str(error), "Give --encoding.") from None
