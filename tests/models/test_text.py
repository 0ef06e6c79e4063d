"""Text capsules and the networks they are compared with."""

import pytest
import torch

import torchcaps as tc
from tests.oracles.text import capsule_a
from torchcaps._core.errors import InputError
from torchcaps.models import TEXT_MODELS, TextCapsules, calibrate, create_model

SMALL = {"filters": 5, "capsules": 3, "capsule_dim": 4, "window_capsules": 2}


def text_model(name="text-a", classes=2, **options):
    torch.manual_seed(0)
    slim = SMALL if name.startswith("text-") else {}
    if options.get("window") == 0:
        slim = {word: size for word, size in SMALL.items() if word != "window_capsules"}
    return create_model(name, vocabulary=20, classes=classes, dim=6, **{**slim, **options}).double().eval()


def numbers(*lengths, longest=None):
    generator = torch.Generator().manual_seed(2)
    tokens = torch.zeros(len(lengths), longest or max(lengths), dtype=torch.long)
    for row, length in enumerate(lengths):
        tokens[row, :length] = torch.randint(1, 20, (length,), generator=generator)
    return tokens


@pytest.mark.parametrize(
    "options",
    [{}, {"leaky": False}, {"amendment": False}, {"leaky": False, "amendment": False}, {"iterations": 1}],
    ids=str,
)
def test_capsule_a_is_that_of_the_paper_in_plain_loops(options):
    model = text_model(**options)
    for parameter in model.branches.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    tokens = numbers(8)
    branch = model.branches[0]
    first, last = branch.layers
    weights = [
        branch.convolution.weight, branch.convolution.bias, branch.primary.poses.weight.squeeze(-1),
        branch.primary.poses.bias, 3, first.transform.weight, first.transform.bias, 3, last.transform.weight,
        last.transform.bias,
    ]  # fmt: skip
    listed = [part.tolist() if isinstance(part, torch.Tensor) else part for part in weights]
    expected = torch.tensor(capsule_a(model.words(tokens)[0].tolist(), *listed, **options), dtype=torch.float64)
    capsules = model(tokens)
    torch.testing.assert_close(capsules.poses[0], expected[:2], rtol=1e-9, atol=1e-12)  # the third is noise
    torch.testing.assert_close(capsules.activations[0], expected[:2].norm(dim=-1), rtol=1e-9, atol=1e-12)


def test_capsule_b_averages_the_poses_of_its_branches():
    model = text_model("text-b")
    tokens = numbers(9, 7)
    vectors, ends = model.features(tokens)
    poses = sum(branch(vectors, ends).poses[:, :2] for branch in model.branches) / 3
    capsules = model(tokens)
    torch.testing.assert_close(capsules.poses, poses)
    torch.testing.assert_close(capsules.activations, poses.norm(dim=-1))
    assert [branch.ngram for branch in model.branches] == [3, 4, 5]


def test_sizes_are_those_of_the_paper():
    model = create_model("text-a", vocabulary=2, classes=6, dim=300)
    branch = model.branches[0]
    count = lambda part: sum(p.numel() for p in part.parameters())  # noqa: E731
    assert count(branch.convolution) == 32 * (3 * 300 + 1)
    assert count(branch.primary) == 32 * 16 * (32 + 1)
    assert count(branch.layers[0]) == 16 * (16 * 16 + 16)
    assert count(branch.layers[1]) == 7 * (16 * 16 + 16)  # with the class for noise
    tokens = torch.ones(1, 40, dtype=torch.long)
    children = branch.children_of(*model.features(tokens))
    assert children.poses.shape == (1, 40 - 3 + 1, 32, 16)
    assert branch.layers[0](children).poses.shape == (1, 40 - 3 - 3 + 2, 16, 16)
    assert model(tokens).poses.shape == (1, 6, 16)
    full = create_model("text-a", vocabulary=2, classes=6, dim=300, votes="full").branches[0]
    assert full.layers[0].transform.weight.shape == (3 * 32, 16, 16, 16)
    assert full.layers[1].transform.weight.shape == (16, 7, 16, 16)


def test_with_padding_first_and_last_words_stand_at_every_place_of_an_ngram():
    plain, padded = text_model(), text_model(padding=True)
    padded.load_state_dict(plain.state_dict())
    tokens = numbers(5)
    vectors, ends = padded.features(tokens)
    children = padded.branches[0].children_of(vectors, ends)
    assert children.poses.shape[1] == 5 + 2
    assert children.mask.all()
    around = torch.nn.functional.pad(vectors, (2, 2))
    torch.testing.assert_close(children.poses, plain.branches[0].children_of(around, ends + 4).poses)
    assert padded.branches[0].starts(7).tolist() == [-2, -1, 0, 1, 2, 3, 4]


@pytest.mark.parametrize("name", TEXT_MODELS)
def test_dropped_words_are_unknown_and_only_while_learning(name):
    model = text_model(name, dropout=0.0, word_dropout=0.5)
    tokens = numbers(40, 30)
    vectors, _ = model.features(tokens)
    torch.testing.assert_close(vectors, model.words(tokens).transpose(1, 2))
    torch.manual_seed(0)
    vectors, ends = model.train().features(tokens)
    same = (vectors == model.words(tokens).transpose(1, 2)).all(1)
    unknown = (vectors == model.words.weight[1].unsqueeze(-1)).all(1)
    assert (same | unknown).all()
    assert 0.3 < unknown[0].double().mean() < 0.7
    assert same[1, 30:].all()  # padding stays padding
    assert ends.tolist() == [40, 30]


