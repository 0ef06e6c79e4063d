"""Tables as people have them: delimiters, headers, encodings, JSON arrays, Parquet, cells without a value."""

import gzip
import json
import re
import sys
import warnings

import pytest

from torchcaps._core.errors import InputError
from torchcaps.data import Columns, cells_in, load_table, texts_in
from torchcaps.data.rows import find_delimiter

SPAM = 'v1,v2,,,\nham,See you at five,,,\nspam,WINNER! Call now,,,\nham,"Ok, lar",,,\n'


# Columns


def test_repeated_names_of_columns_that_are_not_used_are_ignored(tmp_path):
    (tmp_path / "spam.csv").write_text(SPAM)
    texts = load_table(tmp_path / "spam.csv", Columns("v2", ("v1",)))  # the columns of a well-known set
    assert texts.texts == ("See you at five", "WINNER! Call now", "Ok, lar")
    assert texts.classes == ("ham", "spam")
    _, row = next(cells_in(tmp_path / "spam.csv", Columns("v2")))
    assert list(row) == ["v1", "v2", "column (3)", "column (4)", "column (5)"]


@pytest.mark.parametrize("name", ["text", "label"])
def test_repeated_names_of_columns_that_are_used_are_refused(tmp_path, name):
    (tmp_path / "a.csv").write_text(f"text,label,{name}\na,b,c\n")
    with pytest.raises(InputError, match=f"expected columns with different names, got '{name}' more than once"):
        load_table(tmp_path / "a.csv")


def test_columns_of_tables_without_a_header_are_numbers(tmp_path):
    (tmp_path / "a.csv").write_text("ham,See you\nspam,Call now\n")
    with pytest.warns(UserWarning, match="no columns named 2, 1: its first line is read as a row"):
        texts = load_table(tmp_path / "a.csv", Columns("2", ("1",)))
    assert (texts.texts, texts.names) == (("See you", "Call now"), ("1", "2"))
    with pytest.warns(UserWarning, match="its first line is read as a row"):
        assert list(texts_in(tmp_path / "a.csv", Columns("2"))) == ["See you", "Call now"]
    (tmp_path / "a.csv").write_text("2,I will see you there at five\n")
    with pytest.warns(UserWarning, match="its first line is read as a row"):
        assert list(texts_in(tmp_path / "a.csv", Columns("2"))) == ["I will see you there at five"]
    (tmp_path / "b.csv").write_text("2,1\nnice,yes\n")  # names that are numbers stay names
    assert load_table(tmp_path / "b.csv", Columns("2", ("1",))).texts == ("nice",)


def test_a_first_line_that_looks_like_a_row_is_explained(tmp_path):
    (tmp_path / "a.csv").write_text("ham,I will see you there at five or so\nspam,Call now\n")
    with pytest.raises(InputError, match=r"got 'ham', 'I will see you there at five o\.\.\.'.*numbers of columns"):
        load_table(tmp_path / "a.csv")
    with pytest.raises(InputError, match="expected a column '3'"):
        load_table(tmp_path / "a.csv", Columns("3", ("1",)))


# Delimiters


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_delimiters_are_found_whatever_the_texts_hold(tmp_path, name, delimiter):
    texts = ("one; two, three", "four, five", "six")
    quoted = [f'"{text}"' for text in texts]
    rows = [delimiter.join(row) for row in (("id", "text", "label"), *(("1", text, "x") for text in quoted))]
    (tmp_path / name).write_text("\n".join(rows))
    assert load_table(tmp_path / name).texts == texts


def test_delimiters_are_found_in_tables_without_a_header_and_with_one_column():
    assert find_delimiter(["1;well, well\n", "0;so, so, and so\n"], ("2", "1"), ",") == ";"
    assert find_delimiter(["text\n", "well, well\n", "so\n"], ("text",), ",") != ","
    assert find_delimiter(["text,label\n", "well, well,x\n"], ("review", "stars"), ",") == ","
    long = ["text;label\n", *['"a, b";x\n'] * 48, '"begins here\n']
    assert find_delimiter(long, ("text", "label"), ",") == ";"


def test_a_given_delimiter_is_used(tmp_path):
    (tmp_path / "a.csv").write_text("text|label\na, b|x\nc;d|y\n")
    assert load_table(tmp_path / "a.csv", Columns(delimiter="|")).texts == ("a, b", "c;d")
    (tmp_path / "b.csv").write_text("text\tlabel\na, b\tx\n")
    assert load_table(tmp_path / "b.csv", Columns(delimiter="tab")).texts == ("a, b",)
    with pytest.raises(InputError, match="expected one character between cells, got '::'"):
        Columns(delimiter="::")


# JSON and Parquet


