"""Rows of tables in files: CSV with any delimiter, JSON lines or an array, Parquet."""

from __future__ import annotations

import csv
import json
import warnings
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, repeat
from pathlib import Path
from typing import IO, Any

from torchcaps._core.errors import input_error
from torchcaps._core.files import lines_of, open_regular
from torchcaps.data.encodings import encoding_of
from torchcaps.data.packed import open_text

Row = dict[str, Any]
TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet")
DELIMITERS = (",", ";", "\t")
LONGEST_CELL = 100_000_000  # characters
LOOKED_AT = 50  # lines that tell the delimiter
LONGEST_ARRAY = 1 << 28  # characters of a JSON array, which is read whole
PROSE, MOST = 4, 30  # words of a cell, above which it is no name of a column; characters that messages show of it


def is_table(path: Path) -> bool:
    """Whether the name of path is that of a table: .csv, .tsv, .json, .jsonl, .ndjson, perhaps .gz; or .parquet."""
    return path.name.lower().removesuffix(".gz").endswith(TABLES)


def is_json(path: Path) -> bool:
    """Whether the name of path is that of a table in JSON."""
    return "json" in path.name.lower()[-12:]


def place(path: Path, number: int) -> str:
    """How messages name the place of a row: by its line, or in Parquet and JSON arrays by its number."""
    name = path.name.lower().removesuffix(".gz")
    return f"{'row' if name.endswith(('.json', '.parquet')) else 'line'} {number}"


def read_rows(
    path: Path, wanted: Sequence[str], encoding: str | None = None, delimiter: str | None = None
) -> Iterator[tuple[int, Row]]:
    """Iterate over the rows of a table: line or row number, and cells by the names of the columns.

    wanted: the columns that will be used. If they are numbers and no columns have these names, the table has no header
    and columns are named by number, from 1. encoding, delimiter: of the file; left out, they are found.
    """
    try:
        if path.name.lower().endswith(".parquet"):
            yield from _parquet_rows(path, wanted)
            return
        with open_text(path, encoding_of(path, encoding), newline="") as lines:
            yield from _json_rows(path, lines) if is_json(path) else _csv_rows(path, lines, wanted, delimiter)
    except UnicodeDecodeError as error:
        got = f"bytes that are none (at {error.start:,})"
        remedy = "Drop --encoding, or give the right one."
        raise input_error(str(path), f"text in {encoding}", got, remedy) from None
    except LookupError:
        raise input_error("--encoding", "an encoding like utf-8 or latin-1", repr(encoding), "Correct it.") from None
    except (OSError, EOFError, UnicodeError, csv.Error, zlib.error) as error:
        raise input_error(str(path), "a table that can be read", error, "Check the file.") from None


def _csv_rows(path: Path, lines: IO[str], wanted: Sequence[str], given: str | None) -> Iterator[tuple[int, Row]]:
    csv.field_size_limit(LONGEST_CELL)
    plain = (line.replace("\0", "") for line in lines_of(lines))
    first = list(islice(plain, LOOKED_AT))
    delimiter = given or find_delimiter(first, wanted, "\t" if ".tsv" in path.name.lower()[-8:] else ",")
    reader = _reader(chain(first, plain), delimiter)
    header = [cell.strip() for cell in next(reader, [])]
    if not header:
        raise input_error(str(path), "a first line with the names of columns", "an empty file", "Add one.")
    begin, names, rows = reader.line_num + 1, header, iter(reader)
    if _by_number(header, wanted):
        what = f"{path.name} has no columns named {', '.join(wanted)}: its first line is read as a row, not as names"
        warnings.warn(what, stacklevel=2)
        begin, names, rows = 1, [str(number) for number in range(1, len(header) + 1)], chain([header], reader)
    else:
        check_columns(path, wanted, header)
        names = _distinct(header)
    for cells in rows:
        if cells:
            if len(cells) != len(names):
                got = f"{len(cells)} cells in line {begin}"
                remedy = "Put texts that hold separators or line breaks in quotes, or give --delimiter."
                raise input_error(str(path), f"{len(names)} cells as in the first line", got, remedy)
            yield begin, dict(zip(names, map(_unquoted, cells) if delimiter == "\t" else cells, strict=True))
        begin = reader.line_num + 1


def _reader(lines: Iterable[str], delimiter: str) -> Any:
    # With tabs a quote is an ordinary character, unless a cell begins and ends with one.
    return csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL)


def _unquoted(cell: str) -> str:
    return cell[1:-1].replace('""', '"') if len(cell) > 1 and cell[0] == cell[-1] == '"' else cell


