"""What words say for classes by themselves, beside the capsules of `text`."""

import itertools
import math

import pytest
import torch

import torchcaps as tc
from torchcaps.models import readout_of
from torchcaps.models.evidence import ALONE, PAIRS, SCALE, SPREAD, WordEvidence, with_evidence
from torchcaps.models.tokens import TextEncoder
from torchcaps.train.rates import parameter_groups

TEXTS = torch.tensor([[5, 1, 7, 5, 9, 3], [4, 8, 0, 0, 0, 0], [6, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]])
SIZES = {"filters": 6, "capsules": 2, "capsule_dim": 4, "dim": 6}


def filled(vocabulary=12, classes=3):
    torch.manual_seed(0)
    evidence = WordEvidence(vocabulary, classes).double()
    for parameter in evidence.parameters():
        torch.nn.init.normal_(parameter)
    return evidence


def text(classes=3, name="text", **options):
    torch.manual_seed(0)
    model = tc.create_model(name, vocabulary=12, classes=classes, **SIZES, **options).double().eval()
    if model.evidence is not None:
        model.evidence.load_state_dict(filled(classes=classes).state_dict())
    return model


def by_loops(evidence, tokens):
    """The evidence of one text in plain Python: known words and pairs of them, over the root of the number of all."""
    words = [token for token in tokens.tolist() if token]
    units = [(evidence.words.weight[word], word != 1) for word in words]
    for first, second in itertools.pairwise(words):
        units.append((evidence.pairs.weight[(first * SPREAD + second) % PAIRS], 1 not in (first, second)))
    rank = evidence.words.embedding_dim
    total = [sum(float(row[k]) for row, known in units if known) / math.sqrt(max(1, len(units))) for k in range(rank)]
    weight, bias = evidence.classes.weight.tolist(), evidence.classes.bias.tolist()
    return [
        SCALE * (b + sum(w * x for w, x in zip(row, total, strict=True))) for row, b in zip(weight, bias, strict=True)
    ]


@torch.no_grad()
def test_evidence_is_the_sum_of_known_words_and_pairs():
    evidence = filled()
    expected = torch.tensor([by_loops(evidence, row) for row in TEXTS], dtype=torch.float64)
    torch.testing.assert_close(evidence(TEXTS), expected, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(evidence(TEXTS.int()), expected, rtol=1e-9, atol=1e-10)


@torch.no_grad()
def test_an_unknown_word_says_nothing_but_separates_its_neighbors():
    evidence = filled()
    bias = SCALE * evidence.classes.bias
    alone = evidence(torch.tensor([[5], [7]])) - bias
    between = evidence(torch.tensor([[5, 1, 7]])) - bias
    torch.testing.assert_close(between[0] * math.sqrt(5), alone.sum(0))


def test_no_word_says_anything_before_training():
    assert not WordEvidence(12, 3)(TEXTS).any()


def test_tables_are_bounded_whatever_the_number_of_classes():
    with torch.device("meta"):
        large, small = WordEvidence(100_000, 1000), WordEvidence(10_000, 2)
    assert sum(parameter.numel() for parameter in large.parameters()) < 11e6
    assert sum(parameter.numel() for parameter in small.parameters()) < 1e6


@pytest.mark.parametrize("routing", ["dynamic", "attention", "em", "gaussian"])
@torch.no_grad()
def test_log_odds_of_a_class_are_the_mean_of_capsules_and_words(routing):
    model = text(routing=routing)
    found = model(TEXTS)
    said, model.evidence = model.evidence(TEXTS), None
    own = model(TEXTS)
    if routing == "gaussian":  # shares
        weights = own.activations.sqrt() * (said / 2).exp()
        expected = own.activations.sum(1, keepdim=True) * weights / weights.sum(1, keepdim=True)
    else:
        odds = own.activations / (1 - own.activations) * said.exp()
        expected = odds.sqrt() / (1 + odds.sqrt())
    torch.testing.assert_close(found.activations, expected, rtol=1e-6, atol=1e-6)
    if routing in ("dynamic", "attention"):
        torch.testing.assert_close(found.poses.norm(dim=-1), found.activations, rtol=1e-9, atol=1e-12)
        cosine = torch.cosine_similarity(found.poses, own.poses, dim=-1)
        torch.testing.assert_close(cosine, torch.ones_like(cosine))


@torch.no_grad()
def test_padding_never_changes_the_evidence_of_a_text():
    model = text()
    together = model(TEXTS)
    wider = model(torch.nn.functional.pad(TEXTS, (0, 9)))
    torch.testing.assert_close(wider[:2], together[:2], rtol=1e-12, atol=1e-14)
    for row, length in enumerate((6, 2, 1)):
        alone = model(TEXTS[row : row + 1, :length])
        torch.testing.assert_close(alone.activations[0], together.activations[row], rtol=1e-10, atol=1e-13)


@torch.no_grad()
def test_in_training_some_examples_are_answered_by_one_side_alone():
    torch.manual_seed(0)
    own, evidence = torch.full((4000, 2), 0.25), torch.full((4000, 2), 3.0)
    capsules = tc.Capsules(own.unsqueeze(-1), own, None)
    active = with_evidence(capsules, evidence, "length", training=True).activations[:, 0]
    sides = {"capsules": 0.25, "words": 1 / (1 + math.exp(-3)), "both": 1 / (1 + math.exp((math.log(3) - 3) / 2))}
    shares = {side: (active - value).abs().lt(1e-5).double().mean() for side, value in sides.items()}
    for side, share in shares.items():
        assert share == pytest.approx(1 - 2 * ALONE if side == "both" else ALONE, abs=0.03)
    steady = with_evidence(capsules, evidence, "length", training=False).activations
    torch.testing.assert_close(steady, torch.full_like(steady, sides["both"]))


def test_only_text_has_evidence_by_default_and_none_beside_an_encoder():
    assert text().evidence is not None
    assert text(word_evidence=False).evidence is None
    assert text(name="text-a").evidence is None
    assert text(name="text-b", word_evidence=True).evidence is not None
    encoder = TextEncoder(torch.nn.Identity(), "test", dim=8, tokens=12)
    assert tc.create_model("text", vocabulary=12, classes=3, encoder=encoder).evidence is None


def test_tables_decay_faster_than_other_parameters():
    model = text()
    groups = parameter_groups(model, 0.1, weight_decay=0.01)
    tables = set(model.evidence.parameters())
    for group in groups:
        assert group.get("weight_decay", 0.01) == pytest.approx(0.3 if tables & set(group["params"]) else 0.01)
    listed = [parameter for group in groups for parameter in group["params"]]
    assert len(listed) == len(set(listed)) == len(list(model.parameters()))


def test_words_learn_what_a_text_is_about_and_are_named():
    """Without capsules' help: after training, the evidence alone tells the class by its one telling word."""
    torch.manual_seed(0)
    model = tc.create_model("text", vocabulary=12, classes=2, **SIZES).train()
    tokens, labels = torch.randint(4, 12, (40, 9)), torch.arange(40) % 2
    tokens[:, 3] = 2 + labels
    optimizer = torch.optim.AdamW(parameter_groups(model, 0.01, weight_decay=0.01))
    for _ in range(60):
        loss = torch.nn.functional.cross_entropy(torch.logit(model(tokens).activations, eps=1e-6), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    said = model.eval().evidence(torch.tensor([[2], [3], [1]])) - SCALE * model.evidence.classes.bias
    assert said[0, 0] > said[0, 1]
    assert said[1, 1] > said[1, 0]
    assert not said[2].any()
    assert readout_of(model) == "length"
