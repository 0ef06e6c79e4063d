"""One list of routings, one contract; and broken routings that the contract must catch."""

import copy

import pytest
import torch

import torchcaps as tc
from torchcaps._core.types import Routed
from torchcaps.routing import Dynamic, Routing
from torchcaps.routing.contract import ContractError

OPTIONS = {
    "dynamic": [
        {},
        {"iterations": 1},
        {"accumulate": False},
        {"sharpness": 0.3},
        {"sharpness": 0.3, "accumulate": False},
        {"leaky": True},
        {"leaky": True, "accumulate": False},
        {"amendment": True},
        {"amendment": True, "accumulate": False},
        {"bias": True, "out_capsules": 3, "out_dim": 4},
        {"sampling": 0.5},
        {"gradients": "last"},
        {"hard": True},
        {"hard": True, "accumulate": False},
        {"hard": True, "leaky": True},
        *({"squash": kind, "iterations": 5} for kind in tc.SQUASHES),
    ],
    "kmeans": [
        {},
        {"iterations": 6},
        {"hard": True},
        {"hard": True, "leaky": True},
        {"leaky": True},
        {"sampling": 0.5},
        {"gradients": "last"},
        {"distance": "inner"},
        {"distance": "inner", "sharpness": 4.0, "iterations": 6},
        {"distance": "inner", "hard": True},
    ],
    "entropy": [
        {},
        {"entropy_weight": 0.3, "iterations": 6},
        {"entropy_weight": [1.0, 0.3]},
        {"entropy_decay": 0.5},
        {"leaky": True},
        {"sampling": 0.5},
        {"gradients": "last"},
    ],
    "gaussian": [
        *({"covariance": kind, "iterations": 5} for kind in ("full", "diagonal", "spherical", "fixed")),
        {"hard": True},
        {"leaky": True},
        {"sampling": 0.5},
        {"gradients": "last"},
    ],
    "em": [
        {"variant": 1},
        *({"variant": variant, "out_capsules": 3} for variant in (2, 3, 4)),
        {"preset": "official", "out_capsules": 3},
        {"preset": "official-class", "out_capsules": 3},
        {"beta_per_dimension": True, "out_capsules": 3, "out_dim": 4},
        {"out_capsules": 3, "inverse_temperature": 1.0},
        {"out_capsules": 3, "inverse_temperature": 1.0, "learned_temperature": True},
        {"out_capsules": 3, "sharpness": 0.25},
        {"out_capsules": 3, "hard": True},
        {"out_capsules": 3, "leaky": True},
        {"out_capsules": 3, "sampling": 0.5},
        {"out_capsules": 3, "gradients": "last"},
    ],
    "heinsen": [
        {"out_capsules": 3},
        {"out_capsules": 3, "in_capsules": 6, "beta_use": 0.4, "beta_ignore": 0.1},
        *({"out_capsules": 3, "beta_use": 0.4, "covariance": kind} for kind in ("full", "spherical", "fixed")),
        {"out_capsules": 3, "hard": True},
        {"out_capsules": 3, "leaky": True, "beta_ignore": 0.3},
        {"out_capsules": 3, "sampling": 0.5},
        {"out_capsules": 3, "gradients": "last"},
    ],
    "variational": [
        {"out_capsules": 3, "iterations": 6},
        {"out_capsules": 3, "concentration": 0.1, "mean_strength": 0.01, "degrees": 0.5, "prior_variance": 0.1},
        {"out_capsules": 3, "hard": True, "iterations": 6},
        {"out_capsules": 3, "leaky": True},
        {"out_capsules": 3, "sampling": 0.5},
        {"out_capsules": 3, "gradients": "last"},
    ],
    "kde": [
        {},
        {"bandwidth": 10.0, "iterations": 8},
        {"bandwidth": 20.0, "tolerance": 0.0, "iterations": 8},
        {"bandwidth": 25.0, "kernel": "epanechnikov", "tolerance": 0.0, "iterations": 8},
        {"bandwidth": 10.0, "hard": True},
        {"bandwidth": 10.0, "leaky": True},
        {"sampling": 0.5},
        {"gradients": "last"},
    ],
    "inverted": [
        {"out_dim": 4},
        {"out_dim": 4, "iterations": 6},
        {"out_dim": 4, "hard": True, "iterations": 6},
        {"out_dim": 4, "leaky": True, "iterations": 6},
        {"out_dim": 4, "sampling": 0.5},
        {"out_dim": 4, "gradients": "last"},
    ],
    "attention": [
        {"prior": False},
        {"in_capsules": 6, "out_capsules": 3},
        {"prior": False, "leaky": True},
        {"prior": False, "hard": True},
        {"prior": False, "sampling": 0.5},
    ],
    "uniform": [{}, {"bias": True, "out_capsules": 3, "out_dim": 4}, {"leaky": True}, {"amendment": True}],
}


