"""What `test_triton` runs of formulas on parents, where Triton's interpreter runs the kernels: TRITON_INTERPRET=1."""

from __future__ import annotations

import functools
import math
import os
import sys

import torch
from triton_checks import close, compared, grid

import torchcaps as tc
from torchcaps.routing.em import EM
from torchcaps.routing.gaussian import Gaussian
from torchcaps.votes.triton import fits
from torchcaps.votes.triton.fits import Density, Floors, Prior, fit

LAUNCHED: list[str] = []
OPTIONS = [
    {"variant": 1}, {"variant": 2}, {"variant": 3}, {"variant": 4}, {"preset": "official"}, {"damping": 0.4},
    {"learned_temperature": True, "inverse_temperature": 0.5}, {"beta_per_dimension": True}, {"sharpness": 0.25},
    {"gradients": "last", "damping": 0.2}, {"leaky": True}, {"hard": True}, {"mass_floor": 0.3, "variance_floor": 0.2},
]  # fmt: skip


def watched(name, *arguments, launch=fits._launch, **more):
    LAUNCHED.append(name)
    launch(name, *arguments, **more)


def layer_of(routing, seed=0, **options):
    torch.manual_seed(seed)
    layer = tc.DenseCapsules(5, 3, 4, 6, routing=routing, **options).double()
    for each in layer.routing.parameters():  # at their first values some gradients are zero
        each.data += 0.1 * torch.randn_like(each)
    return layer


def routings():
    """Layers by kernels against votes that are made and torch's formulas: all options, with masks, over a grid."""
    for options in OPTIONS:
        for mask in (False, True):
            LAUNCHED.clear()
            compared(layer_of("em", **options), grid(2, 5, mask=mask))
            assert LAUNCHED.count("fit_kernel") == 3, LAUNCHED
            assert "density_kernel" in LAUNCHED
            assert "fit_back_kernel" in LAUNCHED
    for covariance in ("diagonal", "spherical", "fixed"):
        LAUNCHED.clear()
        compared(layer_of("gaussian", covariance=covariance), grid(2, 5))
        assert ("fit_kernel" in LAUNCHED) == (covariance == "diagonal")
    conv = tc.ConvCapsules2d(
        2, 3, 4, 4, 3, padding=1, votes="matrix", routing="em", damping=0.1, learned_temperature=True
    )
    compared(conv.double(), grid(2, 3, 4, 2, mask=True))
    return 2 * len(OPTIONS) + 4


def plain(masses, sums, votes, weights, origin, previous, betas, floors, variant, annealing, scale, temperature):
    """The same from the votes themselves, as procedure 1 has it: no scatter about a mean."""
    whole = masses + floors.MASS_FLOOR
    means = (sums + floors.MASS_FLOOR * origin) / whole.unsqueeze(-1)
    means = (1 - floors.DAMPING) * means + floors.DAMPING * previous
    variances = torch.einsum("nij,nijd->njd", weights, (votes - means.unsqueeze(1)) ** 2) / whole.unsqueeze(-1)
    variances = variances + floors.VARIANCE_FLOOR
    use, active, gain = betas
    cost = (use + variances.sqrt().log()).sum(-1) * (whole if variant == 4 else 1)
    chance = torch.sigmoid(temperature * annealing * gain.exp() * (scale * active - cost))
    return whole, means, variances, chance.log()


def formulas():
    """Values and gradients of each formula alone, each result alone and all together."""
    count = 0
    for variant, wide, size, damping in ((4, False, 5, 0.0), (4, True, 16, 0.3), (3, True, 1, 0.3), (2, False, 7, 0.1)):
        torch.manual_seed(size)
        draw = functools.partial(torch.randn, dtype=torch.float64)
        votes, weights = draw(3, 6, 4, size), draw(3, 6, 4).sigmoid().requires_grad_()
        origin, previous = draw(3, 4, size), draw(3, 4, size).requires_grad_()
        betas = [draw(4, size if wide else 1), draw(4), draw(())]
        temperature = torch.tensor(0.7, dtype=torch.float64)
        floors = Floors(0.01, 0.05, damping)
        for each in betas:
            each.requires_grad_()
        leaves = [weights, previous, *betas]

        def torchs(votes=votes, weights=weights, origin=origin, previous=previous, betas=betas, floors=floors,
                   variant=variant, temperature=temperature):  # fmt: skip
            sums = torch.einsum("nij,nijd->njd", weights, votes)
            given = (weights.sum(1), sums, votes, weights, origin, previous, betas, floors, variant)
            return plain(*given, 0.5, 3.0, temperature)

        def kernels(votes=votes, weights=weights, origin=origin, previous=previous, betas=betas, floors=floors,
                    variant=variant, temperature=temperature):  # fmt: skip
            masses, sums = weights.sum(1), torch.einsum("nij,nijd->njd", weights, votes)
            middle = sums / masses.unsqueeze(-1)
            scatter = torch.einsum("nij,nijd->njd", weights, (votes - middle.unsqueeze(1)) ** 2)
            prior = Prior(*betas[:2], temperature, betas[2], 0.5, 3.0, variant == 4)
            return fit(masses, sums, scatter, middle.detach(), origin, previous, floors, prior)

        for chosen in ([0], [1], [2], [3], [0, 1, 2, 3]):
            results = []
            for way in (torchs, kernels):
                found = [way()[number] for number in chosen]
                loss = sum((each**2 * (number + 1)).sum() for number, each in enumerate(found))
                gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
                results.append(
                    [
                        *found,
                        *(
                            torch.zeros_like(leaf) if each is None else each
                            for leaf, each in zip(leaves, gradients, strict=True)
                        ),
                    ]
                )
            for left, right in zip(*results, strict=True):
                close(left, right)
            count += 1
        variances, offset = draw(3, 4, size).exp().requires_grad_(), draw(3, 4).requires_grad_()
        normal = torch.distributions.Normal(torch.zeros((), dtype=torch.float64), variances.sqrt())
        place = draw(3, 4, size)
        expected = 0.3 * normal.log_prob(place).sum(-1) + offset
        precisions, beside = Density.apply(variances, offset, 0.3, size * math.log(2 * math.pi) / 2)
        found = (precisions * place**2).sum(-1) + beside
        close(found, expected)
        for left, right in zip(
            torch.autograd.grad(found.sin().sum(), (variances, offset)),
            torch.autograd.grad(expected.sin().sum(), (variances, offset)),
            strict=True,
        ):
            close(left, right)
    return count


