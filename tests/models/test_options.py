"""Every option of every model and routing changes something, or is refused: none is accepted and then ignored."""

import inspect
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import torchcaps as tc
from torchcaps._core.errors import InputError
from torchcaps.layers import RoutedLayer
from torchcaps.layers.base import LAYER_OPTIONS
from torchcaps.losses import loss_of_classes
from torchcaps.models import FILLED_IN, MODELS, VectorCapsules, model_options
from torchcaps.models.tokens import TextEncoder
from torchcaps.routing import routing_options

SIDE, WORDS, FEATURES, CLASSES = 24, 30, 12, 3
MODELS_HERE = [*MODELS, "vectors"]
# Sizes that are quick to try; every other option starts from its default.
SMALL = {"channels": 8, "capsules": 4, "sizes": (4, 3, 3, 3), "filters": 6, "capsule_dim": 4, "hidden": 5, "dim": 6}
POSITIONAL = ("self", "features", "classes", "options")
# Values to try for options whose annotation is none of those that `values_of` reads.
VALUES = {"expected_children": [1, 1000], "encoder": [nn.Sequential(nn.Conv2d(1, 8, 5, 4), nn.ReLU())]}


class Tokens(nn.Module):
    """A network that answers as those of transformers do."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(WORDS, 8)

    def forward(self, input_ids, attention_mask):
        return SimpleNamespace(last_hidden_state=self.table(input_ids))


def parameter_of(word, kinds):
    """The parameter of this name of the first constructor that has it."""
    for kind in (base for each in kinds for base in each.__mro__ if "__init__" in vars(base)):
        parameters = inspect.signature(vars(kind)["__init__"]).parameters
        if word in parameters:
            return parameters[word]
    raise AssertionError(f"no constructor has the option {word}")


def values_of(word, kinds, make):
    """Values to try, by the option's annotation; the choices of a name are those that its refusal lists."""
    annotation = str(parameter_of(word, kinds).annotation)
    if "TextEncoder" in annotation:
        return [TextEncoder(Tokens(), "test", dim=8, tokens=WORDS)]
    if word in VALUES:
        return VALUES[word]
    if "tuple[int" in annotation:
        return [(2, 3), (5, 4, 3, 4)]
    if "bool" in annotation:
        return [True, False]
    if "float" in annotation:
        return [0.1, 0.5, 0.9, 2.0, 20.0]
    if "int" in annotation:
        return [0, 1, 2, 4, 20]
    assert "str" in annotation, f"give values to try for {word}: {annotation} in VALUES"
    with pytest.raises(InputError) as refusal:
        make(**{word: "?"})
    listed = str(refusal.value).split(f"{word} to be one of ")
    return [text.strip(" '\"") for text in listed[1].split(", got ")[0].split(",")] if len(listed) > 1 else []


def facts_of(network, inputs, loss):
    """Parameters, answers as used and as trained, gradients, and how votes are made."""
    network = network.double()
    plans = []
    for layer in network.modules():
        if isinstance(layer, RoutedLayer):
            layer.register_forward_pre_hook(lambda layer, given: plans.append(layer.plan(*given)))
    facts = [parameter.detach().clone() for parameter in network.parameters()]
    with torch.no_grad():
        facts += network.eval()(inputs)[:2]
    torch.manual_seed(1)
    answer = network.train()(inputs)
    facts += [*answer[:2], getattr(network, "decoder", None) and network.reconstruct(answer)]
    value = loss(network, answer)
    value.backward()
    facts += [value, *(parameter.grad for parameter in network.parameters())]
    return [*facts, [(plan.backend, plan.rows, plan.keep) for plan in plans]]


def same(left, right):
    def alike(one, other):
        if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
            return type(one) is type(other) and one == other
        return one.shape == other.shape and torch.allclose(one, other, rtol=1e-7, atol=1e-10, equal_nan=True)

    return len(left) == len(right) and all(map(alike, left, right))


def ignored_options(words, kinds, make, inputs, loss):
    """The options of which a value is accepted and none changes anything."""

    def facts(**options):
        torch.manual_seed(0)
        return facts_of(make(**options), inputs, loss)

    usual, ignored = facts(), []
    for word in words:
        changed, accepted = False, []
        default = parameter_of(word, kinds).default
        for value in values_of(word, kinds, make):
            try:
                changed = changed or not same(facts(**{word: value}), usual)
            except InputError:
                continue
            accepted += [value] if value != default or type(value) is not type(default) else []
        if accepted and not changed:
            ignored.append(f"{word}={accepted}")
    return ignored


def maker(name):
    if name == "vectors":
        return lambda **options: VectorCapsules(FEATURES, CLASSES, **options)
    size = {"vocabulary": WORDS} if MODELS[name].reads == "texts" else {"image_shape": (1, SIDE, SIDE)}
    return lambda **options: tc.create_model(name, classes=CLASSES, **size, **options)


def inputs_of(name):
    if name == "vectors":
        return torch.rand(4, FEATURES, 1, 1, dtype=torch.float64)
    if MODELS[name].reads == "texts":
        return torch.randint(1, WORDS, (4, 12))
    return torch.rand(4, 1, SIDE, SIDE, dtype=torch.float64)


def loss_of(model, answer):
    loss = loss_of_classes(None, model.readout)(answer, torch.arange(4) % CLASSES)
    return loss if model.decoder is None else loss + model.reconstruct(answer, torch.arange(4) % CLASSES).square().sum()


@pytest.mark.parametrize("name", MODELS_HERE)
def test_every_option_of_a_model_changes_something_or_is_refused(name):
    kind = VectorCapsules if name == "vectors" else MODELS[name]
    own = inspect.signature(kind.__init__).parameters
    words = model_options(name) if name in MODELS else [*own, *LAYER_OPTIONS, *routing_options("attention")]
    words = [word for word in words if word not in ("routing", *POSITIONAL, *FILLED_IN)]
    make = maker(name)
    small = {word: size for word, size in SMALL.items() if word in words}
    kinds = [kind, RoutedLayer]
    if kind.routes:
        routing = parameter_of("routing", [kind]).default
        kinds.append(tc.ROUTINGS[routing])
    found = ignored_options(words, kinds, lambda **options: make(**{**small, **options}), inputs_of(name), loss_of)
    assert not found


@pytest.mark.parametrize("name", tc.ROUTINGS)
def test_every_option_of_a_routing_changes_something_or_is_refused(name):
    words = [word for word in routing_options(name) if word not in FILLED_IN]

    def make(**options):
        return tc.DenseCapsules(5, CLASSES, 4, 4, routing=name, **options)

    def loss(layer, answer):
        return (answer.poses.square().sum() + answer.activations.square().sum()).log()

    children = tc.Capsules(torch.rand(4, 5, 4, dtype=torch.float64), torch.rand(4, 5, dtype=torch.float64))
    found = ignored_options(words, [tc.ROUTINGS[name]], make, children, loss)
    assert not found
