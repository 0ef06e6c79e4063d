"""EM routing clusters votes by Gaussians whose weight is an activation: agreement, not size, makes a parent active.

Hinton, Sabour, Frosst 2018, "Matrix Capsules with EM Routing", procedure 1. The variants are the steps by which
Su Jianlin 2018 (kexue.fm 5155) walks from a Gaussian mixture to that procedure.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid
from typing_extensions import Unpack

from torchcaps._core.errors import check_choice, check_positive, check_range, input_error
from torchcaps._core.types import Activations, Couplings
from torchcaps.routing.checks import Choice, Control, Range, check_idle
from torchcaps.routing.fused import has_kernel
from torchcaps.routing.gaussian import LOG_2PI, Gaussian, Mixture
from torchcaps.routing.sharp import SharpOptions
from torchcaps.votes.algebra import Votes

# The official code writes its activation logit with log variances, so twice our cost at half our temperature, and
# stores beta_active / 2500; beta_use is its sigma bias times half of (1 + log 2 pi).
_OFFICIAL = {"inverse_temperature": 0.02, "damping": 0.1, "variance_floor": 5e-4, "beta_active_scale": 2500.0}
EM_PRESETS: dict[str, dict[str, float]] = {
    "paper": {
        "inverse_temperature": 0.01,
        "damping": 0.0,
        "variance_floor": 1e-4,
        "mass_floor": 1e-7,
        "beta_use": 0.0,
        "beta_active": 0.0,
        "beta_active_scale": 1.0,
    },
    "official": {**_OFFICIAL, "mass_floor": 1e-7, "beta_use": 0.5 * (1 + LOG_2PI) / 2, "beta_active": -0.5},
    "official-class": {
        **_OFFICIAL,
        "inverse_temperature": 0.005,
        "mass_floor": 1e-5,
        "beta_use": 2.0 * (1 + LOG_2PI) / 2,
        "beta_active": -1.0,
    },
}


class EM(Gaussian):
    """EM routing with learned costs.

    variant: 1 is a plain mixture (`gaussian` with diagonal covariance) of children that all count alike, without betas
    and temperature; in 2 the parent's activation replaces pi_j; in 3 child activations weight the votes too; in 4 (the
    paper) the cost of a parent is multiplied by its mass. preset: "paper", or the official code's "official"
    (convolutional layers) and "official-class" (the last layer); other arguments override it. Left out, it is the
    paper's, with initial values that `calibrate` may change. inverse_temperature: the limit for infinitely many
    iterations; iteration t uses it times 1 - inverse_temperature_decay^(t+1). It is a buffer, which may be raised while
    training. learned_temperature: learn a factor of it, one for the layer, which starts at one. damping: the fraction
    of the previous mean in the new one.

    out_capsules: the number of parents, for the learned betas (not needed by variant 1); out_dim: their pose size,
    needed with beta_per_dimension. beta_use, beta_active: initial values of learned costs, one for each parent
    (beta_use also one for each pose dimension with beta_per_dimension). beta_active_scale: a constant factor of
    beta_active; 1 in the paper, 2500 in the official code. vote_std: the expected standard deviation of votes that do
    not agree; beta_use starts at minus its logarithm, so that such votes cost nothing and parents start with activation
    one half. Layers fill in out_capsules, out_dim and vote_std. variance_floor, mass_floor, sharpness: see `Gaussian`;
    left out, the floors are those of the preset.
    """

    inverse_temperature: Tensor
    controls: ClassVar[dict[str, Control]] = {
        "variant": Choice((1, 2, 3, 4), "From a plain mixture (1) to the paper's procedure (4), step by step."),
        "inverse_temperature": Range(0.0, 0.5, "How sharply the cost decides about a parent's activation."),
        "damping": Range(0.0, 0.9, "The share of the mean before that is kept in the new one."),
    }

    def __init__(
        self,
        iterations: int = 3,
        *,
        out_capsules: int | None = None,
        out_dim: int | None = None,
        variant: int = 4,
        preset: str | None = None,
        inverse_temperature: float | None = None,
        inverse_temperature_decay: float = 0.95,
        learned_temperature: bool = False,
        damping: float | None = None,
        variance_floor: float | None = None,
        mass_floor: float | None = None,
        beta_use: float | None = None,
        beta_active: float | None = None,
        beta_active_scale: float | None = None,
        beta_per_dimension: bool = False,
        vote_std: float | None = None,
        **options: Unpack[SharpOptions],
    ) -> None:
        numbers = {"inverse_temperature": inverse_temperature, "beta_use": beta_use}
        given = {word for word, value in numbers.items() if value is not None or preset is not None}
        preset = "paper" if preset is None else preset
        check_choice(self.name, "preset", preset, list(EM_PRESETS))

        def chosen(word: str, value: float | None) -> float:
            return float(EM_PRESETS[preset][word] if value is None else value)

        super().__init__(
            iterations,
            covariance="diagonal",
            variance_floor=chosen("variance_floor", variance_floor),
            mass_floor=chosen("mass_floor", mass_floor),
            **options,
        )
        check_choice(self.name, "variant", variant, [1, 2, 3, 4])
        self.preset = preset
        self.given = given  # what `calibrate` does not change
        check_range(self.name, "inverse_temperature_decay", inverse_temperature_decay, 0, 1)
        self.variant = variant
        self.readout = "share" if variant == 1 else "logistic"
        self.uses_activations = variant >= 3
        self.inverse_temperature_decay = inverse_temperature_decay
        self.damping = chosen("damping", damping)
        check_range(self.name, "damping", self.damping, 0, 1)
        temperature = chosen("inverse_temperature", inverse_temperature)
        check_range(self.name, "inverse_temperature", temperature, 0)
        self.register_buffer("inverse_temperature", torch.tensor(temperature))
        self.log_gain: nn.Parameter | None = None  # of the inverse temperature
        self.learned_temperature = learned_temperature
        if variant == 1:
            costs = {
                "beta_use": beta_use,
                "beta_active": beta_active,
                "beta_active_scale": beta_active_scale,
                "inverse_temperature": inverse_temperature,
            }
            check_idle(
                self.name,
                "with variant=1",
                beta_per_dimension=beta_per_dimension,
                inverse_temperature_decay=inverse_temperature_decay != 0.95,
                learned_temperature=learned_temperature,
                **{word: chosen(word, value) != EM_PRESETS[preset][word] for word, value in costs.items()},
            )
            return
        if out_capsules is None or (beta_per_dimension and out_dim is None):
            got = f"out_capsules={out_capsules}" + (f" and out_dim={out_dim}" if beta_per_dimension else "")
            expected = "out_capsules" + (" and out_dim" if beta_per_dimension else "") + " for its learned betas"
            remedy = 'Pass them, or name the routing in a layer, which knows them: DenseCapsules(..., routing="em").'
            raise input_error(self.name, expected, got, remedy)
        self.out_capsules = out_capsules
        self.out_dim = out_dim if beta_per_dimension else None
        width = out_dim if beta_per_dimension and out_dim is not None else 1
        self.beta_active_scale = chosen("beta_active_scale", beta_active_scale)
        if beta_use is None and preset == "paper" and vote_std is not None:
            check_positive(self.name, "vote_std", vote_std)
            beta_use = -math.log(vote_std)
        self.beta_per_dimension = beta_per_dimension
        self.beta_use = nn.Parameter(torch.full((out_capsules, width), chosen("beta_use", beta_use)))
        self.beta_active = nn.Parameter(torch.full((out_capsules,), chosen("beta_active", beta_active)))
        if learned_temperature:
            self.log_gain = nn.Parameter(torch.zeros(()))

    @has_kernel
    def _damp(self, means: Tensor, previous: Tensor | None) -> Tensor:
        if self.damping == 0:
            return means
        damped = (1 - self.damping) * means  # the mean before the first is zero
        return damped if previous is None else damped + self.damping * previous

    @has_kernel
    def _log_prior(self, masses: Tensor, covariances: Tensor, step: int) -> Tensor:
        """log a_j, with a_j = logistic(lambda (beta_active - Sum_h (beta_use + log sigma_jh) mass_j))."""
        if self.variant == 1:
            return super()._log_prior(masses, covariances, step)
        cost = torch.add(self.beta_use, covariances.log(), alpha=0.5).sum(-1)
        if self.variant == 4:
            cost = cost * masses
        active = self.beta_active if self.beta_active_scale == 1 else self.beta_active_scale * self.beta_active
        scale = self.inverse_temperature * self.annealing(step)
        if self.log_gain is not None:
            scale = scale * self.log_gain.exp()
        return logsigmoid(scale * (active - cost))

    def annealing(self, step: int) -> float:
        """The fraction of the inverse temperature that iteration `step` uses."""
        return 1 - self.inverse_temperature_decay ** (step + 1)

    def objective(
        self, votes: Votes, couplings: Couplings, weights: Activations, clusters: Mixture, step: int
    ) -> Tensor | None:
        """Minus the log-likelihood for the plain mixture; None for the other variants, or with damping."""
        plain = self.variant == 1 and self.damping == 0
        return super().objective(votes, couplings, weights, clusters, step) if plain else None
