"""The estimators keep the conventions of scikit-learn, and learn."""

import pickle
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import check_estimator

import torchcaps as tc
from tests.support.textencoders import save_text_network
from torchcaps._core.errors import InputError
from torchcaps.models import VectorCapsules

TINY = {"epochs": 2, "random_state": 0}
pytestmark = pytest.mark.filterwarnings("ignore:CapsuleTextClassifier. [0-9]+ texts are few")
SMALL_TEXT = {"filters": 4, "capsules": 4, "capsule_dim": 4, "ngrams": (2,), "dropout": 0.0, "word_dropout": 0.0}


@pytest.fixture(scope="module")
def digits():
    return load_digits()


@pytest.fixture(scope="module")
def vectors(digits):
    """A classifier of vectors that learned from the first 1,300 digits."""
    return tc.CapsuleClassifier(epochs=8, random_state=0).fit(digits.data[:1300], digits.target[:1300])


@pytest.fixture(scope="module")
def films():
    texts = [f"a {'good' if n % 2 else 'bad'} film number {n % 5}" for n in range(60)]
    return texts, np.array(["up" if n % 2 else "down" for n in range(60)])


@pytest.fixture(scope="module")
def critic(films):
    return tc.CapsuleTextClassifier("text", epochs=30, batch_size=20, options=SMALL_TEXT, random_state=0).fit(*films)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")  # array_api needs SCIPY_ARRAY_API
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.EstimatorCheckFailedWarning")
def test_check_estimator_passes():
    """One check is expected to fail: networks learn in batches, so that a weight of two is not a second example."""
    known = {"check_sample_weight_equivalence_on_dense_data": "batches"}
    results = check_estimator(tc.CapsuleClassifier(epochs=10), on_fail=None, expected_failed_checks=known)
    assert len(results) > 50
    assert [found["check_name"] for found in results if found["status"] == "failed"] == []
    skipped = {found["check_name"] for found in results if found["status"] == "skipped"}
    assert skipped <= {"check_array_api_input"}  # which sklearn 1.6 does not have


def test_vectors_of_digits_are_learned(vectors, digits):
    assert vectors.score(digits.data[1300:], digits.target[1300:]) > 0.9
    assert isinstance(vectors.model_, VectorCapsules)
    assert vectors.n_features_in_ == 64
    assert vectors.classes_.tolist() == list(range(10))


def test_images_of_digits_are_learned(digits):
    odd = slice(1, None, 2)  # writers come in blocks
    found = tc.CapsuleClassifier(epochs=6, random_state=0).fit(digits.images[::2], digits.target[::2])
    assert found.score(digits.images[odd], digits.target[odd]) > 0.95
    assert found.model_.image_shape == (1, 8, 8)


def test_probabilities_are_activations_divided_by_their_sum(vectors, digits):
    few, known = digits.data[:7], digits.data[:1300]
    activations = vectors.decision_function(few)
    standard = (few - known.mean(0)) / np.where(known.std(0) > 0, known.std(0), 1)
    with torch.no_grad():
        expected = vectors.model_(torch.from_numpy(standard).float()[..., None, None]).activations
    np.testing.assert_allclose(activations, expected, atol=1e-5)
    np.testing.assert_allclose(vectors.predict_proba(few), activations / activations.sum(1, keepdims=True))
    assert (vectors.predict(few) == activations.argmax(1)).all()


def test_silent_classes_share_the_probability(vectors, digits, monkeypatch):
    monkeypatch.setattr(type(vectors), "_activations", lambda self, X: np.zeros((len(X), 10)))
    np.testing.assert_array_equal(vectors.predict_proba(digits.data[:2]), np.full((2, 10), 0.1))


def test_equal_seeds_give_equal_networks_and_leave_the_generator_alone(digits):
    state = torch.random.get_rng_state()
    few = digits.data[:60], digits.target[:60]
    found = [tc.CapsuleClassifier(epochs=1, random_state=seed).fit(*few) for seed in (3, 3, 4)]
    assert torch.equal(torch.random.get_rng_state(), state)
    first, again, other = (each.predict_proba(digits.data) for each in found)
    assert (first == again).all()
    assert not np.allclose(first, other)


def test_clones_and_pickles(vectors, digits):
    fresh = clone(vectors.set_params(epochs=8))
    assert fresh.get_params() == vectors.get_params()
    assert not hasattr(fresh, "model_")
    again = pickle.loads(pickle.dumps(vectors))
    assert (again.predict_proba(digits.data[:9]) == vectors.predict_proba(digits.data[:9])).all()


def test_color_images_names_and_options(digits):
    images = np.stack([digits.images[:80]] * 3, 1).astype(np.uint8)
    names = np.array([f"no. {label}" for label in digits.target[:80]])
    found = tc.CapsuleClassifier(
        routing="em", iterations=1, options={"capsules": 4}, reconstruction=0.0005, augment="shift", **TINY
    ).fit(images, names)
    assert found.model_.image_shape == (3, 8, 8)
    assert found.model_.routed_layers[0].transform.in_capsules == 4
    assert found.model_.routed_layers[0].routing.name == "em"
    assert found.model_.decoder is not None
    assert set(found.predict(images)) <= set(names)


