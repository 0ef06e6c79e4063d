"""Pretrained encoders of texts on the command line and in Python: trained, resumed, exported, explained, refused."""

import csv
import json
import shutil
import sys

import pytest
import torch
from safetensors.torch import load_file

import torchcaps as tc
from tests.support.commands import refused, run
from tests.support.encoders import save_network
from tests.support.textencoders import MOST, TINY, save_reviews, save_text_network
from torchcaps.apps.export import load_onnx
from torchcaps.runs.run import Run
from torchcaps.train import features

KINDS = ("bert", "roberta")


@pytest.fixture(scope="module")
def reviews(tmp_path_factory):
    return save_reviews(tmp_path_factory.mktemp("reviews") / "reviews.csv", 60)


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return save_text_network(tmp_path_factory.mktemp("networks") / "bert")


@pytest.fixture(scope="module")
def runs(tmp_path_factory, reviews):
    """Runs with frozen encoders, whose folders are gone."""
    found = {}
    for kind in KINDS:
        folder = tmp_path_factory.mktemp(kind)
        words = ["--encoder", save_text_network(folder / kind, kind), *TINY, "--epochs", 12]
        assert run("train", reviews, *words, "--out", folder / "run") == 0
        shutil.rmtree(folder / kind)
        found[kind] = folder / "run"
    return found


def losses(folder):
    with (folder / "metrics.csv").open() as file:
        return [float(row["train_loss"]) for row in csv.DictReader(file)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_frozen_encoder_lowers_the_loss_and_is_stored_once(kind, runs):
    found = losses(runs[kind])
    assert found[-1] < 0.8 * found[0]
    assert not [name for name in load_file(runs[kind] / "model.safetensors") if name.startswith("encoder.")]
    checkpoint = torch.load(runs[kind] / "last.ckpt", weights_only=True)
    assert not [name for name in checkpoint["state_dict"] if "encoder" in name]


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_works_without_the_folder_of_its_encoder(kind, runs, capsys):
    out = runs[kind]
    assert run("evaluate", out) == 0
    assert run("predict", out, "the very good film", "it was awful") == 0
    assert run("explain", out, "the very good film", "a 😀") == 0
    assert "[CLS]" not in capsys.readouterr().out.split("\n")[0]
    assert run("similar", out, "the good film", "the bad film") == 0
    assert run("health", out) == 0
    assert run("draw", "text-model", "the good film", "--run", out, "--out", out / "shapes.png") == 0


@pytest.mark.parametrize("kind", KINDS)
def test_the_words_that_decided_are_tokens_of_the_text(kind, runs):
    from torchcaps.analysis.explain import colored, explain_texts

    run_ = Run.open(runs[kind])
    texts = ["The good, dull film!", "a 😀 film", "", "good " * 30]
    for text, (found,) in zip(texts, explain_texts(run_, texts, top=3), strict=True):
        assert all(0 <= word.start < word.end <= len(text) for word in found.words)
        assert len(found.words) <= MOST
        assert all(ngram.text for ngram in found.ngrams)
        plain = colored(found).replace("\x1b[0m", "")
        assert len({(ngram.start, ngram.end) for ngram in found.ngrams}) == len(found.ngrams)
        assert [letter for letter in text if letter not in plain] == []


def test_an_exported_file_reads_tokens(runs, tmp_path):
    out = tmp_path / "net.onnx"
    assert run("export", runs["roberta"], "--out", out) == 0
    tokens = Run.open(runs["roberta"]).words().read(["the good film", "bad"])
    model = tc.load(runs["roberta"])
    with torch.no_grad():
        assert torch.allclose(load_onnx(out)(tokens)[0], model(tokens).activations, atol=1e-5)
    from torchcaps.apps.export import input_of

    assert input_of(model) == "tokens: int64 [batch, length], token indices below 262, padded with 1"


@pytest.mark.parametrize("rate", [None, "1e-4"])
def test_a_resumed_run_ends_with_the_same_bits(rate, tmp_path, reviews, monkeypatch):
    from torchcaps.train import progress

    words = [] if rate is None else ["--encoder-lr", rate]
    encoder = save_text_network(tmp_path / "bert")

    def train(out):
        return run("train", reviews, "--encoder", encoder, *words, *TINY, "--epochs", 3, "--out", out)

    assert train(tmp_path / "whole") == 0
    usual = progress.Progress.on_train_epoch_end

    def interrupted(self, trainer, module):
        usual(self, trainer, module)
        if trainer.current_epoch == 0:
            raise KeyboardInterrupt

    monkeypatch.setattr(progress.Progress, "on_train_epoch_end", interrupted)
    assert train(tmp_path / "resumed") == 130
    monkeypatch.undo()
    shutil.rmtree(encoder)
    assert run("train", "--resume", tmp_path / "resumed") == 0
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "resumed")]
    assert weights[0] == weights[1]


