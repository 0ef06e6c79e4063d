"""Texts from tables: CSV, TSV or JSON lines, with named columns."""

from __future__ import annotations

import csv
import json
import warnings
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch

from torchcaps._core.errors import input_error
from torchcaps._core.files import lines_of
from torchcaps._core.progress import bar
from torchcaps.data.disk_store import Records, Strings
from torchcaps.data.packed import open_text
from torchcaps.data.texts import TextSet

TABLES = (".csv", ".tsv", ".jsonl", ".ndjson")
TRUE, FALSE = ("1", "true", "yes", "t", "y", "1.0"), ("0", "false", "no", "f", "n", "", "0.0")
LONGEST_CELL = 100_000_000  # characters


@dataclass(frozen=True)
class Columns:
    """The columns of a table.

    text: the column of texts. label: the column of labels; several columns are truth values, one for each class.
    separator: between the labels of a cell, if it may hold any number of them. encoding: of the file.
    """

    text: str = "text"
    label: tuple[str, ...] = ("label",)
    separator: str | None = None
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        if self.separator == "" or (self.separator is not None and len(self.label) > 1):
            got = "none" if self.separator == "" else "several columns of labels beside it"
            raise input_error("--separator", "what stands between the labels of one column", got, "Drop or correct it.")
        if len(set(self.label)) < len(self.label):
            raise input_error("--label", "different columns", ", ".join(self.label), "Name each once.")


def is_table(path: Path) -> bool:
    """Whether the name of path is that of a table: .csv, .tsv, .jsonl or .ndjson, perhaps with .gz."""
    return path.name.lower().removesuffix(".gz").endswith(TABLES)


def read_rows(path: Path, encoding: str = "utf-8") -> Iterator[tuple[int, dict[str, Any]]]:
    """Iterate over the rows of a table: line number, and cells by the names of the columns."""
    try:
        with _open(path, encoding) as lines:
            yield from (_json_rows if is_json(path) else _csv_rows)(path, lines, ".tsv" in path.name.lower()[-8:])
    except UnicodeDecodeError as error:
        got = f"bytes that are none (at {error.start:,})"
        remedy = "Give --encoding latin-1, or whatever it is."
        raise input_error(str(path), f"text in {encoding}", got, remedy) from None
    except LookupError:
        raise input_error("--encoding", "an encoding like utf-8 or latin-1", repr(encoding), "Correct it.") from None
    except (OSError, EOFError, UnicodeError, csv.Error, zlib.error) as error:
        raise input_error(str(path), "a table that can be read", error, "Check the file.") from None


def _open(path: Path, encoding: str) -> IO[str]:
    encoding = "utf-8-sig" if encoding.lower().replace("_", "-") in ("utf-8", "utf8") else encoding
    return open_text(path, encoding, newline="")


def _csv_rows(path: Path, lines: IO[str], tabs: bool) -> Iterator[tuple[int, dict[str, Any]]]:
    csv.field_size_limit(LONGEST_CELL)
    plain = (line.replace("\0", "") for line in lines_of(lines))
    # In TSV files a quote is an ordinary character, unless a cell begins and ends with one.
    reader = csv.reader(plain, delimiter="\t", quoting=csv.QUOTE_NONE) if tabs else csv.reader(plain)
    header = [name.strip() for name in next(reader, [])]
    if not header:
        raise input_error(str(path), "a first line with the names of columns", "an empty file", "Add one.")
    twice = [name for name in header if header.count(name) > 1]
    if twice:
        raise input_error(str(path), "columns with different names", f"{twice[0]!r} more than once", "Rename one.")
    begin = reader.line_num + 1
    for cells in reader:
        if cells:
            if len(cells) != len(header):
                got = f"{len(cells)} cells in line {begin}"
                remedy = "Put texts that hold separators or line breaks in quotes."
                raise input_error(str(path), f"{len(header)} cells as in the first line", got, remedy)
            yield begin, dict(zip(header, map(_unquoted, cells) if tabs else cells, strict=True))
        begin = reader.line_num + 1


def _unquoted(cell: str) -> str:
    return cell[1:-1].replace('""', '"') if len(cell) > 1 and cell[0] == cell[-1] == '"' else cell