SHAPES = [
    {"stride": 2}, {"window": 0}, {"votes": "full"}, {"noise": False}, {"padding": True},
    {"padding": True, "stride": 2}, {"padding": True, "window": 0},
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "options"),
    [(name, {}) for name in TEXT_MODELS] + [(name, options) for name in ("text-a", "text-b") for options in SHAPES],
)
def test_padding_and_other_texts_never_change_an_answer(name, options):
    model = text_model(name, classes=3, **options)
    tokens = numbers(9, 1, 14, 7, 12)
    together = model(tokens)
    wider = model(numbers(9, 1, 14, 7, 12, longest=25))
    torch.testing.assert_close(wider[:2], together[:2], rtol=1e-12, atol=1e-14)
    for row, length in enumerate((9, 1, 14, 7, 12)):
        alone = model(tokens[row : row + 1, :length])
        torch.testing.assert_close(alone.activations[0], together.activations[row], rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("name", TEXT_MODELS)
def test_texts_without_a_word_get_an_answer(name):
    model = text_model(name)
    assert model(torch.zeros(2, 0, dtype=torch.long)).activations.isfinite().all()
    assert model(torch.zeros(2, 3, dtype=torch.long)).activations.isfinite().all()


@pytest.mark.parametrize("name", TEXT_MODELS)
def test_text_models_learn_a_handful_of_texts(name):
    model = text_model(name, dropout=0.0).float().train()
    tokens, labels = numbers(*[9] * 12), torch.arange(12) % 2
    tokens[labels == 1, 4] = 7  # a word that tells
    tokens[labels == 0, 4] = 8
    if isinstance(model, TextCapsules):
        calibrate(model, tokens)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(150 if name == "text-a" else 40):
        capsules = model(tokens)
        loss = tc.margin_loss(capsules.activations, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert (model.eval()(tokens).activations.argmax(-1) == labels).all()


def test_calibration_gives_every_layer_a_length_to_learn_from():
    model = text_model("text-b", ngrams=(2, 4))
    tokens = numbers(9, 12, 7, 11, 14)
    before = float(model(tokens).activations.detach().median())
    calibrate(model, tokens)
    vectors, ends = model.features(tokens)
    for branch in model.branches:
        capsules = branch.children_of(vectors, ends)
        for layer in branch.routed_layers:
            capsules = layer(capsules.flatten() if isinstance(layer, tc.DenseCapsules) else capsules)
            shown = capsules.activations if capsules.mask is None else capsules.activations[capsules.mask]
            assert 0.15 < float(shown.detach().median()) < 0.6
    assert before < 0.1


@pytest.mark.parametrize("routing", tc.ROUTINGS)
def test_texts_take_any_routing(routing):
    model = text_model("text-b", ngrams=(2, 3), routing=routing)
    capsules = model(numbers(9, 6))
    assert capsules.poses.shape == (2, 2, 4)
    assert capsules.activations.isfinite().all()
    capsules.activations.sum().backward()


def test_partial_sampling_draws_parents_while_learning_only():
    model = text_model(sampling=0.5)
    tokens = numbers(9, 9)
    assert torch.equal(model(tokens).poses, model(tokens).poses)
    model.train()
    model.dropout = 0.0
    torch.manual_seed(1)
    assert not torch.equal(model(tokens).poses, model(tokens).poses)


def test_trace_shows_every_layer_of_every_branch():
    model = text_model("text-b", ngrams=(2, 3), iterations=2)
    traces = model.trace(numbers(9, 6))
    assert len(traces) == 4
    assert all(len(steps) == 2 for steps in traces)
    assert traces[1][-1].routed.poses.shape == (2, 3, 4)


def test_word_vectors_are_set_and_stay_where_they_are_not_tuned():
    model = text_model(tune=False)
    table = torch.randn(20, 6)
    model.set_vectors(table)
    assert torch.equal(model.words.weight, table.double())
    assert not model.words.weight.requires_grad
    with pytest.raises(InputError, match=r"expected word vectors \(20, 6\), got \(20, 5\)"):
        model.set_vectors(torch.zeros(20, 5))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: create_model("text", vocabulary=9, classes=2, window=3), "no convolutional capsules, got window"),
        (lambda: create_model("text-a", classes=2), "expected vocabulary, and no other size, got no vocabulary"),
        (lambda: create_model("text-a", classes=2, vocabulary=9, image_shape=(1, 2, 3)), "got both image_shape and"),
        (lambda: create_model("capsnet", classes=2, vocabulary=9), "got no image_shape"),
        (lambda: text_model(ngrams=()), "expected lengths of n-grams, got none"),
        (lambda: text_model(ngrams=(0,)), "ngrams to be a whole number from 1 on"),
        (lambda: text_model(votes="matrix"), "votes to be one of 'shared', 'full'"),
        (lambda: text_model(dropout=1.0), "dropout between 0 and 0.95"),
        (lambda: text_model()(torch.zeros(2, 9)), r"expected words \[b t\] by number, got \(2, 9\) of torch.float32"),
        (lambda: text_model(routing="em", amendment=True), "got amendment"),
        (lambda: create_model("bilstm", classes=2, vocabulary=9, routing="em"), "expected options among hidden"),
    ],
)
def test_wrong_arguments_get_one_sentence(call, message):
    with pytest.raises(InputError, match=message):
        call()
