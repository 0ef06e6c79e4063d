"""Routing algorithms: each is a clustering algorithm in one small file. `base.py` has the loop that all share."""

from __future__ import annotations

from typing import Any

import torch

from torchcaps._core.errors import check_choice, input_error
from torchcaps._core.extensions import Registry
from torchcaps.routing.attention import Attention
from torchcaps.routing.base import Routing
from torchcaps.routing.competition import over_own_parents
from torchcaps.routing.contract import ContractError, check_routing
from torchcaps.routing.dynamic import Dynamic
from torchcaps.routing.em import EM, EM_PRESETS
from torchcaps.routing.entropy import Entropy
from torchcaps.routing.gaussian import Gaussian
from torchcaps.routing.heinsen import Heinsen
from torchcaps.routing.inverted import Inverted
from torchcaps.routing.kde import KDE
from torchcaps.routing.kmeans import KMeans
from torchcaps.routing.uniform import Uniform
from torchcaps.routing.variational import Variational

_OWN: dict[str, type[Routing]] = {
    "dynamic": Dynamic,
    "kmeans": KMeans,
    "entropy": Entropy,
    "gaussian": Gaussian,
    "em": EM,
    "heinsen": Heinsen,
    "variational": Variational,
    "kde": KDE,
    "inverted": Inverted,
    "attention": Attention,
    "uniform": Uniform,
}
ROUTINGS: Registry[type[Routing]] = Registry("torchcaps.routings", _OWN)


def routing_options(name: str) -> list[str]:
    """The names of the options that `make_routing(name, ...)` takes."""
    check_choice("make_routing", "name", name, list(ROUTINGS))
    return list(ROUTINGS[name].options())


def make_routing(name: str, **options: Any) -> Routing:
    """Create a routing by name: `make_routing("dynamic", iterations=3)`. `ROUTINGS` lists the names."""
    known = routing_options(name)
    unknown = ", ".join(option for option in options if option not in known)
    if unknown:
        owner = f"make_routing({name!r})"
        raise input_error(owner, f"options among {', '.join(known)}", unknown, "Drop or rename them.")
    return ROUTINGS[name](**options)


def routing_like(name: str, options: dict[str, Any]) -> Routing:
    """The routing of this name as a layer of 16 dimensions would make it, for its attributes.

    options: of a model; those of other parts are left out.
    """
    known = routing_options(name)
    given = {"in_capsules": 1, "out_capsules": 1, "out_dim": 16, "vote_std": 1.0, **options}
    with torch.random.fork_rng([]):
        return make_routing(name, **{word: value for word, value in given.items() if word in known})


__all__ = [
    "EM",
    "EM_PRESETS",
    "KDE",
    "ROUTINGS",
    "Attention",
    "ContractError",
    "Dynamic",
    "Entropy",
    "Gaussian",
    "Heinsen",
    "Inverted",
    "KMeans",
    "Routing",
    "Uniform",
    "Variational",
    "check_routing",
    "make_routing",
    "over_own_parents",
    "routing_like",
    "routing_options",
]
