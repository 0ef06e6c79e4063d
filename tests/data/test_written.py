import json

import pytest
import torch

from torchcaps.data import Strings, read_names, row_finder, write_names

PARTS = {"train": ("b/1.png", 'a, "b" [', "zwölf\nnames]"), "validation": (), "test": ("[", "]", "{", "")}


@pytest.mark.parametrize("most", ["0", "1000000"])
def test_names_come_back(tmp_path, monkeypatch, most):
    monkeypatch.setenv("TORCHCAPS_DATA_BYTES", most)
    monkeypatch.setenv("TORCHCAPS_DATA", str(tmp_path))
    path = tmp_path / "split.json"
    write_names(path, PARTS)
    assert json.loads(path.read_text()) == {word: list(names) for word, names in PARTS.items()}
    found = read_names(path)
    assert isinstance(found["train"], Strings) == (most == "0")
    assert {word: tuple(names) for word, names in found.items()} == PARTS
    for indent in (None, 2):  # written by others
        path.write_text(json.dumps(PARTS, indent=indent))
        assert {word: tuple(names) for word, names in read_names(path).items()} == PARTS


@pytest.mark.parametrize("text", ["", "[]", '{"a": [3]}', '{\n"a": [\n3\n]\n}', '{\n"a": [\n"b",\n', '{"a": 3}'])
def test_files_of_another_kind(tmp_path, text):
    (tmp_path / "split.json").write_text(text)
    with pytest.raises(ValueError, match=r"."):
        read_names(tmp_path / "split.json")


def test_rows_are_found_by_name():
    find = row_finder(("c", "a", "b", "a"))
    assert find(("b", "c")).tolist() == [2, 0]
    assert find(("a",)).tolist() == [3]
    assert find(("x", "b", "y")).tolist() == [2]
    assert find(()).dtype == torch.long
