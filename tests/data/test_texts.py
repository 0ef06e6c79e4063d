"""Texts: tables, words, word vectors, and the public files of named sets."""

import dataclasses
import gzip
import io
import json
import tarfile
import warnings

import pytest
import torch

from torchcaps._core.errors import InputError
from torchcaps.data import Columns, TextSet, Vocabulary, load_dataset, load_table, make_parts, read_vectors, texts_in
from torchcaps.data.base import in_classes, split, stratified_order
from torchcaps.data.texts import truth_values

# Words


def test_words_are_cut_as_word_vectors_have_them():
    text = "Don't you LIKE it's naïve café, 3-gram…  ok!"
    vocabulary = Vocabulary.build([text])
    words = [word for word, _, _ in vocabulary.cut(text)]
    expected = ["Do", "n't", "you", "LIKE", "it", "'s", "naïve", "café", ",", "3", "-", "gram", "…", "ok", "!"]
    assert words == expected
    assert all(text[start:end] == word for word, start, end in vocabulary.cut(text))
    assert set(vocabulary.words[2:]) == {word.lower() for word in expected}


def test_the_most_frequent_words_come_first_and_unknown_ones_are_one():
    vocabulary = Vocabulary.build(["b b b a a c", "a b"], more=["z", "a", "y"])
    assert vocabulary.words == ["<pad>", "<unk>", "b", "a", "c", "z", "y"]
    assert [row.tolist() for row in vocabulary.encode(["a NEVER b", ""])] == [[3, 1, 2], []]
    assert Vocabulary.build(["b b b a a c"], size=4).words == ["<pad>", "<unk>", "b", "a"]


def test_a_vocabulary_can_be_saved_and_read_back(tmp_path):
    vocabulary = Vocabulary.build(["Ein schöner Tag isn't over"])
    vocabulary.save(tmp_path / "words.json")
    again = Vocabulary.load(tmp_path / "words.json")
    assert again.words == vocabulary.words
    assert again.cut("schöner isn't") == vocabulary.cut("schöner isn't")
    (tmp_path / "words.json").write_text("{}")
    with pytest.raises(InputError, match="expected the vocabulary of a run"):
        Vocabulary.load(tmp_path / "words.json")


def test_batches_are_padded_and_long_texts_are_cut_with_a_warning():
    texts = TextSet(("a b c d", "b"), torch.tensor([0, 1]), ("x", "y"))
    with pytest.raises(InputError, match="expected a vocabulary"):
        texts.batch(torch.tensor([0]))
    readable = dataclasses.replace(texts, vocabulary=Vocabulary.build(texts.texts), max_length=3)
    with pytest.warns(UserWarning, match="1 of 2 texts are longer than 3 words"):
        batch = readable.batch(torch.tensor([1, 0]))
    assert batch.inputs.tolist() == [[2, 0, 0], [3, 2, 4]]
    assert batch.labels.tolist() == [1, 0]
    assert readable.lengths.tolist() == [3, 1]


def test_word_vectors_in_the_format_of_glove(tmp_path):
    lines = "the 1 2\n, 3 4\ncafé -1 0.5\n"
    (tmp_path / "v.txt").write_text(lines, encoding="utf-8")
    with gzip.open(tmp_path / "v.txt.gz", "wt", encoding="utf-8") as file:
        file.write("3 2\n" + lines)  # as word2vec writes it
    for name in ("v.txt", "v.txt.gz"):
        vectors = read_vectors(str(tmp_path / name))
        assert vectors.words == ("the", ",", "café")
        table = vectors.table(["<pad>", "<unk>", "café", "the"])
        assert table[[0, 2, 3]].tolist() == [[0, 0], [-1, 0.5], [1, 2]]
        assert table[1].any()


