"""Words, characters and subwords of scripts with and without spaces."""

import pytest

from torchcaps._core.errors import InputError
from torchcaps.data import Vocabulary
from torchcaps.data.words import beginning, spaceless


def cut(text, **options):
    return [word for word, _, _ in Vocabulary.build([text], **options).cut(text)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("我喜欢iPhone15!", ["我", "喜", "欢", "iPhone15", "!"]),
        ("𠮷野家", ["𠮷", "野", "家"]),
        ("コーヒーです", ["コ", "ー", "ヒ", "ー", "で", "す"]),
        ("น้ำดี", ["น้", "ำ", "ดี"]),
        ("한국어 문장", ["한국어", "문장"]),
        ("नमस्ते दुनिया", ["नमस्ते", "दुनिया"]),
    ],
)
def test_characters_of_scripts_without_spaces_are_words(text, words):
    assert cut(text) == words


def test_characters_are_all_that_is_no_space():
    assert cut("Don't go!", tokens="character") == list("Don'tgo!")
    assert cut("我 ok", tokens="character") == ["我", "o", "k"]


def test_subwords_are_parts_that_training_texts_repeat(tmp_path):
    texts = ["lower lowest newer newest wider widest"] * 20 + ["酒店不错 酒店很好 早餐不错"] * 20
    vocabulary = Vocabulary.build(texts, size=60, tokens="subword")
    assert vocabulary.words[:2] == ["<pad>", "<unk>"]
    assert len(vocabulary) == len(set(vocabulary.words)) <= 60
    text = "Lowering 酒店 不错吗"
    pieces = vocabulary.cut(text)
    assert "".join(word for word, _, _ in pieces) == text.replace(" ", "")
    assert {"酒店", "不错"} <= {word for word, _, _ in pieces}
    assert all(text[start:end] == word for word, start, end in pieces)
    assert vocabulary.encode(["吗"])[0].tolist() == [1]  # no training text has it
    vocabulary.save(tmp_path / "words.json")
    again = Vocabulary.load(tmp_path / "words.json")
    assert again.cut(text) == pieces
    assert Vocabulary.build(texts, size=60, tokens="subword").words == vocabulary.words


def test_other_tokens_are_refused():
    with pytest.raises(InputError, match="tokens to be one of 'word', 'character', 'subword', got 'letter'"):
        Vocabulary.build(["a"], tokens="letter")


def test_words_that_mostly_occur_once_are_warned_of():
    texts = [f"word{number} is" for number in range(2000)]
    Vocabulary.build(texts, tokens="subword")
    with pytest.warns(UserWarning, match="2,000 of 3,999 words occur only once.*--tokens subword"):
        Vocabulary.build([*texts[:-1], "word1999"])


def test_scripts_without_spaces_are_told_by_their_letters():
    assert spaceless(["这家酒店不错, wifi", "12"])
    assert spaceless(["コーヒーです"])
    assert not spaceless(["a film to fall in love with 好"])
    assert not spaceless(["한국어 문장"])
    assert not spaceless([])


@pytest.mark.parametrize("tokens", ["word", "character", "subword"])
def test_of_very_long_texts_only_the_beginning_is_cut(tokens):
    text = "这家酒店不错" * 100_000
    assert len(beginning(text, 50)) == 2000
    vocabulary = Vocabulary.build([text[:600]], tokens=tokens)
    assert vocabulary.read([text], 50).tolist() == vocabulary.read([text[:5000]], 50).tolist()