def test_a_plain_network_is_an_estimator_too(digits):
    few = digits.images[:80], digits.target[:80]
    found = tc.CapsuleClassifier("cnn-small", options={"width": 0.1}, **TINY).fit(*few)
    np.testing.assert_allclose(found.predict_proba(digits.images[:5]).sum(1), 1, rtol=1e-6)


def test_pipelines_searches_and_cross_validation(digits):
    few, labels = digits.data[:120], digits.target[:120]
    pipeline = make_pipeline(MinMaxScaler(), tc.CapsuleClassifier(options={"capsules": 4}, **TINY))
    search = GridSearchCV(pipeline, {"capsuleclassifier__routing": ["dynamic", "uniform"]}, cv=2).fit(few, labels)
    assert search.best_params_["capsuleclassifier__routing"] in ("dynamic", "uniform")
    assert cross_val_score(pipeline, few, labels, cv=2).shape == (2,)


def test_texts_are_learned(critic, films):
    texts, labels = films
    assert critic.score(texts, labels) > 0.95
    assert critic.predict(["good", "bad"]).tolist() == ["up", "down"]
    again = pickle.loads(pickle.dumps(critic))
    np.testing.assert_array_equal(again.predict_proba(texts), critic.predict_proba(texts))
    assert (critic.decision_function(["good", "bad"]) > 0).tolist() == [True, False]


def test_texts_are_cross_validated(films):
    small = tc.CapsuleTextClassifier("text", epochs=1, options=SMALL_TEXT, random_state=0)
    assert cross_val_score(small, *films, cv=2).shape == (2,)


def test_code_of_the_docs_runs():
    text = (Path(__file__).parents[1] / "docs" / "sklearn.md").read_text()
    names = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(block, names)
    assert names["accuracy"] > 0.9
    assert names["best"]["routing"] in ("attention", "dynamic")
    assert names["answer"].tolist() == ["up"]


def test_a_bar_is_shown_only_when_asked_for(digits, capfd):
    few = digits.data[:40], digits.target[:40]
    tc.CapsuleClassifier(**TINY).fit(*few)
    assert "".join(capfd.readouterr()) == ""
    tc.CapsuleClassifier(**TINY, verbose=1).fit(*few)
    assert "epochs: 100%" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("options", "shape", "sentence"),
    [
        ({}, (4, 1, 1, 8, 8), "expected images [n h w] or [n c h w], or vectors [n features], got (4, 1, 1, 8, 8)"),
        ({"model": "efficient"}, (4, 9), "expected images [n h w] or [n c h w] for model, reconstruction and augment"),
        ({"model": "text-a"}, (4, 8, 8), "expected model to be one of 'efficient', 'capsnet'"),
        ({"epochs": 0}, (4, 8, 8), "expected epochs to be a whole number from 1 on, got 0"),
        ({"options": {"sides": 3}}, (4, 8, 8), "got sides"),
    ],
)
def test_mistakes_get_one_sentence(options, shape, sentence):
    with pytest.raises(InputError) as error:
        tc.CapsuleClassifier(**options).fit(np.random.default_rng(0).random(shape), [0, 1, 0, 1])
    assert sentence in str(error.value)


def test_other_shapes_and_other_things_than_texts_are_refused(critic, films):
    images = np.random.default_rng(0).random((8, 8, 8))
    found = tc.CapsuleClassifier("cnn-small", epochs=1, options={"width": 0.1}).fit(images, [0, 1] * 4)
    with pytest.raises(InputError, match=r"expected examples \(8, 8\), as in fit, got \(8, 9\)"):
        found.predict(np.zeros((2, 8, 9)))
    with pytest.raises(InputError, match=r"expected images \[n c h w\], got \(4, 8, 8, 3\), channels last"):
        tc.CapsuleClassifier().fit(np.zeros((4, 8, 8, 3)), [0, 1, 0, 1])
    with pytest.raises(InputError, match=r"expected a list of str, got one str. Pass texts as \[text, ...\]"):
        critic.predict("good")
    with pytest.raises(InputError, match="expected a list of str, got others"):
        critic.predict([1.0])
    with pytest.raises(InputError, match="expected 60 labels, one for each text, got 59"):
        clone(critic).fit(films[0], films[1][1:])
    with pytest.raises(InputError, match="expected at least two classes in y, got 1 class"):
        clone(critic).fit(films[0], ["up"] * 60)


