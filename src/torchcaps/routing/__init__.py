"""Every routing is a clustering algorithm: one small file each, one loop for all (`base.py`)."""

from __future__ import annotations

import inspect
from typing import Any

from torchcaps.routing.attention import Attention
from torchcaps.routing.base import Routing, over_own_parents
from torchcaps.routing.contract import check_routing
from torchcaps.routing.dynamic import Dynamic
from torchcaps.routing.em import EM, EM_PRESETS
from torchcaps.routing.entropy import Entropy
from torchcaps.routing.gaussian import Gaussian
from torchcaps.routing.kmeans import KMeans
from torchcaps.routing.uniform import Uniform
from torchcaps.types import check_choice, complaint

ROUTINGS: dict[str, type[Routing]] = {
    "dynamic": Dynamic,
    "kmeans": KMeans,
    "entropy": Entropy,
    "gaussian": Gaussian,
    "em": EM,
    "attention": Attention,
    "uniform": Uniform,
}


def routing_options(name: str) -> list[str]:
    """The names of the options that `make_routing(name, ...)` takes."""
    check_choice("make_routing", "name", name, list(ROUTINGS))
    options: dict[str, None] = {}
    for kind in ROUTINGS[name].__mro__:
        if kind is Routing or "__init__" in vars(kind):
            parameters = inspect.signature(vars(kind)["__init__"]).parameters.values()
            named = (p.name for p in parameters if p.name != "self" and p.kind is not p.VAR_KEYWORD)
            options.update(dict.fromkeys(named))
            if not any(p.kind is p.VAR_KEYWORD for p in parameters):
                break
    return list(options)


def make_routing(name: str, **options: Any) -> Routing:
    """A routing by name: `make_routing("dynamic", iterations=3)`. `ROUTINGS` lists the names."""
    known = routing_options(name)
    unknown = [option for option in options if option not in known]
    if unknown:
        raise complaint(
            f"make_routing({name!r})", f"options among {', '.join(known)}", ", ".join(unknown), "Drop or rename them."
        )
    return ROUTINGS[name](**options)


__all__ = [
    "EM",
    "EM_PRESETS",
    "ROUTINGS",
    "Attention",
    "Dynamic",
    "Entropy",
    "Gaussian",
    "KMeans",
    "Routing",
    "Uniform",
    "check_routing",
    "make_routing",
    "over_own_parents",
    "routing_options",
]
