"""Whoever looks at a network leaves it as it was, and sees it as it answers, not as it learns."""

import pytest
import torch

from torchcaps.analysis.evaluate import evaluate
from torchcaps.analysis.images import InMemoryImages
from torchcaps.analysis.lastlayer import last_layer
from torchcaps.analysis.perturb import dimension_meanings, perturb
from torchcaps.analysis.places import part_maps, receptive_fields
from torchcaps.analysis.reconstruct import draw_cases, draw_classes, first_answers
from torchcaps.analysis.trees import trace_image
from torchcaps.models import create_model

DATA = InMemoryImages(
    torch.rand(6, 1, 12, 12, generator=torch.Generator().manual_seed(0)), torch.arange(6) % 2, ("a", "b")
)
IMAGE = DATA.images[0]
LOOKS = {
    "evaluate": lambda model: evaluate(model, DATA).activations,
    "draw_classes": lambda model: draw_classes(model, IMAGE).drawn,
    "draw_cases": lambda model: draw_cases(model, DATA, [0, 1]).drawn,
    "first_answers": lambda model: torch.tensor([*first_answers(model, DATA, 2, 2)[0], 0]),
    "perturb": lambda model: perturb(model, IMAGE).drawn,
    "dimension_meanings": lambda model: dimension_meanings(model, DATA, 2, 3).correlations,
    "trace_image": lambda model: trace_image(model, IMAGE).activations,
    "last_layer": lambda model: last_layer(model, IMAGE).votes,
    "part_maps": lambda model: part_maps(model, IMAGE, [0, 1]),
    "receptive_fields": lambda model: receptive_fields(model),
}


@pytest.mark.parametrize("name", LOOKS)
def test_looking_changes_nothing(name):
    torch.manual_seed(0)
    model = create_model("efficient", image_shape=(1, 12, 12), classes=2, decoder=True)
    model.train()(torch.rand(8, 1, 12, 12))  # running means are no longer those of the start
    expected = LOOKS[name](model.eval())
    model.train()
    model.decoder.eval()  # a mixture of modes is kept too
    modes = [module.training for module in model.modules()]
    before = {key: value.clone() for key, value in model.state_dict().items()}
    found = LOOKS[name](model)
    torch.testing.assert_close(found, expected, equal_nan=True)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())
