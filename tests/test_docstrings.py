"""Every public class and function has a docstring that names its arguments."""

import inspect
import re

import pytest

import torchcaps
from torchcaps import data, functional, layers, losses, models, routing

MODULES = (torchcaps, data, functional, layers, losses, models, routing)
# Arguments that are forwarded are documented by the class that receives them.
FORWARDED = {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}


def public_things():
    """Public classes and functions by their full name."""
    found = {}
    for module in MODULES:
        for name in getattr(module, "__all__", dir(module)):
            thing = getattr(module, name)
            ours = getattr(thing, "__module__", "").startswith("torchcaps")
            if not name.startswith("_") and ours and (inspect.isclass(thing) or inspect.isfunction(thing)):
                found[f"{thing.__module__}.{thing.__qualname__}"] = thing
    return found


def methods_of(kind):
    """The public methods and properties that a class defines itself."""
    for name, method in vars(kind).items():
        function = method.__func__ if isinstance(method, classmethod | staticmethod) else method
        if not name.startswith("_") and (inspect.isfunction(function) or isinstance(function, property)):
            yield name, function


def arguments_of(function):
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.name not in ("self", "cls") and p.kind not in FORWARDED]


def documentation(thing):
    """The docstring of a function; for a class, also those of its __init__ and of its base classes."""
    if not inspect.isclass(thing):
        return inspect.getdoc(thing) or ""
    return "\n".join(
        text
        for kind in thing.__mro__
        if kind.__module__.startswith("torchcaps")
        for text in (kind.__doc__, vars(kind).get("__init__") and kind.__init__.__doc__)
        if text
    )


@pytest.mark.parametrize("name", sorted(public_things()))
def test_public_things_have_a_docstring_with_their_arguments(name):
    thing = public_things()[name]
    assert (thing.__doc__ or "").strip(), f"{name} has no docstring"
    if inspect.isclass(thing) and (issubclass(thing, Exception) or thing.__init__ is object.__init__):
        return
    text = documentation(thing)
    missing = [
        word
        for word in arguments_of(thing.__init__ if inspect.isclass(thing) else thing)
        if not re.search(rf"\b{word}\b", text)
    ]
    assert not missing, f"the docstring of {name} does not name {', '.join(missing)}"


@pytest.mark.parametrize("name", sorted(name for name, thing in public_things().items() if inspect.isclass(thing)))
def test_public_methods_have_a_docstring(name):
    kind = public_things()[name]
    for word, function in methods_of(kind):
        inherited = any(getattr(vars(base).get(word), "__doc__", None) for base in kind.__mro__[1:])
        assert function.__doc__ or inherited, f"{name}.{word} has no docstring"