def test_a_tuned_encoder_learns_and_its_beginning_is_kept(tmp_path, reviews, bert):
    before = tc.load_encoder(bert).network.state_dict()
    out = tmp_path / "run"
    assert run("train", reviews, "--encoder", bert, "--encoder-lr", "1e-3", *TINY, "--epochs", 2, "--out", out) == 0
    after = tc.load(out).encoder.network.state_dict()
    assert all(not torch.equal(after[name], before[name]) for name in before if "attention.self.query.weight" in name)
    stored = load_file(out / "encoder" / "model.safetensors")
    assert all(torch.equal(stored[name], before[name]) for name in before)
    assert run("evaluate", out) == 0


def test_features_are_computed_once(tmp_path, reviews, bert, monkeypatch, capsys):
    seen = []
    usual = features.token_features
    monkeypatch.setattr(features, "token_features", lambda *given: seen.append(given) or usual(*given))
    assert run("train", reviews, "--encoder", bert, *TINY, "--epochs", 3, "--out", tmp_path / "run") == 0
    assert len(seen) == 2  # of the training and validation parts
    assert "encoder BertModel, 20,480 parameters, frozen, features computed once\n" in capsys.readouterr().out


def test_features_that_do_not_fit_in_memory_are_on_disk(tmp_path, reviews, bert, monkeypatch):
    words = ["train", reviews, "--encoder", bert, *TINY, "--epochs", 2]
    assert run(*words, "--out", tmp_path / "memory") == 0
    monkeypatch.setenv("TORCHCAPS_DATA_BYTES", "1000")
    monkeypatch.setenv("TORCHCAPS_DATA", str(tmp_path))
    assert run(*words, "--out", tmp_path / "disk") == 0
    assert losses(tmp_path / "disk") == losses(tmp_path / "memory")


