"""Encoders of texts: vectors of networks of transformers, padding, heads."""

import pytest
import torch

import torchcaps as tc
from tests.support.textencoders import MOST, save_text_network
from torchcaps.models import TEXT_MODELS
from torchcaps.models.encoders import head_of

KINDS = ("bert", "roberta", "distilbert")
TEXTS = ["the good film", "a", "not very bad and not very dull", "", "it was fine"]


@pytest.fixture(scope="module")
def encoders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("networks")
    return {kind: tc.load_encoder(save_text_network(folder / kind, kind)) for kind in KINDS}


def network(encoder, name="text", **options):
    """A small network in evaluation mode."""
    options = {"filters": 16, **options} if name != "bilstm" else options
    options |= {"capsules": 4} if name.startswith("text") and name != "textcnn" else {}
    model = tc.create_model(name, vocabulary=len(encoder.vocabulary), classes=3, encoder=encoder, **options)
    return model.eval()


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_are_those_of_the_network_and_zero_behind_a_text(kind, encoders):
    import transformers

    encoder = encoders[kind]
    plain = transformers.AutoModel.from_pretrained(encoder.source).eval()
    with torch.no_grad():
        vectors = encoder(encoder.vocabulary.read(TEXTS))
        for row, text in enumerate(TEXTS):
            tokens = encoder.vocabulary.read([text])
            wanted = plain(input_ids=tokens).last_hidden_state[0]
            torch.testing.assert_close(vectors[row, : len(wanted)], wanted, atol=1e-5, rtol=1e-5)
            assert not vectors[row, len(wanted) :].any()


@pytest.mark.parametrize("kind", KINDS)
def test_an_encoder_reads_as_many_tokens_as_it_has_positions_for(kind, encoders):
    encoder = encoders[kind]
    tokens = encoder.vocabulary.read(["film " * 100], 1000)
    assert tokens.shape == (1, MOST)
    assert encoder(tokens).isfinite().all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TEXT_MODELS)
@torch.no_grad()
def test_padding_and_other_texts_never_change_an_answer(kind, name, encoders):
    encoder = encoders[kind]
    model = network(encoder, name)
    tokens = encoder.vocabulary.read(TEXTS)
    together = model(tokens)
    room = min(7, MOST + 2 * (kind == "roberta") - tokens.shape[1])  # older transformers refuse more columns
    assert room > 0
    wider = model(torch.nn.functional.pad(tokens, (0, room), value=encoder.padding))
    torch.testing.assert_close(wider[:2], together[:2], rtol=1e-4, atol=1e-5)
    for row, text in enumerate(TEXTS):
        alone = model(encoder.vocabulary.read([text]))
        torch.testing.assert_close(alone.activations[0], together.activations[row], rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_a_text_of_padding_alone_has_an_answer(encoders):
    encoder = encoders["roberta"]
    assert network(encoder)(torch.full((2, 5), encoder.padding)).activations.isfinite().all()


@pytest.mark.parametrize("name", TEXT_MODELS)
def test_a_head_reads_vectors_and_shares_its_weights(name, encoders):
    encoder = encoders["bert"]
    model = network(encoder, name)
    head = head_of(model)
    tokens = encoder.vocabulary.read(TEXTS)
    with torch.no_grad():
        assert torch.equal(head(encoder(tokens)).poses, model(tokens).poses)
    assert {id(each) for each in head.parameters()} == {id(each) for each in model.parameters() if each.requires_grad}
    assert model.encoder is encoder


def test_dropped_tokens_have_no_vector_but_a_place(encoders):
    encoder = encoders["bert"]
    model = network(encoder, ngrams=(1,), dropout=0.0, word_dropout=0.5).train()
    tokens = encoder.vocabulary.read(["film " * 20, "a"])
    torch.manual_seed(0)
    vectors, ends = model.features(tokens)
    lost = ~vectors.any(1)
    assert 0.2 < lost[0].double().mean() < 0.8
    assert ends.tolist() == [22, 3]


def test_more_words_than_an_encoder_knows_are_refused(encoders):
    with pytest.raises(ValueError, match="expected vocabulary between 2 and 78, got 79"):
        tc.create_model("text", vocabulary=79, classes=2, encoder=encoders["bert"])


def test_a_network_without_a_vector_for_each_token_is_refused():
    from torchcaps.models.tokens import TextEncoder

    class Pooled(torch.nn.Module):
        def forward(self, input_ids, attention_mask):
            return input_ids

    with pytest.raises(ValueError, match=r"expected a vector for each token, \(1, 4, 8\), got a Tensor"):
        TextEncoder(Pooled(), "mine", dim=8, tokens=10)(torch.ones(1, 4, dtype=torch.long))
