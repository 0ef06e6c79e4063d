"""Vocabularies of encoders: their tokenizers with special tokens, padding and the length that the network reads."""

import json

import pytest
import torch

from tests.support.textencoders import MOST, save_text_network
from torchcaps.data import Subwords, TextSet, Vocabulary
from torchcaps.data.subwords import subwords


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("networks")
    return {kind: save_text_network(folder / kind, kind) / "tokenizer.json" for kind in ("bert", "roberta")}


def vocabulary(files, kind="bert", padding=None, most=MOST):
    return subwords("here", files[kind].read_text(), padding, most, 1000)


@pytest.mark.parametrize(("kind", "padding"), [("bert", 0), ("roberta", 1)])
def test_texts_are_read_as_the_tokenizer_reads_them(files, kind, padding):
    from tokenizers import Tokenizer

    plain = Tokenizer.from_file(str(files[kind]))
    plain.no_padding()
    plain.no_truncation()
    words = vocabulary(files, kind, padding)
    texts = ["the good film", "a"]
    rows = [plain.encode(text).ids for text in texts]
    found = words.read(texts)
    assert found[0].tolist() == rows[0]
    assert found[1].tolist() == rows[1] + [padding] * (len(rows[0]) - len(rows[1]))
    assert len(words) == 1 + max(plain.get_vocab().values())


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_long_texts_keep_their_last_special_token(files, kind):
    words = vocabulary(files, kind, 0 if kind == "bert" else 1)
    whole, short = words.read(["film " * 50]), words.read(["film " * 50], 5)
    assert whole.shape == (1, MOST)
    assert short.shape == (1, 5)
    last = words.tokenizer.encode("film").ids[-1]
    assert whole[0, -1] == short[0, -1] == last
    assert torch.equal(whole[0, :4], short[0, :4])
    assert words.read(["film"], 1).tolist() == [[last]]


def test_a_set_of_texts_is_cut_and_padded_as_the_encoder_wants(files):
    words = vocabulary(files, "roberta", 1)
    data = TextSet(("film " * 50, "a"), torch.tensor([0, 1]), ("x", "y"), vocabulary=words)
    with pytest.warns(UserWarning, match=f"1 of 2 texts are longer than {MOST} words"):
        assert data.lengths.tolist() == [MOST, 3]
    assert (data.batch(torch.tensor([1, 0])).inputs[0, 3:] == 1).all()


def test_tokens_stand_at_their_characters(files):
    text = "The good, unfine film!"
    tokens = vocabulary(files).cut(text)
    assert tokens[0] == ("[CLS]", 0, 0)
    assert tokens[-1] == ("[SEP]", len(text), len(text))
    assert [text[start:end] for _, start, end in tokens[1:4]] == ["The", "good", ","]
    assert "".join(word for word, _, _ in tokens[1:-1]) == text.replace(" ", "")
    assert [row[0] for row in vocabulary(files).cut(text, 4)] == ["[CLS]", "The", "good", "[SEP]"]


def test_several_tokens_may_be_one_character(files):
    tokens = vocabulary(files, "roberta", 1).cut("a 😀")
    assert [word for word, _, _ in tokens[1:3]] == ["a", " "] or "😀" in [word for word, _, _ in tokens]
    assert all(0 <= start <= end <= 3 for _, start, end in tokens)


def test_a_saved_vocabulary_is_the_same(files, tmp_path):
    words = vocabulary(files, "roberta", 1)
    words.save(tmp_path / "words.json")
    again = Vocabulary.load(tmp_path / "words.json")
    assert isinstance(again, Subwords)
    assert (again.padding, again.most, len(again)) == (1, MOST, len(words))
    assert torch.equal(again.read(["the bad film", "b"]), words.read(["the bad film", "b"]))


def test_what_is_no_tokenizer_of_the_encoder_is_refused(files):
    content = files["bert"].read_text()
    with pytest.raises(ValueError, match="here: expected the tokenizer of an encoder, got"):
        subwords("here", "{}", 0, MOST, 1000)
    with pytest.raises(ValueError, match="got no token for padding"):
        subwords("here", content, 999, MOST, 1000)
    without = json.dumps({**json.loads(content), "padding": None})
    with pytest.raises(ValueError, match="got no token for padding"):
        subwords("here", without, None, MOST, 1000)
    with pytest.raises(ValueError, match="got 2 tokens of a text, which leave no room beside special ones"):
        subwords("here", content, 0, 2, 1000)
    with pytest.raises(ValueError, match="expected tokens below 20, as the encoder has, got 74"):
        subwords("here", content, 0, MOST, 20)


def test_a_changed_vocabulary_of_a_run_is_refused(files, tmp_path):
    words = vocabulary(files)
    words.save(tmp_path / "words.json")
    content = json.loads((tmp_path / "words.json").read_text())
    content["padding"]["pad_id"] = 5000
    (tmp_path / "words.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="got a padding of number 5000, which is no token"):
        Vocabulary.load(tmp_path / "words.json")
