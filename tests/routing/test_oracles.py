"""Each routing equals its oracle in plain loops: values to 1e-10, gradients to 1e-8, in float64."""

import math

import pytest
import torch

import torchcaps as tc
from tests import oracles
from tests.oracles.kde import epanechnikov

CHILDREN, PARENTS, DIM = 5, 3, 4


def start_couplings():
    return torch.rand(CHILDREN, PARENTS, dtype=torch.float64, generator=torch.Generator().manual_seed(5)).softmax(-1)


# routing name, its options, the oracle as a function of votes, activations and the routing's learned numbers
CASES = [
    ("dynamic", {}, lambda u, a, p: oracles.dynamic(u, a)),
    ("dynamic", {"iterations": 1}, lambda u, a, p: oracles.dynamic(u, a, r=1)),
    ("dynamic", {"iterations": 5}, lambda u, a, p: oracles.dynamic(u, a, r=5)),
    ("dynamic", {"accumulate": False}, lambda u, a, p: oracles.dynamic(u, a, accumulate=False)),
    ("dynamic", {"sharpness": 0.3}, lambda u, a, p: oracles.dynamic(u, a, alpha=0.3)),
    (
        "dynamic",
        {"sharpness": 0.5, "accumulate": False, "iterations": 5},
        lambda u, a, p: oracles.dynamic(u, a, r=5, accumulate=False, alpha=0.5),
    ),
    ("dynamic", {"leaky": True}, lambda u, a, p: oracles.dynamic(u, a, leaky=True)),
    ("dynamic", {"amendment": True}, lambda u, a, p: oracles.dynamic(u, a, amendment=True)),
    (
        "dynamic",
        {"amendment": True, "leaky": True},
        lambda u, a, p: oracles.dynamic(u, a, amendment=True, leaky=True),
    ),
    (
        "dynamic",
        {"bias": True, "out_capsules": PARENTS, "out_dim": DIM},
        lambda u, a, p: oracles.dynamic(u, a, bias=p["bias"]),
    ),
    (
        "dynamic",
        {"hard": True, "accumulate": False},
        lambda u, a, p: oracles.dynamic(u, a, hard=True, accumulate=False),
    ),
    *[
        ("dynamic", {"squash": kind}, lambda u, a, p, kind=kind: oracles.dynamic(u, a, kind=kind))
        for kind in ("half", "exponential", "tanh", "rational", "none")
    ],
    ("kmeans", {}, lambda u, a, p: oracles.kmeans(u, a)),
    ("kmeans", {"sharpness": 0.3, "iterations": 4}, lambda u, a, p: oracles.kmeans(u, a, r=4, K=0.3)),
    ("kmeans", {"distance": "inner"}, lambda u, a, p: oracles.kmeans(u, a, distance="inner")),
    ("kmeans", {"distance": "inner", "sharpness": 2.5}, lambda u, a, p: oracles.kmeans(u, a, distance="inner", K=2.5)),
    ("kmeans", {"hard": True}, lambda u, a, p: oracles.kmeans(u, a, hard=True)),
    ("entropy", {}, lambda u, a, p: oracles.entropy(u, a)),
    ("entropy", {"entropy_weight": 0.4, "iterations": 4}, lambda u, a, p: oracles.entropy(u, a, (0.4,) * 3)),
    ("entropy", {"entropy_weight": 2.0, "entropy_decay": 0.5}, lambda u, a, p: oracles.entropy(u, a, (2.0, 1.0))),
    ("entropy", {"entropy_weight": [1.0, 0.3]}, lambda u, a, p: oracles.entropy(u, a, (1.0, 0.3))),
    *[
        ("gaussian", {"covariance": kind}, lambda u, a, p, kind=kind: oracles.gaussian(u, a, kind=kind))
        for kind in ("diagonal", "spherical", "full")
    ],
    (
        "gaussian",
        {"covariance": "fixed", "variance": 0.7},
        lambda u, a, p: oracles.gaussian(u, a, kind="fixed", variance=0.7),
    ),
    ("em", {"variant": 1}, lambda u, a, p: oracles.em(u, a, None, None, variant=1)),
    *[
        (
            "em",
            {"variant": variant, "out_capsules": PARENTS},
            lambda u, a, p, variant=variant: oracles.em(
                u, a, p["beta_use"].expand(PARENTS, DIM), p["beta_active"], variant=variant
            ),
        )
        for variant in (2, 3, 4)
    ],
    (
        "em",
        {"beta_per_dimension": True, "out_capsules": PARENTS, "out_dim": DIM, "inverse_temperature": 0.8},
        lambda u, a, p: oracles.em(u, a, p["beta_use"], p["beta_active"], lam=0.8),
    ),
    (
        "em",
        {"out_capsules": PARENTS, "inverse_temperature": 0.5, "inverse_temperature_decay": 0.2, "iterations": 2},
        lambda u, a, p: oracles.em(u, a, p["beta_use"].expand(PARENTS, DIM), p["beta_active"], t=2, lam=0.5, decay=0.2),
    ),
    (
        "em",
        {"out_capsules": PARENTS, "inverse_temperature": 0.3, "iterations": 5},
        lambda u, a, p: oracles.em(u, a, p["beta_use"].expand(PARENTS, DIM), p["beta_active"], t=5, lam=0.3),
    ),
    (
        "em",
        {"out_capsules": PARENTS, "inverse_temperature": 0.3, "sharpness": 0.25},
        lambda u, a, p: oracles.em(u, a, p["beta_use"].expand(PARENTS, DIM), p["beta_active"], lam=0.3, K=0.25),
    ),
    (
        "em",
        {"out_capsules": PARENTS, "inverse_temperature": 0.3, "learned_temperature": True},
        lambda u, a, p: oracles.em(
            u, a, p["beta_use"].expand(PARENTS, DIM), p["beta_active"], lam=0.3 * p["log_gain"].exp()
        ),
    ),
    *[
        (
            "heinsen",
            {"in_capsules": children, "out_capsules": PARENTS, **options},
            lambda u, a, p, words=words: oracles.heinsen(
                u, a, p["beta_use"].expand(CHILDREN, PARENTS), p["beta_ignore"].expand(CHILDREN, PARENTS), **words
            ),
        )
        for children, options, words in (
            (CHILDREN, {}, {}),
            (None, {}, {}),
            (CHILDREN, {"iterations": 5, "variance_floor": 0.1, "mass_floor": 0.02}, {"n": 5, "eps": (0.1, 0.02)}),
            (None, {"covariance": "fixed", "variance": 0.5}, {"p_model": "skm"}),
            (None, {"leaky": True, "covariance": "fixed", "variance": 0.5}, {"p_model": "skm", "leak": True}),
        )
    ],
    *[
        (
            "variational",
            {"out_capsules": PARENTS, **options},
            lambda u, a, p, words=words: oracles.variational(u, a, p["beta_use"], p["beta_active"], **words),
        )
        for options, words in (
            ({}, {}),
            ({"iterations": 5, "inverse_temperature": 0.3}, {"t": 5, "lam": 0.3}),
            ({"sharpness": 0.25}, {"sharp": 0.25}),
            (
                {"concentration": 0.4, "mean_strength": 0.1, "degrees": 3.0, "prior_variance": 0.2},
                {"alpha0": 0.4, "beta0": 0.1, "nu0": 3.0, "variance": 0.2},
            ),
            ({"vote_std": 0.5}, {"variance": 0.25}),
        )
    ],
    *[
        ("kde", options, lambda u, a, p, words=words: oracles.kde(u, a, **words))
        for options, words in (
            ({}, {}),
            ({"iterations": 1}, {"r": 1}),
            ({"iterations": 8, "tolerance": 0.0, "bandwidth": 2.0}, {"r": 8, "tolerance": 0.0, "h": 2.0}),
            ({"iterations": 30, "tolerance": 0.2, "bandwidth": 1.5}, {"r": 30, "tolerance": 0.2, "h": 1.5}),
            (
                {"kernel": "epanechnikov", "bandwidth": 2.5, "sharpness": 5.0, "tolerance": 0.0},
                {"kernel": epanechnikov, "h": 2.5, "alpha": 5.0, "tolerance": 0.0},
            ),
        )
    ],
    *[
        (
            "inverted",
            {"out_dim": DIM, **options},
            lambda u, a, p, words=words: oracles.inverted(
                u, a, p["gain"], p["shift"], p["direction"], p["threshold"], **words
            ),
        )
        for options, words in (({}, {}), ({"iterations": 1}, {"t": 1}), ({"iterations": 5}, {"t": 5}))
    ],
    ("attention", {"prior": False}, lambda u, a, p: oracles.attention(u, a)),
    (
        "attention",
        {"in_capsules": CHILDREN, "out_capsules": PARENTS},
        lambda u, a, p: oracles.attention(u, a, p["prior"]),
    ),
    ("uniform", {}, lambda u, a, p: oracles.uniform(u, a)),
    ("uniform", {"squash": "half"}, lambda u, a, p: oracles.uniform(u, a, kind="half")),
]