def test_every_routing_is_under_contract():
    assert set(OPTIONS) == set(tc.ROUTINGS)


@pytest.mark.parametrize(
    ("name", "options"),
    [(name, options) for name, variants in OPTIONS.items() for options in variants],
    ids=lambda value: value if isinstance(value, str) else ",".join(f"{k}={v}" for k, v in value.items()),
)
def test_routing_keeps_the_contract(name, options):
    assert "gradients" in tc.check_routing(tc.make_routing(name, **options))


def test_check_routing_leaves_the_routing_alone():
    routing = tc.make_routing("em", out_capsules=3)
    torch.nn.init.normal_(routing.beta_use)
    before = copy.deepcopy(routing.state_dict())
    tc.check_routing(routing)
    assert routing.training
    torch.testing.assert_close(routing.state_dict(), before)


class OverChildren(Dynamic):
    def compete(self, scores, mask, kept, over_parents):
        return scores.softmax(-2)


class BatchSharedScores(Dynamic):
    def assign(self, votes, clusters, scores, step):
        own = super().assign(votes, clusters, scores, step)
        return own.mean(0, keepdim=True).expand_as(own) if own.ndim == 3 else own


class CancelledActivations(tc.ROUTINGS["gaussian"]):
    def update(self, votes, weights, previous, step, origin=None):
        return super().update(votes, weights / weights.sum(-1, keepdim=True), previous, step, origin)


class NaNAtZero(Dynamic):
    def read(self, clusters, couplings, weights):
        poses = clusters / clusters.square().sum(-1, keepdim=True).sqrt()
        return Routed(poses, clusters.square().sum(-1), couplings)


class FavoriteParent(Dynamic):
    def initial_scores(self, votes, weights):
        scores = super().initial_scores(votes, weights).clone()
        scores[..., 0] = 1
        return scores


class FirstChildOnly(Dynamic):
    def update(self, votes, weights, previous, step):
        return (weights[..., :1, :, None] * votes[..., :1, :, :]).sum(-3)


class Climber(Dynamic):
    def assign(self, votes, clusters, scores, step):
        return scores - 0.001 * super().assign(votes, clusters, torch.zeros_like(scores), step)


class StopsGradients(Dynamic):
    def assign(self, votes, clusters, scores, step):
        return super().assign(votes, clusters, scores, step).detach()


class MaskBlind(Dynamic):
    def compete(self, scores, mask, kept, over_parents):
        return super().compete(scores, None, kept, over_parents)


class Float32Only(Dynamic):
    def read(self, clusters, couplings, weights):
        return Routed(*(part.float() for part in super().read(clusters, couplings, weights)))

    def _run(self, *arguments):
        return Routed(*(part.float() for part in super()._run(*arguments)))


class NoCouplings(Dynamic):
    def read(self, clusters, couplings, weights):
        return super().read(clusters, couplings[..., 0], weights)


class GainsFromLeak(Dynamic):
    def __init__(self):
        super().__init__(leaky=True)

    def compete(self, scores, mask, kept, over_parents):
        return 3 * super().compete(scores, mask, kept, over_parents)