def test_features_are_in_the_order_of_the_texts(bert):
    encoder = tc.load_encoder(bert)
    texts = ("not very bad and not very dull", "a", "the good film", "it was fine")
    data = tc.data.TextSet(texts, torch.tensor([0, 1, 0, 1]), ("x", "y"), vocabulary=encoder.vocabulary)
    found = features.TokenFeatures(data, features.token_features(encoder, data, torch.device("cpu")))
    rows = torch.tensor([2, 0])
    with torch.no_grad():
        torch.testing.assert_close(found.batch(rows).inputs, encoder(data.batch(rows).inputs), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("model", ["text-b", "textcnn", "bilstm"])
def test_every_model_of_texts_reads_an_encoder(model, tmp_path, reviews, bert):
    out = tmp_path / "run"
    assert run("train", reviews, "--encoder", bert, "--model", model, "--epochs", 1, "--out", out) == 0
    assert run("evaluate", out) == 0


def test_texts_with_any_number_of_labels_read_an_encoder(tmp_path, bert):
    table = tmp_path / "texts.csv"
    table.write_text("text,label\n" + "good film,a;b\nbad film,b\ndull,a\n" * 12)
    out = tmp_path / "run"
    words = ["--separator", ";", "--encoder", bert, *TINY, "--epochs", 1]
    assert run("train", table, *words, "--out", out) == 0
    assert Run.open(out).config.loss in (None, "margin")
    assert run("predict", out, "good film") == 0


def test_fit_takes_an_encoder_of_texts(tmp_path, bert):
    encoder = tc.load_encoder(bert)
    texts = ("the good film", "a bad film", "it was great", "very dull") * 8
    data = tc.data.TextSet(texts, torch.tensor([0, 1] * 16), ("good", "bad"), vocabulary=encoder.vocabulary)
    sizes = {"vocabulary": len(encoder.vocabulary), "classes": 2, "filters": 16, "capsules": 4}
    model = tc.create_model("text", encoder=encoder, **sizes)
    tc.fit(model, data, epochs=2, batch_size=16, out=tmp_path / "run")
    again = tc.load(tmp_path / "run")
    tokens = encoder.vocabulary.read(["a good film"])
    assert torch.allclose(again(tokens).activations, model(tokens).activations, atol=1e-6)
    assert tc.predict(tmp_path / "run", ["a good film"])


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package that carries a network, and whose code must not run."""
    place = tmp_path / "installed" / "tiny_bert_en"
    (place / "model").mkdir(parents=True)
    save_text_network(place / "model")
    (place / "__init__.py").write_text("raise RuntimeError('this code must not run')\n")
    monkeypatch.syspath_prepend(str(tmp_path / "installed"))
    return place


@pytest.mark.parametrize("name", ["tiny-bert-en", "tiny_bert_en"])
def test_a_package_with_a_network_is_named_and_its_code_does_not_run(name, package, tmp_path, reviews):
    out = tmp_path / "run"
    assert run("train", reviews, "--encoder", name, *TINY, "--epochs", 1, "--out", out) == 0
    assert "tiny_bert_en" not in sys.modules
    assert Run.open(out).config.encoder == str((package / "model").resolve())
    assert str(package) not in (out / "README.md").read_text()


def test_a_package_with_two_networks_is_refused(package, reviews, capsys):
    shutil.copytree(package / "model", package / "other")
    said = refused(capsys, "train", reviews, "--encoder", "tiny-bert-en")
    assert "--encoder tiny-bert-en: expected a package with one network, got 2, such as" in said
    assert "Give one of these folders." in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--vectors", "glove-6b-50d"], "--vectors: expected no --encoder beside it"),
        (["--no-tune"], "--no-tune: expected no --encoder beside it"),
        (["--option", "dim=20"], "--option dim: expected no --encoder beside it"),
        (["--encoder-lr", "-1"], "expected encoder_lr above 0, got -1.0"),
        (["--option", "encoder=bert"], "for an encoder --encoder"),
        (["--encoder", "os:getpid"], "expected for texts a folder in Hugging Face's format, got os:getpid"),
        (["--encoder", "json"], "got json, which is not there"),
    ],
)
def test_options_that_contradict_an_encoder_are_refused(words, said, reviews, bert, capsys):
    assert said in refused(capsys, "train", reviews, "--encoder", bert, *words)


def broken_networks(folder):
    """Folders that are no encoders of texts, and what is said of each."""

    def copy(name, **values):
        place = shutil.copytree(folder, folder.parent / name)
        config = json.loads((place / "config.json").read_text())
        (place / "config.json").write_text(json.dumps(config | values))
        return place

    place = copy("no-tokenizer")
    (place / "tokenizer.json").unlink()
    yield place, "expected a folder with tokenizer.json beside config.json, got no tokenizer.json. Save the tokenizer"
    place = copy("odd-tokenizer")
    (place / "tokenizer.json").write_text("{}")
    yield place, "tokenizer.json: expected the tokenizer of an encoder, got"
    place = copy("pickled")
    (place / "model.safetensors").unlink()
    torch.save({"a": torch.ones(1)}, place / "pytorch_model.bin")
    yield place, "expected weights in model.safetensors, got pytorch_model.bin, whose pickle could run code"
    yield copy("narrow", hidden_size=64), "expected config.json and weights that fit together"
    yield copy("deep", num_hidden_layers=10**9), "expected num_hidden_layers between 0 and 1000, got 1000000000"
    yield copy("strange", model_type="of_tomorrow"), "expected a model_type in config.json that transformers knows"
    yield save_network(folder.parent / "resnet"), "expected an encoder for texts, got resnet, which reads pixel_values"


def test_what_is_no_encoder_of_texts_is_refused_in_a_sentence(tmp_path, reviews, capsys):
    for folder, said in broken_networks(save_text_network(tmp_path / "bert")):
        assert said in refused(capsys, "train", reviews, "--encoder", folder, "--out", tmp_path / "run")
        assert not (tmp_path / "run").exists()


def test_a_network_that_also_writes_texts_is_refused(tmp_path, bert, reviews, capsys):
    import transformers

    config = transformers.T5Config(vocab_size=90, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    transformers.T5Model(config).save_pretrained(tmp_path / "t5")
    shutil.copy(bert / "tokenizer.json", tmp_path / "t5")
    said = refused(capsys, "train", reviews, "--encoder", tmp_path / "t5")
    assert "expected an encoder for texts, got t5, which also writes texts" in said


@pytest.mark.parametrize("name", ["config.json", "encoder.json", "model.safetensors"])
def test_links_and_changes_in_the_encoder_of_a_run_are_refused(name, runs, tmp_path, capsys):
    copy = shutil.copytree(runs["bert"], tmp_path / "run")
    place = copy / "encoder" / name
    content = bytearray(place.read_bytes())
    place.unlink()
    place.symlink_to(runs["bert"] / "encoder" / name)
    assert "got a link that leads out of it" in refused(capsys, "evaluate", copy)
    place.unlink()
    content[-8] ^= 1
    place.write_bytes(content if name == "model.safetensors" else b"[]")
    assert str(place) in refused(capsys, "evaluate", copy)