def case_name(case):
    return "-".join([case[0], *(f"{word}={value}" for word, value in case[1].items())])


def routing_and_inputs(name, options):
    routing = tc.make_routing(name, **options).double()
    if isinstance(getattr(routing, "inverse_temperature", None), torch.Tensor) and "inverse_temperature" in options:
        # made in float32
        routing.inverse_temperature.fill_(options["inverse_temperature"])
    with torch.no_grad():
        for parameter in routing.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    votes = torch.randn(CHILDREN, PARENTS, DIM, dtype=torch.float64, requires_grad=True)
    activations = (0.2 + torch.rand(CHILDREN, dtype=torch.float64)).requires_grad_()
    return routing, votes, activations


def assert_same_gradients(mine, theirs, inputs):
    directions = [torch.randn_like(part) for part in theirs]
    gradients = [
        torch.autograd.grad(
            sum((part * direction).sum() for part, direction in zip(result, directions, strict=True)),
            inputs,
            allow_unused=True,
            materialize_grads=True,
        )
        for result in (mine, theirs)
    ]
    for ours, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_routing_equals_its_oracle(case):
    name, options, oracle = case
    routing, votes, activations = routing_and_inputs(name, options)
    mine = tuple(routing(votes, activations))
    theirs = oracle(votes, activations, dict(routing.named_parameters()))
    for ours, expected in zip(mine, theirs, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-10)
    assert_same_gradients(mine, theirs, [votes, activations, *routing.parameters()])


