"""Which options of its base classes a routing takes: those that its constructor forwards."""

from typing import Any

from typing_extensions import TypedDict, Unpack

import torchcaps as tc
from torchcaps.routing import Dynamic


class Few(TypedDict, total=False):
    squash: str
    leaky: bool


class Twice(Dynamic):
    def __init__(self, **options: Unpack[Few]) -> None:
        super().__init__(2, **options)


class Biased(Twice):
    def __init__(self, *, start: float = 0.5, **options: Any) -> None:
        super().__init__(**options)


class Unknown(Dynamic):
    def __init__(self, **options: "Unpack[OnlyForTypeCheckers]") -> None:
        super().__init__(2, **options)


def test_a_typed_dictionary_names_the_options_that_are_forwarded():
    assert Twice.options() == {"squash": "quadratic", "leaky": False}


def test_a_subclass_adds_its_own_options():
    assert Biased.options() == {"start": 0.5, "squash": "quadratic", "leaky": False}


def test_names_that_only_type_checkers_know_forward_everything():
    assert Unknown.options() == Dynamic.options()


def test_uniform_routing_has_the_options_that_count_with_one_iteration():
    left_out = {"iterations", "accumulate", "sharpness", "gradients", "hard"}
    assert set(tc.routing_options("uniform")) == set(tc.routing_options("dynamic")) - left_out