def _json_rows(path: Path, lines: IO[str], tabs: bool) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(lines_of(lines), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            got = f"line {number} ({error})"
            raise input_error(str(path), "a JSON object in each line", got, "Correct it.") from None
        if not isinstance(row, dict):
            got = f"a {type(row).__name__} in line {number}"
            raise input_error(str(path), "a JSON object in each line", got, "Correct it.")
        yield number, row


def load_table(path: Path, columns: Columns | None = None, prefix: str = "") -> TextSet:
    """Load the texts and labels of a table; rows without a text or a label are left out with a warning.

    path: a .csv, .tsv, .jsonl or .ndjson file, perhaps gzipped. columns: where texts and labels are; left out,
    `Columns()`. prefix: of the names of the texts, before the row. Classes are sorted by name, or in the order of the
    columns. Large tables are stored on disk.
    """
    columns = columns or Columns()
    texts, names = Records(str(path), path.stat().st_size), Records(str(path))
    numbers: dict[str, int] = {}  # of classes, as they are met
    marks, places = array("q"), array("q")  # the classes of texts, and which texts they are
    left_out = array("q")
    seen: set[str] = set()
    for number, row in bar(read_rows(path, columns.encoding), "rows"):
        if not len(texts) and not left_out and not is_json(path):
            _check_columns(path, columns, list(row))
        text = _text(path, number, row.get(columns.text))
        found = _labels(path, number, row, columns)
        seen |= row.keys()
        if not text.strip() or found is None:
            left_out.append(number)
            continue
        marks.extend(numbers.setdefault(label, len(numbers)) for label in found)
        places.extend(len(texts) for _ in found)
        texts.append(text.encode())
        names.append(f"{prefix}{number}".encode())
    if not len(texts):
        if left_out:
            _check_columns(path, columns, sorted(seen))
        got = "none" if not left_out else f"{len(left_out)} rows without one or the other"
        raise input_error(str(path), "rows with a text and a label", got, "Add some.")
    if left_out:
        what = f"left out {len(left_out):,} rows of {path.name} without text or label, the first in line {left_out[0]}"
        warnings.warn(what, stacklevel=2)
    classes = columns.label if len(columns.label) > 1 else tuple(sorted(numbers))
    if not classes:
        raise input_error(str(path), "labels", "none in any row", "Choose another --label or --separator.")
    order = {name: place for place, name in enumerate(classes)}
    labels = torch.tensor([order[name] for name in numbers], dtype=torch.long)[torch.tensor(marks)]
    if columns.separator is not None or len(columns.label) > 1:
        truth = torch.zeros(len(texts), len(classes), dtype=torch.bool)
        truth[torch.tensor(places), labels] = True
        labels = truth
    return TextSet(Strings(texts).held(), labels, classes, Strings(names).held())


def _text(path: Path, number: int, value: Any) -> str:
    """What stands in a cell: a string, or a number as JSON has it; nothing for null and what is no number."""
    if isinstance(value, list | dict):
        got = f"a {type(value).__name__} in line {number}"
        raise input_error(str(path), "a text or a number in each cell", got, "Correct it.")
    if value is None or value != value:
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).encode("utf-8", "replace").decode("utf-8")  # lone surrogates are not valid


def is_json(path: Path) -> bool:
    """Whether the name of path is that of a table of JSON lines."""
    return "json" in path.name.lower()[-12:]


def _check_columns(path: Path, columns: Columns, found: list[str]) -> None:
    for option, names in (("--text", [columns.text]), ("--label", columns.label)):
        missing = [name for name in names if name not in found]
        if missing:
            got = ", ".join(map(repr, found))
            raise input_error(
                str(path), f"a column {missing[0]!r}", got, f"Name one of these with {option} (of train), or rename it."
            )


def _labels(path: Path, number: int, row: dict[str, Any], columns: Columns) -> list[str] | None:
    """The labels of a row; None if it lacks a required label."""
    if len(columns.label) > 1:
        return [name for name in columns.label if _is_true(path, number, name, row.get(name))]
    value = row.get(columns.label[0])
    if columns.separator is not None:
        cells = value if isinstance(value, list) else _text(path, number, value).split(columns.separator)
        named = {_text(path, number, cell).strip() for cell in cells}
        return sorted(named - {""})
    if isinstance(value, list | dict):
        got = f"{json.dumps(value)[:60]} in line {number}"
        raise input_error(str(path), "one label in each row", got, "Give --separator where a row has several.")
    text = _text(path, number, value).strip()
    return [text] if text else None


def _is_true(path: Path, number: int, name: str, value: Any) -> bool:
    text = "" if value is None else str(value).strip().lower()
    if text not in TRUE and text not in FALSE:
        got = f"{str(value)[:40]!r} in line {number}, column {name!r}"
        raise input_error(str(path), "0 or 1 in the column of each class", got, "Correct it, or give one --label.")
    return text in TRUE


def texts_in(path: Path, columns: Columns | None = None) -> Iterator[str]:
    """Iterate over the texts of a file without labels.

    path: a table, or a text file, of which every line is a text. columns: the column of texts and the encoding; left
    out, `Columns()`.
    """
    columns = columns or Columns()
    if is_table(path):
        for count, (_, row) in enumerate(read_rows(path, columns.encoding), 1):
            if count == 1:
                _check_columns(path, Columns(columns.text, ()), list(row))
            yield _text(path, count, row.get(columns.text))
        return
    try:
        with _open(path, columns.encoding) as lines:
            yield from (line.rstrip("\r\n") for line in lines_of(lines))
    except (OSError, EOFError, UnicodeError, zlib.error) as error:
        raise input_error(str(path), f"text in {columns.encoding}", str(error), "Save it in UTF-8.") from None