@pytest.mark.parametrize("given", ["class_weight", "balanced", "sample_weight"])
def test_weights_move_answers_towards_rare_classes(given):
    generator = np.random.default_rng(0)
    points = np.concatenate([generator.normal(0, 1, (400, 2)), generator.normal(1, 1, (20, 2))])
    labels = np.repeat(["many", "few"], [400, 20])
    options = {"class_weight": {"class_weight": {"few": 20, "many": 1}}, "balanced": {"class_weight": "balanced"}}
    weights = np.where(labels == "few", 20.0, 1.0) if given == "sample_weight" else None
    plain = tc.CapsuleClassifier(**TINY).fit(points, labels)
    weighted = tc.CapsuleClassifier(**TINY, **options.get(given, {})).fit(points, labels, sample_weight=weights)
    assert (weighted.predict(points) == "few").sum() > (plain.predict(points) == "few").sum() + 20


def test_texts_have_weights_too(films):
    texts, labels = films
    options = {"epochs": 1, "options": SMALL_TEXT, "random_state": 0}
    weights = np.where(labels == "up", 1.0, 0.0)
    found = tc.CapsuleTextClassifier("text", **{**options, "epochs": 20}).fit(texts, labels, sample_weight=weights)
    assert set(found.predict(texts)) == {"up"}


def test_epochs_and_loss_follow_from_the_numbers_of_examples_and_classes():
    few = tc.CapsuleTextClassifier()
    few.classes_, few.many_ = np.arange(3), False
    config = few._config("text", 1000)
    assert config.epochs >= 50
    assert config.loss is None
    few.classes_ = np.arange(150)
    assert few._config("text", 100_000).epochs < config.epochs
    assert few._config("text", 100_000).loss == "cross-entropy"
    few.loss = "margin"
    assert few._config("text", 100_000).loss == "margin"


def test_few_texts_without_vectors_get_a_sentence(films):
    small = tc.CapsuleTextClassifier("text", epochs=1, options=SMALL_TEXT, random_state=0)
    with pytest.warns(UserWarning, match=r"60 texts are few to learn words from; compare with make_pipeline"):
        small.fit(*films)


def test_word_vectors_are_those_of_the_file(films, tmp_path):
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("good 1 0 0\nbad 0 1 0\nnever 0 0 1\n")
    options = {**SMALL_TEXT, "tune": False}
    critic = tc.CapsuleTextClassifier("text", epochs=1, options=options, vectors=str(vectors), random_state=0)
    critic.fit(*films)
    words = critic.vocabulary_.words
    table = critic.model_.words.weight
    assert table.shape == (len(words), 3)
    assert table[words.index("good")].tolist() == [1, 0, 0]
    assert "never" in words  # in no text
    with pytest.raises(InputError, match="expected no option dim beside vectors"):
        tc.CapsuleTextClassifier(options={"dim": 4}, vectors=str(vectors)).fit(*films)


def test_an_encoder_takes_the_place_of_word_vectors_and_stays_as_it_is(films, tmp_path):
    folder = save_text_network(tmp_path / "bert")
    options = {"filters": 16, "capsules": 2, "dropout": 0.1}
    given = {"encoder": str(folder), "epochs": 12, "lr": 1e-2, "batch_size": 16, "random_state": 0, "options": options}
    texts, labels = films
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # texts are not too few beside an encoder
        critic = tc.CapsuleTextClassifier(**given).fit(texts, labels)
    before, after = tc.load_encoder(folder).state_dict(), critic.model_.encoder.state_dict()
    assert all(torch.equal(before[word], after[word]) for word in before)
    assert critic.vocabulary_.words == tc.load_encoder(folder).vocabulary.words
    assert critic.score(texts, labels) > 0.9
    again = clone(critic).fit(texts, labels)
    np.testing.assert_array_equal(again.predict_proba(texts), critic.predict_proba(texts))
    kept = pickle.loads(pickle.dumps(critic))
    np.testing.assert_array_equal(kept.predict_proba(texts[:5]), critic.predict_proba(texts[:5]))


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"vectors": "glove-6b-50d"}, "no vectors beside an encoder, got both"),
        ({"options": {"dim": 4}}, "no option dim beside vectors or an encoder"),
    ],
)
def test_what_contradicts_an_encoder_is_refused(films, more, sentence):
    with pytest.raises(InputError, match=sentence):
        tc.CapsuleTextClassifier(encoder="somewhere", **more).fit(*films)


@pytest.mark.parametrize("model", ["text", "textcnn"])
def test_texts_may_have_several_classes(films, model):
    texts, labels = films
    truth = np.stack([labels == "up", labels == "down", [" 0" in text or " 1" in text for text in texts]], 1).astype(
        int
    )
    options = SMALL_TEXT if model == "text" else {"dropout": 0.0}
    critic = tc.CapsuleTextClassifier(model, epochs=60, batch_size=20, options=options, random_state=0)
    found = critic.fit(texts, truth).predict(texts)
    assert found.shape == truth.shape
    assert (found == truth).mean() > 0.9
    assert critic.score(texts, truth) > 0.7  # all classes of a text
    np.testing.assert_array_equal(critic.predict_proba(texts), critic.decision_function(texts))