def test_json_arrays_and_lines_in_files_of_either_name(tmp_path):
    rows = [{"text": "a", "label": 1}, {"text": "b", "label": 2}]
    (tmp_path / "a.json").write_text(json.dumps(rows, indent=2))
    (tmp_path / "b.json").write_text("\n" + "\n".join(map(json.dumps, rows)))
    with gzip.open(tmp_path / "c.json.gz", "wt") as file:
        file.write(json.dumps(rows))
    for name in ("a.json", "b.json", "c.json.gz"):
        assert load_table(tmp_path / name).texts == ("a", "b")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1]", "expected a JSON array of objects, got a int as row 1"),
        ('[{"text": "a"}', "expected a JSON array of objects, got "),
        ('{\n"text": "a"}', "expected a JSON object in each line, or one array of objects, got line 1"),
        ('[{"text": "a", "label": ["x"]}]', r'got \["x"\] in row 1'),
    ],
)
def test_json_that_is_no_table_gets_one_sentence(tmp_path, content, message):
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(InputError, match=message):
        load_table(tmp_path / "a.json")


def test_json_arrays_have_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr("torchcaps.data.rows.LONGEST_ARRAY", 20)
    (tmp_path / "a.json").write_text('[{"text": "a long one", "label": 1}]')
    with pytest.raises(InputError, match="expected an array of less than 20 characters"):
        load_table(tmp_path / "a.json")


def test_parquet_needs_its_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match="expected the package pyarrow for Parquet, got it not installed"):
        load_table(tmp_path / "a.parquet")


def test_parquet_is_read_where_its_package_is_installed(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.table({"text": ["a", None, "c"], "label": [1, 2, 3], "more": [0, 0, 0]})
    parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.warns(UserWarning, match=r"left out 1 rows of a\.parquet .*the first in row 2"):
        texts = load_table(tmp_path / "a.parquet")
    assert (texts.texts, texts.classes) == (("a", "c"), ("1", "3"))
    with pytest.raises(InputError, match="expected a column 'review', got 'text', 'label', 'more'"):
        load_table(tmp_path / "a.parquet", Columns("review"))
    (tmp_path / "b.parquet").write_bytes(b"PAR1 and nothing")
    with pytest.raises(InputError, match="expected a table that can be read"):
        load_table(tmp_path / "b.parquet")


# Encodings

CHINESE = "text,label\n这家酒店的房间很干净。服务也不错,好\n太差了,坏\n"
WESTERN = "text,label\ncafé au lait\xa0£5 “très bon”,x\nGröße und Maße,y\n"


@pytest.mark.parametrize(
    ("content", "encoding", "said"),
    [
        (CHINESE, "utf-8", None),
        (CHINESE, "utf-8-sig", None),
        (CHINESE, "utf-16", "utf-16"),
        (CHINESE, "gbk", "gb18030"),
        (CHINESE, "gb18030", "gb18030"),
        (WESTERN, "cp1252", "cp1252"),
        ("text,label\nl'été,x\nb,y\n", "cp1252", "cp1252"),  # \xe9t is valid in GB 18030
    ],
)
def test_encodings_are_told_from_bytes_and_said(tmp_path, content, encoding, said):
    (tmp_path / "a.csv").write_bytes(content.encode(encoding))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        texts = load_table(tmp_path / "a.csv").texts
    assert texts[0] == content.splitlines()[1].split(",")[0]
    assert [f"is read as {said}" in str(each.message) for each in caught] == ([] if said is None else [True])
    (tmp_path / "a.txt").write_bytes(content.encode(encoding))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert list(texts_in(tmp_path / "a.txt")) == content.splitlines()


def test_a_given_encoding_is_used_without_a_warning(tmp_path):
    (tmp_path / "a.csv").write_bytes(CHINESE.encode("big5", "replace"))
    assert load_table(tmp_path / "a.csv", Columns(encoding="big5")).texts[1].startswith("太")


def test_bytes_of_no_known_encoding_are_refused(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"text,label\n\x81\x8d \xff,x\n")
    with pytest.raises(InputError, match=r"expected text in UTF-8, UTF-16, GB18030 or Windows-1252"):
        load_table(tmp_path / "a.csv")


# Cells


def test_nan_counts_as_missing_and_none_as_a_label(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\na,nan\nNaN,x\nnan,x\nb,\nc,None\nNone,y\n")
    with pytest.warns(UserWarning, match=r"left out 4 rows of a\.csv without text or label \(empty or nan\)"):
        texts = load_table(tmp_path / "a.csv")
    assert (texts.texts, texts.classes) == (("c", "None"), ("None", "y"))


@pytest.mark.parametrize(("cell", "sign"), [("x;y", ";"), ("x|y", "|"), ('"[""x"", ""y""]"', ",")])
def test_labels_that_look_like_lists_get_a_hint_at_the_separator(tmp_path, cell, sign):
    (tmp_path / "a.csv").write_text(f"text,label\na,{cell}\nb,{cell}\nc,y\n")
    with pytest.warns(
        UserWarning, match=rf"most labels of a\.csv look like lists, .* --separator '{re.escape(sign)}' reads"
    ):
        load_table(tmp_path / "a.csv", Columns(delimiter=","))
    texts = load_table(tmp_path / "a.csv", Columns(separator=sign, delimiter=","))
    assert texts.labels.tolist() == [[True, True], [True, True], [False, True]]
    assert texts.classes == ("x", "y")
