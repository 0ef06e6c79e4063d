"""Probabilities: the temperature is the one that makes the labels most likely, and --threshold and --top-k use it."""

import csv
import json

import pytest
import torch
from scipy.optimize import minimize_scalar

import torchcaps as tc
from tests.support.commands import SMALL, run, save_pictures
from torchcaps.analysis.calibration import best_temperature, calibration_error, probabilities, validated
from torchcaps.data import ImageSet


def answers(count=2000, sharper=3.0):
    """Activations of a network that is too sure: labels are drawn with logits that are smaller by this factor."""
    torch.manual_seed(0)
    logits = torch.randn(count, 5, dtype=torch.float64)
    labels = torch.distributions.Categorical(logits=logits).sample()
    return (sharper * logits).sigmoid(), labels


def test_the_temperature_is_the_most_likely_one():
    activations, labels = answers()

    def loss(log_temperature):
        shares = probabilities(activations, "length", float(torch.tensor(log_temperature).exp()))
        return float(-shares[torch.arange(len(labels)), labels].log().mean())

    exact = torch.tensor(minimize_scalar(loss, bounds=(-3, 3), method="bounded").x).exp()
    found = best_temperature(activations, labels, "length")
    assert found == pytest.approx(float(exact), rel=0.02)
    assert found == pytest.approx(3, rel=0.1)  # the truth


def test_the_temperature_makes_confidence_as_high_as_accuracy():
    activations, labels = answers()
    before = calibration_error(probabilities(activations, "length"), labels)
    after = calibration_error(
        probabilities(activations, "length", best_temperature(activations, labels, "length")), labels
    )
    assert before > 0.2
    assert after < 0.03


def test_probabilities_keep_the_order_of_activations_and_sum_to_one():
    activations = torch.rand(7, 4)
    shares = probabilities(activations, "length", 2.0)
    assert torch.equal(shares.argsort(-1), activations.argsort(-1))
    torch.testing.assert_close(shares.sum(-1), torch.ones(7))
    softmax = torch.randn(3, 4).softmax(-1)
    torch.testing.assert_close(probabilities(softmax, "logit"), softmax)
    torch.testing.assert_close(probabilities(softmax, "share"), softmax)


@pytest.fixture(scope="module")
def squares(tmp_path_factory):
    folder = save_pictures(tmp_path_factory.mktemp("data") / "squares", 120)
    out = tmp_path_factory.mktemp("runs") / "squares"
    assert run("train", folder, *SMALL, "--epochs", 3, "--out", out) == 0
    return folder, out


def test_predict_tells_likely_classes_and_what_it_does_not_know(squares, capsys, tmp_path):
    folder, out = squares
    picture = folder / "left" / "0.png"
    capsys.readouterr()
    assert run("predict", out, picture, "--json", "--top-k", 2) == 0
    [answer] = json.loads(capsys.readouterr().out)
    assert answer["labels"] == ["left", "right"]
    assert sum(answer["probabilities"]) == pytest.approx(1, abs=1e-3)
    assert answer["probabilities"][0] > 0.5
    assert run("predict", out, folder / "left", "--threshold", 1, "--csv", tmp_path / "said.csv") == 0
    assert "do not know" in capsys.readouterr().out
    rows = list(csv.DictReader((tmp_path / "said.csv").read_text().splitlines()))
    assert len(rows) == 120
    assert {"input", "class", "probability", "probability of left", "probability of right"} == set(rows[0])
    unsure = [row for row in rows if float(row["probability of left"]) < 1]
    assert all(row["class"] == "do not know" for row in unsure)


def test_impossible_wishes_are_told(squares, capsys):
    folder, out = squares
    picture = folder / "left" / "0.png"
    assert run("predict", out, picture, "--top-k", 0) == 2
    assert run("predict", out, picture, "--threshold", 1.5) == 2
    assert "threshold" in capsys.readouterr().err
    old = json.loads((out / "metadata.json").read_text())
    (out / "metadata.json").write_text(json.dumps({**old, "temperature": None}))
    assert run("predict", out, picture, "--top-k", 2) == 2
    assert "--top-k: expected a run with probabilities" in capsys.readouterr().err
    (out / "metadata.json").write_text(json.dumps(old))


@pytest.mark.parametrize(("tells", "stored"), [(True, True), (False, False)])
def test_a_limit_of_reconstructions_is_kept_only_where_it_tells_unknown_classes(tells, stored):
    class Drawn(tc.models.ImageModel):
        """Class k is an image of brightness k / 4, reconstructed as such, or always by gray."""

        readout = "length"

        def forward(self, images):
            near = 1 - 4 * (images.mean((1, 2, 3))[:, None] - torch.arange(4) / 4).abs()
            return tc.Capsules(torch.zeros(len(images), 4, 16), near.clamp(0.01, 0.99))

        def reconstruct(self, capsules, labels=None, *, top=None):
            best = capsules.activations.argmax(1) if labels is None else labels
            drawn = (best / 4 if tells else torch.full_like(best, 0.4, dtype=torch.float32))[:, None, None, None]
            drawn = drawn.expand(-1, 1, 4, 4)
            return drawn if top is None else drawn[:, None]

    labels = torch.arange(40) % 4
    images = (labels * 64)[:, None, None, None].expand(-1, 1, 4, 4).to(torch.uint8).contiguous()
    model = Drawn((1, 4, 4), 4, tc.DenseDecoder(4, 16, (1, 4, 4)))
    found = validated(model, ImageSet(images, labels, tuple("abcd")))
    assert ("fits" in found) == stored
    assert "temperature" in found