@pytest.mark.parametrize("content", ["", "the 1 2\na 1\n", "the one two\n"])
def test_files_that_are_no_word_vectors(tmp_path, content):
    (tmp_path / "bad.txt").write_text(content)
    with pytest.raises(InputError, match=r"bad\.txt: expected"):
        read_vectors(str(tmp_path / "bad.txt"))
    with pytest.raises(InputError, match="which is not there"):
        read_vectors(str(tmp_path / "none.txt"))


# Tables


def test_tables_with_quotes_breaks_and_separators(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('﻿label,review,more\n"good, really","He said ""yes"",\nand left",1\nbad,short,2\n', encoding="utf-8")
    texts = load_table(path, Columns("review"))
    assert texts.texts == ('He said "yes",\nand left', "short")
    assert texts.classes == ("bad", "good, really")
    assert texts.labels.tolist() == [1, 0]
    assert texts.names == ("2", "4")


def test_tables_with_tabs_and_json_lines(tmp_path):
    (tmp_path / "a.tsv").write_text("text\tlabel\na, b\tx\nc\ty\n")
    assert load_table(tmp_path / "a.tsv").texts == ("a, b", "c")
    (tmp_path / "a.jsonl").write_text('{"text": "a\\nb", "label": 3}\n\n{"label": 1, "text": "c"}\n')
    texts = load_table(tmp_path / "a.jsonl")
    assert (texts.texts, texts.classes, texts.labels.tolist()) == (("a\nb", "c"), ("1", "3"), [1, 0])
    with gzip.open(tmp_path / "b.csv.gz", "wt") as file:
        file.write("text,label\na,x\nb,y\n")
    assert len(load_table(tmp_path / "b.csv.gz")) == 2


def test_any_number_of_labels_in_a_cell_or_a_column_each(tmp_path):
    (tmp_path / "a.csv").write_text("text,topics\na,x; y\nb,\nc,y\n")
    texts = load_table(tmp_path / "a.csv", Columns(label=("topics",), separator=";"))
    assert texts.many
    assert texts.labels.tolist() == [[True, True], [False, False], [False, True]]
    (tmp_path / "b.csv").write_text("text,x,y\na,1,yes\nb,0,\nc,false,TRUE\n")
    columns = load_table(tmp_path / "b.csv", Columns(label=("x", "y")))
    assert torch.equal(columns.labels, texts.labels)
    (tmp_path / "c.jsonl").write_text(
        '{"text": "a", "l": ["x", "y"]}\n{"text": "b", "l": []}\n{"text": "c", "l": ["y"]}'
    )
    assert torch.equal(load_table(tmp_path / "c.jsonl", Columns(label=("l",), separator=",")).labels, texts.labels)


def test_quotes_in_tables_with_tabs_are_signs_like_others(tmp_path):
    (tmp_path / "a.tsv").write_text('label\ttext\nx\t"He said\ny\tWell" he left\nx\t"a ""b"" c"\n')
    assert load_table(tmp_path / "a.tsv").texts == ('"He said', 'Well" he left', 'a "b" c')


def test_numbers_and_gaps_in_json_lines(tmp_path):
    rows = ['{"text": "a"}', '{"text": "b", "label": 1.0}', '{"text": 7, "label": 1}', '{"text": "c", "label": NaN}']
    (tmp_path / "a.jsonl").write_text("\n".join([*rows, '{"text": "half \\ud83d", "label": true}']))
    with pytest.warns(UserWarning, match="left out 2 rows"):
        texts = load_table(tmp_path / "a.jsonl")
    assert (texts.texts, texts.classes) == (("b", "7", "half ?"), ("1", "True"))


def test_vectors_with_spaces_at_the_end_and_in_words(tmp_path):
    (tmp_path / "v.txt").write_text("the 1 2 \n. . . 3 4 \n")
    assert read_vectors(str(tmp_path / "v.txt")).words == ("the", ". . .")
    (tmp_path / "w.txt").write_text("the 1 nan\n")
    with pytest.raises(InputError, match="finite numbers in line 1"):
        read_vectors(str(tmp_path / "w.txt"))


def test_public_files_with_other_content_are_named(tmp_path):
    for name, content in {
        "trec/train_5500.label": "ODD:count How many ?\n",
        "trec/TREC_10.label": "LOC:city Where ?\n",
        "ag-news/train.csv": "class,title,description\n",
        "ag-news/test.csv": '"4","Chip","fast"\n',
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    for name in ("trec", "ag-news"):
        with pytest.raises(InputError, match="expected labels among"):
            load_dataset(name, tmp_path)


def test_rows_without_text_or_label_are_counted(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\na,x\n  ,x\nb,\nc,y\n")
    with pytest.warns(
        UserWarning, match=r"left out 2 rows of a.csv without text or label \(empty or nan\), the first in line 3"
    ):
        assert load_table(tmp_path / "a.csv").texts == ("a", "c")


@pytest.mark.parametrize(
    ("name", "content", "columns", "message"),
    [
        (
            "a.csv",
            b"text,label\n\xe4,x\n",
            {"encoding": "utf-8"},
            r"text in utf-8, got bytes that are none .* Drop encoding, or give the right one",
        ),
        ("a.csv", b"text,label\na,x\n", {"text": "review"}, "expected a column 'review', got 'text', 'label'"),
        ("a.csv", b"text,label\na,x\n", {"label": ("stars",)}, "Name one of these with label"),
        ("a.csv", b"text,label\na,b,c\n", {}, "expected 2 cells as in the first line, got 3 cells in line 2"),
        ("a.csv", b"", {}, "expected a first line with the names of columns"),
        ("a.csv", b"text,label\n", {}, "expected rows with a text and a label, got none"),
        ("a.csv", b"text,label\n,\n", {}, "got 1 rows without one or the other"),
        ("a.csv", b"text,label\na,x\n", {"encoding": "klingon"}, "expected an encoding like utf-8"),
        ("a.csv", b"text,x,y\na,1,perhaps\n", {"label": ("x", "y")}, "got 'perhaps' in line 2, column 'y'"),
        ("a.jsonl", b"{}\n", {}, "expected a column 'text'"),
        (
            "a.jsonl",
            b'{"text": ["a"], "label": 1}',
            {},
            "a text or a number in each cell, got a list in line 1",
        ),
        ("a.csv", b"text,label,text\na,b,c\n", {}, "expected columns with different names, got 'text' more than once"),
        ("a.csv", b"text,label\na,x\n", {"encoding": "utf-16"}, "expected a table that can be read"),
        ("a.jsonl", b"[" * 100_000, {}, "expected a JSON object in each line, got line 1"),
        ("a.jsonl", b"[1]\n", {}, "expected a JSON object in each line, got a list in line 1"),
        ("a.jsonl", b'{"text": \n', {}, "expected a JSON object in each line, got line 1"),
        ("a.jsonl", b'{"text": "a", "label": ["x"]}', {}, "expected one label in each row"),
        ("a.csv.gz", b"text,label\na,x\n", {}, "expected a table that can be read"),
    ],
)
def test_tables_that_cannot_be_used_get_one_sentence(tmp_path, name, content, columns, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        load_table(tmp_path / name, Columns(**columns))
    assert len(str(caught.value).splitlines()) == 1


def test_other_encodings_and_very_long_lines(tmp_path):
    (tmp_path / "a.csv").write_bytes("text,label\nschön,x\nb,y\n".encode("latin-1"))
    assert load_table(tmp_path / "a.csv", Columns(encoding="latin-1")).texts[0] == "schön"
    long = "word " * 2_000_000
    (tmp_path / "b.csv").write_text(f"text,label\n{long},x\nb,y\n")
    texts = load_table(tmp_path / "b.csv")
    assert len(texts.texts[0]) == len(long)
    readable = dataclasses.replace(texts, vocabulary=Vocabulary.build(texts.texts, longest=50), max_length=50)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert readable.batch(torch.arange(2)).inputs.shape == (2, 50)


def test_texts_without_labels(tmp_path):
    (tmp_path / "a.csv").write_text("id,text\n1,a b\n2,\n")
    assert list(texts_in(tmp_path / "a.csv")) == ["a b", ""]
    (tmp_path / "a.txt").write_text("one\n\ntwo three\r\n")
    assert list(texts_in(tmp_path / "a.txt")) == ["one", "", "two three"]


# Sets


def label_sets(*labels):
    classes = ("x", "y", "z")
    texts = tuple(f"text {number}" for number in range(len(labels)))
    return TextSet(texts, truth_values([each.split() for each in labels], classes), classes)


def test_truth_values_are_counted_split_and_put_into_other_classes():
    texts = label_sets(*["x y", "y", "", "z"] * 10)
    assert texts.counts() == {"x": 10, "y": 20, "z": 10}
    for part in split(texts, [20, 20]):
        assert part.counts() == {"x": 5, "y": 10, "z": 5}
    other = in_classes("other", texts.take(torch.arange(3)), ("y", "w", "x"))
    assert other.labels.tolist() == [[True, False, True], [True, False, False], [False, False, False]]
    with pytest.raises(InputError, match="expected classes among y, w, x, got z"):
        in_classes("other", texts, ("y", "w", "x"))


def test_folds_are_disjoint_stratified_and_together_everything():
    texts = TextSet(tuple(map(str, range(53))), torch.arange(53) % 2, ("x", "y"))
    seen = []
    for number in range(1, 6):
        parts = make_parts(texts, validation=0.1, seed=3, fold=(number, 5))
        train, validation, test = (set(part.names) for part in parts[:3])
        assert train | validation | test == set(texts.names)
        assert not train & validation
        assert not (train | validation) & test
        counts = parts.test.counts()
        assert abs(counts["x"] - counts["y"]) <= 1
        seen += parts.test.names
    assert sorted(seen) == sorted(texts.names)
    with pytest.raises(InputError, match="expected data in one piece"):
        make_parts(parts, fold=(1, 5))
    with pytest.raises(InputError, match="at least 106 examples for 53 folds"):
        make_parts(texts, fold=(1, 53))
    assert stratified_order(texts.labels, 3).tolist() == stratified_order(texts.labels, 3).tolist()


def test_sets_that_do_not_fit_together_are_refused():
    for labels in (torch.zeros(3, dtype=torch.long), torch.zeros(2), torch.zeros(2, 1, dtype=torch.bool)):
        with pytest.raises(InputError, match="Give one for each text"):
            TextSet(("a", "b"), labels, ("x", "y"))
    with pytest.raises(InputError, match="labels from 0 to 1, got 0 to 2"):
        TextSet(("a", "b"), torch.tensor([0, 2]), ("x", "y"))


# Public files


def test_files_of_two_classes_end_lines_with_line_feeds_only(tmp_path):
    (tmp_path / "mr").mkdir()
    (tmp_path / "mr" / "rt-polarity.neg").write_bytes(b"too bad\x85 really\nfianc\xe9\n\n")
    (tmp_path / "mr" / "rt-polarity.pos").write_bytes(b"fine\n")
    texts = load_dataset("mr", tmp_path)
    assert texts.texts == ("too bad\x85 really", "fiancé", "fine")
    assert texts.counts() == {"negative": 2, "positive": 1}
    with pytest.raises(InputError, match=r"subj: expected subj.objective, subj.subjective in .*subj, got not all"):
        load_dataset("subj", tmp_path)


def test_sst_trec_snips_and_ag_news_in_their_public_formats(tmp_path):
    for name, content in {
        "text/sst/stsa.binary.train": "1 good one\n0 bad one\n",
        "text/sst/stsa.binary.dev": "1 good\n",
        "text/sst/stsa.binary.test": "0 bad\n",
        "trec/train_5500.label": "NUM:count How many ?\nHUM:ind Who is it ?\n" * 10,
        "trec/TREC_10.label": "LOC:city Where ?\n",
        "snips/train/seq.in": "play a song\nwill it rain\n",
        "snips/train/label": "PlayMusic\nGetWeather\n",
        "snips/valid/seq.in": "rain ?\n",
        "snips/valid/label": "GetWeather\n",
        "snips/test/seq.in": "sing\n",
        "snips/test/label": "PlayMusic\n",
        "ag-news/train.csv": '"3","Oil up","a \\ b ""c"""\n"1","War","x"\n' * 20,
        "ag-news/test.csv": '"4","Chip","fast"\n',
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    sst = load_dataset("sst2", tmp_path)
    assert (sst.train.texts, sst.train.labels.tolist()) == (("good one", "bad one"), [1, 0])
    trec = load_dataset("trec", tmp_path)
    assert [len(part) for part in trec[:3]] == [18, 2, 1]
    assert (trec.test.texts[0], trec.test.classes[int(trec.test.labels[0])]) == ("Where ?", "LOC")
    snips = load_dataset("snips", tmp_path)
    assert snips.test.counts() == {"GetWeather": 0, "PlayMusic": 1}
    news = load_dataset("ag-news", tmp_path)
    assert [len(part) for part in news[:3]] == [38, 2, 1]
    assert 'Oil up a   b "c"' in news.train.texts
    assert news.test.counts()["Sci/Tech"] == 1


DOCUMENT = """<REUTERS TOPICS="YES" LEWISSPLIT="{part}" CGISPLIT="X" OLDID="1" NEWID="{number}">
<DATE>x</DATE><TOPICS>{topics}</TOPICS><PLACES></PLACES>
<TEXT><TITLE>TITLE {number}</TITLE><BODY>Shares &lt;X&gt; fell &amp; rose. \x03</BODY></TEXT></REUTERS>
"""


def test_reuters_trains_on_single_topics_and_tests_on_several(tmp_path):
    documents = [
        ("TRAIN", "earn"),
        ("TRAIN", "earn grain"),
        ("TRAIN", "cocoa"),
        ("TEST", "ship crude"),
        ("TEST", "acq"),
    ]
    documents += [("TRAIN", "acq"), ("NOT-USED", "earn")] * 5
    text = "".join(
        DOCUMENT.format(part=part, number=number, topics="".join(f"<D>{each}</D>" for each in topics.split()))
        for number, (part, topics) in enumerate(documents)
    )
    (tmp_path / "reuters").mkdir()
    with tarfile.open(tmp_path / "reuters" / "reuters21578.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo("reuters21578/reut2-000.sgm")
        member.size = len(text.encode("latin-1"))
        archive.addfile(member, io.BytesIO(text.encode("latin-1")))
    parts = load_dataset("reuters", tmp_path)
    assert len(parts.train) + len(parts.validation) == 6
    assert parts.train.counts()["grain"] == 0
    assert parts.test.texts == ("TITLE 3 Shares <X> fell & rose.",)
    assert [name for name, there in parts.test.counts().items() if there] == ["crude", "ship"]
    assert len(load_dataset("reuters-full", tmp_path).test) == 2
    (tmp_path / "reuters" / "reuters21578.tar.gz").write_bytes(b"no archive")
    with pytest.raises(InputError, match="expected the archive of Reuters-21578"):
        load_dataset("reuters", tmp_path)


def test_json_of_a_set_keeps_its_texts_apart():
    first, second = label_sets("x", "y"), label_sets("x", "z")
    assert first.fingerprint() != second.fingerprint()
    assert first.fingerprint() == label_sets("x", "y").fingerprint()
    assert json.dumps(first.names) == '["0", "1"]'