def test_every_routing_has_an_oracle():
    assert {case[0] for case in CASES} == set(tc.ROUTINGS)


@pytest.mark.parametrize(
    ("preset", "sigma_bias", "activation_bias"), [("official", 0.5, 0.5), ("official-class", 2.0, 1.0)]
)
def test_em_preset_equals_the_official_procedure(preset, sigma_bias, activation_bias):
    routing = tc.make_routing("em", preset=preset, out_capsules=PARENTS).double()
    votes = torch.randn(CHILDREN, PARENTS, DIM, dtype=torch.float64, requires_grad=True)
    activations = torch.rand(CHILDREN, dtype=torch.float64, requires_grad=True)
    final_beta, eps = (0.01, 1e-7) if preset == "official" else (0.01 / 4, 1e-5)
    theirs = oracles.em_official(
        votes, activations, [sigma_bias] * PARENTS, [activation_bias] * PARENTS, final_beta=final_beta, mass_eps=eps
    )
    with torch.no_grad():  # to the digits of float64; made in float32, and compared as such
        for tensor, exact in (
            (routing.beta_use, sigma_bias * (1 + math.log(2 * math.pi)) / 2),
            (routing.beta_active, -activation_bias),
            (routing.inverse_temperature, 2 * final_beta),
        ):
            torch.testing.assert_close(tensor, torch.full_like(tensor, exact), rtol=1e-6, atol=0)
            tensor.fill_(exact)
    mine = tuple(routing(votes, activations))
    for ours, expected in zip(mine, theirs, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-10)
    assert_same_gradients(mine, theirs, [votes, activations])


@pytest.mark.parametrize("name", ["dynamic", "kmeans", "gaussian", "kde"])
def test_routing_from_given_couplings_equals_its_oracle(name):
    votes = torch.randn(CHILDREN, PARENTS, DIM, dtype=torch.float64)
    activations = torch.rand(CHILDREN, dtype=torch.float64)
    start = start_couplings()
    mine = tc.make_routing(name)(votes, activations, couplings=start)
    theirs = getattr(oracles, name)(votes, activations, start=start)
    for ours, expected in zip(mine, theirs, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["dynamic", "entropy", "kmeans", "gaussian"])
def test_last_gradients_are_those_of_one_update_with_constant_couplings(name):
    votes = torch.randn(CHILDREN, PARENTS, DIM, dtype=torch.float64, requires_grad=True)
    activations = torch.rand(CHILDREN, dtype=torch.float64, requires_grad=True)
    options = {} if name != "entropy" else {"entropy_weight": []}
    mine = tc.make_routing(name, gradients="last")(votes, activations)
    once = tc.make_routing(name, iterations=1, **options)(votes, activations, couplings=mine.couplings.detach())
    torch.testing.assert_close(mine, once)
    assert not mine.couplings.requires_grad
    assert_same_gradients(mine[:2], once[:2], [votes, activations])