def extremes():
    """No mass at all, votes that agree to the bit, huge logits, huge gradients, NaN, no example, one of several."""
    for poses, activations in ((1e3, 1.0), (1.0, 0.0), (0.0, 1.0), (1e-12, 1e-12)):
        children = grid(2, 5)
        children = children._replace(poses=poses * children.poses, activations=activations * children.activations)
        for options in ({"inverse_temperature": 50.0}, {"inverse_temperature": 0.0}, {}):
            compared(layer_of("em", **options), children, 1e-6)
    floors, one = Floors(0.0, 0.0), torch.ones(1, 1, 1)
    masses = torch.full((1, 1), 1e-20, requires_grad=True)
    sums = torch.full((1, 1, 1), 1e-20, requires_grad=True)
    means = fit(masses, sums, one, one, None, None, floors, None)[1]
    (found,) = torch.autograd.grad(means, sums, torch.full_like(means, 1e30))
    limit = torch.finfo(torch.float32).max ** 0.2
    torch.testing.assert_close(found, torch.full_like(found, limit * 1e20), rtol=1e-3, atol=0)
    means = fit(masses, sums, one, one, None, None, floors, None)[1]
    assert torch.autograd.grad(means, sums, torch.full_like(means, torch.nan))[0].isnan().all()
    os.environ["TORCHCAPS_TRITON"] = "1"
    empty = tc.DenseCapsules(5, 3, 4, 6, routing="em")(tc.Capsules(torch.randn(0, 5, 4), torch.rand(0, 5)))
    assert empty.poses.shape == (0, 3, 6)
    return 15


class OwnPrior(EM):
    def _log_prior(self, masses, covariances, step):
        return -masses - covariances.sum(-1)


class OwnDamp(EM):
    def _damp(self, means, previous):
        return means * 0.5


class OwnAnnealing(EM):
    def annealing(self, step):
        return 7.0


class OwnUpdate(EM):
    def update(self, votes, weights, previous, step, origin=None):
        found = super().update(votes, weights, previous, step, origin)
        return found._replace(log_prior=found.log_prior * 2)


class Same(EM):
    pass


def subclasses():
    """A method that a subclass or an instance overrides is used; a class that changes nothing is fused."""
    torch.manual_seed(0)
    children = grid(2, 5)
    cases = ((OwnPrior, 3), (OwnDamp, 0), (OwnAnnealing, 3), (OwnUpdate, 3), (Same, 3))
    for kind, launches in cases:
        LAUNCHED.clear()
        layer = layer_of(kind(3, out_capsules=3, out_dim=6, damping=0.2, inverse_temperature=0.5))
        compared(layer, children)
        assert LAUNCHED.count("fit_kernel") == launches, (kind, LAUNCHED)
        os.environ["TORCHCAPS_TRITON"] = "1"
        said = layer.plan(children).unfused
        assert said == (None if launches else "OwnDamp has its own _damp"), said
        assert launches or "clusters by torch: OwnDamp" in str(layer.plan(children))
    for name, launches in (("_damp", 0), ("_log_prior", 3)):
        for wrapped in (False, True):
            layer = layer_of("em", damping=0.2, inverse_temperature=0.5)
            before = getattr(layer.routing, name)

            def mine(*given, before=before):
                return before(*given) * 0.5

            setattr(layer.routing, name, functools.wraps(before)(mine) if wrapped else mine)
            LAUNCHED.clear()
            compared(layer, children)
            assert LAUNCHED.count("fit_kernel") == launches, LAUNCHED
    LAUNCHED.clear()
    assert "spherical" in Gaussian(covariance="spherical").why_not_fused()
    return len(cases) + 4


if __name__ == "__main__":
    torch.manual_seed(0)
    fits._launch = watched
    what = {"routings": routings, "formulas": formulas, "extremes": extremes, "subclasses": subclasses}
    print(f"{what[sys.argv[1]]()} checked")
