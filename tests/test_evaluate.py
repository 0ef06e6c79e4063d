"""Figures of an evaluation against scikit-learn and hand-computed numbers."""

import warnings

import pytest
import torch
from scipy.stats import binomtest
from sklearn.metrics import (
    accuracy_score,
    balanced_accuracy_score,
    confusion_matrix,
    f1_score,
    precision_recall_fscore_support,
    precision_score,
    recall_score,
)

import torchcaps as tc
from torchcaps.analysis.evaluate import Evaluation, evaluate, hits, scores, wilson_interval
from torchcaps.data import ImageSet


def test_hits_ask_for_all_classes_of_an_image_and_no_other():
    activations = torch.tensor([[0.9, 0.8, 0.1], [0.9, 0.1, 0.8], [0.1, 0.2, 0.9]])
    assert hits(activations, torch.tensor([0, 0, 1])).tolist() == [True, True, False]
    assert hits(activations, torch.tensor([[1, 0], [0, 1], [2, 1]])).tolist() == [True, False, True]


def test_wilson_interval_is_the_published_formula():
    # Agresti and Coull 1998: no success in 15 trials.
    assert wilson_interval(0, 15) == pytest.approx((0, 0.2039), abs=1e-4)
    for successes, count in ((50, 1000), (1, 3), (997, 1000)):
        oracle = binomtest(successes, count).proportion_ci(method="wilson")
        assert wilson_interval(successes, count) == pytest.approx((oracle.low, oracle.high), abs=1e-6)
    assert wilson_interval(0, 0) == (0, 1)


def test_tables_agree_with_scikit_learn():
    torch.manual_seed(0)
    labels = torch.randint(4, (200,))
    activations = torch.rand(200, 4) + 0.5 * torch.nn.functional.one_hot(labels, 4)
    result = Evaluation(("a", "b", "c", "d"), labels[:, None], activations, None)
    truth, answers = labels.numpy(), activations.argmax(-1).numpy()
    assert result.accuracy == pytest.approx(accuracy_score(truth, answers))
    assert (result.confusion.numpy() == confusion_matrix(truth, answers)).all()
    recall, precision = recall_score(truth, answers, average=None), precision_score(truth, answers, average=None)
    for row, (_, count, found, sure) in enumerate(result.per_class()):
        assert count == (truth == row).sum()
        assert (found, sure) == pytest.approx((recall[row], precision[row]))


def test_evaluation_covers_every_image_once_and_leaves_the_model_as_it_was():
    images = torch.randint(256, (7, 1, 20, 20), dtype=torch.uint8)
    data = ImageSet(images, torch.arange(7) % 3, ("a", "b", "c"))
    model = tc.create_model(image_shape=(1, 20, 20), classes=3).train()
    result = evaluate(model, data, batch_size=3)
    assert model.training
    assert (result.count, len(result.reconstruction_error)) == (7, 7)
    with torch.no_grad():
        capsules = model.eval()(images.float() / 255)
        drawn = model.reconstruct(capsules)
    torch.testing.assert_close(result.activations, capsules.activations)
    torch.testing.assert_close(result.reconstruction_error, (drawn - images.float() / 255).square().mean((1, 2, 3)))


@pytest.mark.parametrize("seed", range(3))
def test_scores_of_many_labels_equal_scikit_learn(seed):
    generator = torch.Generator().manual_seed(seed)
    shown, said = (torch.rand(40, 5, generator=generator) < share for share in (0.3, 0.4))
    shown[:, 4], said[:, 3], shown[0] = False, False, False
    found = scores(shown, said)
    assert found["exact_match"] == pytest.approx(accuracy_score(shown.numpy(), said.numpy()))
    for average in ("samples", "micro", "macro"):
        expected = precision_recall_fscore_support(shown.numpy(), said.numpy(), average=average, zero_division=0)
        for word, value in zip(("precision", "recall", "f1"), expected[:3], strict=True):
            assert found[f"{word}_{average}"] == pytest.approx(value), (word, average)


def test_truth_values_are_right_only_where_all_classes_are():
    activations = torch.tensor([[0.9, 0.1, 0.7], [0.9, 0.6, 0.1], [0.2, 0.1, 0.4]])
    labels = torch.tensor([[True, False, True], [True, False, False], [False, False, False]])
    assert hits(activations, labels).tolist() == [True, False, True]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_balanced_accuracy_and_macro_f1_equal_scikit_learn(seed):
    torch.manual_seed(seed)
    labels = torch.randint(4, (60,)) * (torch.rand(60) < 0.5)  # class 0 is common, class 4 does not occur
    activations = torch.rand(60, 5)
    found = Evaluation(tuple("abcde"), labels.unsqueeze(-1), activations, None)
    said = activations.argmax(-1).numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # answers of a class that does not occur
        assert found.balanced_accuracy == pytest.approx(balanced_accuracy_score(labels.numpy(), said))
    expected = f1_score(labels.numpy(), said, average="macro", labels=labels.unique().numpy())
    assert found.macro_f1 == pytest.approx(expected)


def test_a_network_with_one_answer_for_everything_is_found_out():
    labels = torch.tensor([0, 0, 0, 1]).unsqueeze(-1)
    same = torch.tensor([[0.9, 0.1]]).expand(4, 2)
    assert Evaluation(("cat", "dog"), labels, same, None).only_answer == "cat"
    assert Evaluation(("cat", "dog"), labels * 0, same, None).only_answer is None  # it is right
    assert Evaluation(("cat", "dog"), labels, torch.eye(2)[labels[:, 0]], None).only_answer is None