class DeafToActivations(Dynamic):
    def __init__(self):
        super().__init__(amendment=True)

    def update(self, votes, weights, previous, step):
        return super().update(votes, (weights != 0).to(votes.dtype), previous, step)


class HearsActivationsSecretly(Dynamic):
    def forward(self, votes, activations=None, **options):
        return super().forward(votes if activations is None else votes * activations[..., None, None], **options)


class LiveZeroes(Dynamic):
    def __init__(self):
        super().__init__(amendment=True)

    def update(self, votes, weights, previous, step):
        return super().update(votes, weights + 0.1, previous, step)


class ShortTrace(Dynamic):
    def trace(self, *arguments, **options):
        return super().trace(*arguments, **options)[1:]


class OtherTrace(Dynamic):
    def trace(self, votes, *arguments, **options):
        return super().trace(2 * votes, *arguments, **options)


class NotLast(Dynamic):
    def __init__(self):
        super().__init__(gradients="last")

    def _iterate(self, *arguments):
        self.gradients = "all"
        routed = super()._iterate(*arguments)
        self.gradients = "last"
        return routed


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (OverChildren, "must sum to one"),
        (BatchSharedScores, "batch mates"),
        (CancelledActivations, "activation|masked"),
        (NaNAtZero, "finite"),
        (FavoriteParent, "permuting the parents"),
        (FirstChildOnly, "order of the children"),
        (Climber, "never rise"),
        (StopsGradients, "finite differences"),
        (MaskBlind, "masked child"),
        (Float32Only, "must give parents of"),
        (NoCouplings, "must give poses, activations, couplings"),
        (GainsFromLeak, "at most one"),
        (DeafToActivations, "must matter while"),
        (HearsActivationsSecretly, "must not matter while"),
        (LiveZeroes, "activation zero|masked"),
        (ShortTrace, "one step for each iteration"),
        (OtherTrace, "end with what a call gives"),
        (NotLast, "couplings as constants"),
    ],
)
def test_contract_catches_a_broken_routing(broken, sentence):
    with pytest.raises(ContractError, match=sentence):
        tc.check_routing(broken())


class TenLines(Routing):
    """A routing as a user would write it: means by city-block distance."""

    def update(self, votes, weights, previous, step):
        return (weights.unsqueeze(-1) * votes).sum(-3) / weights.sum(-2).unsqueeze(-1).clamp(min=1e-6)

    def assign(self, votes, clusters, scores, step):
        return -(votes - clusters.unsqueeze(-3)).abs().sum(-1)

    def read(self, clusters, couplings, weights):
        shares = couplings.sum(-2) / weights.sum(-1, keepdim=True).clamp(min=1e-6)
        return Routed(clusters, shares, couplings)


def test_a_user_routing_passes_the_contract_and_works_in_a_layer():
    tc.check_routing(TenLines())
    layer = tc.DenseCapsules(6, 3, 4, 5, routing=TenLines(iterations=2))
    assert layer(tc.Capsules(torch.randn(2, 6, 4), torch.rand(2, 6))).poses.shape == (2, 3, 5)


@pytest.mark.filterwarnings("ignore")  # torch's own, from its compiler
def test_contract_can_compare_with_the_compiled_routing():
    assert tc.check_routing(tc.make_routing("uniform"), compile=True)[-1] == "compile"


class AnotherWhenCompiled(Dynamic):
    def read(self, clusters, couplings, weights):
        return super().read(clusters * (2 if torch.compiler.is_compiling() else 1), couplings, weights)


@pytest.mark.filterwarnings("ignore")
def test_contract_catches_a_routing_that_differs_when_compiled():
    with pytest.raises(ContractError, match="compiled self"):
        tc.check_routing(AnotherWhenCompiled(iterations=1), compile=True)


class Unfinished(Routing):
    pass


def test_contract_names_the_check_in_which_a_routing_fails():
    with pytest.raises(ContractError, match="Unfinished failed while shapes was checked: NotImplementedError"):
        tc.check_routing(Unfinished())