def find_delimiter(lines: Sequence[str], wanted: Sequence[str], usual: str) -> str:
    """The delimiter of a table with these first lines.

    It is the one that makes a header with the columns that are wanted and, if there are several, as many cells in every
    row; `usual` otherwise.
    """

    def rank(delimiter: str) -> tuple[bool, ...]:
        rows = [row for row in _reader(lines, delimiter) if row] or [[]]
        if len(lines) == LOOKED_AT:
            rows = rows[:-1] or rows  # the last may be cut off
        header = [cell.strip() for cell in rows[0]]
        named, several = set(wanted) <= set(header) or _by_number(header, wanted), len(header) > 1
        even = all(len(row) == len(header) for row in rows)
        return named, even and several, several and not named, even, delimiter == usual

    return max(DELIMITERS, key=rank)


def _by_number(header: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether the columns that are wanted are numbers of columns, not names."""
    numbers = [int(name) for name in wanted if name.isdecimal() and name.isascii()]
    if len(numbers) < len(wanted) or not 1 <= min(numbers) <= max(numbers) <= len(header):
        return False
    return not set(wanted) <= set(header) or any(len(cell.split()) > PROSE for cell in header)


def _distinct(header: Sequence[str]) -> list[str]:
    """Names of columns that are all different, where those of columns that are not wanted may be empty or repeated."""
    names: list[str] = []
    for number, name in enumerate(header, 1):
        names.append(name if name and name not in names else f"{name or 'column'} ({number})")
    return names


def check_columns(path: Path, wanted: Sequence[str], found: Sequence[str]) -> None:
    """Raise an `InputError` if a column that is wanted is missing or there twice. wanted: that of texts comes first."""
    for option, name in zip(chain(["--text"], repeat("--label")), wanted, strict=False):
        if name in found and found.count(name) == 1:
            continue
        if name in found:
            raise input_error(str(path), "columns with different names", f"{name!r} more than once", "Rename one.")
        remedy = f"Name one of these with {option} (of train), or rename it."
        if any(len(cell.split()) > PROSE or cell.isdecimal() for cell in found):
            remedy = f"If the first line is a row, not a header, give numbers of columns from 1 on, like {option} 2."
        listed = ", ".join(repr(cell if len(cell) <= MOST else cell[:MOST] + "...") for cell in found)
        raise input_error(str(path), f"a column {name!r}", listed, remedy)


def _json_rows(path: Path, lines: IO[str]) -> Iterator[tuple[int, Row]]:
    numbered: Iterator[tuple[int, str]] = enumerate(lines_of(lines), 1)
    expected = "a JSON object in each line"
    if path.name.lower().removesuffix(".gz").endswith(".json"):
        expected += ", or one array of objects"
        number, begun = next(((number, line) for number, line in numbered if line.strip()), (1, ""))
        if begun.lstrip().startswith("["):
            yield from _array_rows(path, begun + lines.read(LONGEST_ARRAY))
            return
        numbered = chain([(number, begun)], numbered)
    for number, line in numbered:
        if line.strip():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise input_error(str(path), expected, f"line {number} ({error})", "Correct it.") from None
            if not isinstance(row, dict):
                raise input_error(str(path), expected, f"a {type(row).__name__} in line {number}", "Correct it.")
            yield number, row


def _array_rows(path: Path, text: str) -> Iterator[tuple[int, Row]]:
    if len(text) >= LONGEST_ARRAY:
        remedy = "Write an object in each line (.jsonl)."
        raise input_error(str(path), f"an array of less than {LONGEST_ARRAY:,} characters", "a longer one", remedy)
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise input_error(str(path), "a JSON array of objects", error, "Correct it.") from None
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            got = f"a {type(row).__name__} as row {number}"
            raise input_error(str(path), "a JSON array of objects", got, "Correct it.")
        yield number, row


def _parquet_rows(path: Path, wanted: Sequence[str]) -> Iterator[tuple[int, Row]]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        remedy = "Run: pip install pyarrow, or save the table as CSV."
        raise input_error(str(path), "the package pyarrow for Parquet", "it not installed", remedy) from None
    try:
        with open_regular(path) as stream:
            file = parquet.ParquetFile(stream)
            check_columns(path, wanted, file.schema_arrow.names)
            rows = chain.from_iterable(batch.to_pylist() for batch in file.iter_batches(batch_size=1000))
            yield from enumerate(rows, 1)
    except pyarrow.ArrowException as error:
        raise input_error(str(path), "a table that can be read", error, "Check the file.") from None
