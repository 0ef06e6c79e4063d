import pytest
import torch
from torch import nn

import torchcaps as tc
from tests.support.routings import sized
from torchcaps.data import load_dataset
from torchcaps.losses import READOUTS
from torchcaps.models import IMAGE_MODELS, CapsuleModel, calibrate

CAPSULE_MODELS = ["efficient", "capsnet", "matrix", "matrix-small"]
LOSSES = {
    "margin": tc.margin_loss,
    "spread": tc.spread_loss,
    "nll": lambda activations, labels: nn.functional.nll_loss(activations.log(), labels),
}
SLIM = {
    "efficient": {},
    "capsnet": {"channels": 16, "capsules": 4},
    "matrix": {"sizes": (4, 3, 3, 3)},
    "matrix-small": {"sizes": (4, 3, 2, 2)},
}


def count(name, shape=(1, 28, 28), classes=10, **options):
    return sum(p.numel() for p in tc.create_model(name, image_shape=shape, classes=classes, **options).parameters())


def test_parameter_counts_are_those_of_the_papers():
    assert count("capsnet") == 8_215_568
    assert count("capsnet", decoder=False) == 6_804_224
    assert count("capsnet", (1, 36, 36)) == 11_361_808  # MultiMNIST
    assert count("efficient", decoder=False) == 161_824
    assert count("matrix", (2, 32, 32), 5) == 317_056 + 2 * (32 + 32 + 5)
    assert count("matrix-small", (2, 32, 32), 5) == 68_680 + 2 * (16 + 16 + 5)
    assert count("cnn") == 35_445_522
    assert count("cnn-norb", (2, 32, 32), 5) == 4_253_349


def test_small_cnn_has_the_size_of_efficient():
    assert abs(count("cnn-small") - count("efficient", decoder=False)) < 100


@pytest.mark.parametrize("name", IMAGE_MODELS)
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 40)])
def test_model_answers_with_one_capsule_for_each_class(name, shape):
    if name == "cnn" and shape[0] == 3:
        shape = (3, 17, 18)  # the same, but smaller: its first dense layer grows with the area
    model = tc.create_model(name, image_shape=shape, classes=4, **SLIM.get(name, {})).eval()
    capsules = model(torch.rand(2, *shape))
    assert capsules.poses.shape[:2] == capsules.activations.shape == (2, 4)
    assert ((capsules.activations >= 0) & (capsules.activations <= 1)).all()
    assert model(torch.rand(1, *shape)).activations.shape == (1, 4)


@pytest.mark.parametrize("shape", [(1, 4, 4), (1, 8, 8), (3, 64, 48), (3, 224, 224)])
def test_efficient_takes_images_of_any_size(shape):
    model = tc.create_model(image_shape=shape, classes=3, decoder=False).eval()
    assert model(torch.rand(1, *shape)).poses.shape == (1, 3, 16)
    assert max(model.primary.poses.kernel_size) <= 20


@pytest.mark.parametrize("name", CAPSULE_MODELS)
@pytest.mark.parametrize("routing", tc.ROUTINGS)
def test_capsule_model_takes_any_routing(name, routing):
    options = {"iterations": 2} if "iterations" in tc.routing_options(routing) else {}
    options |= {"entropy_weight": 0.5} if routing == "entropy" else {}
    model = tc.create_model(name, image_shape=(1, 20, 20), classes=3, routing=routing, **SLIM[name], **options)
    capsules = model(torch.rand(2, 1, 20, 20))
    assert model.readout == tc.make_routing(routing, **sized(routing)).readout
    LOSSES[READOUTS[model.readout]](capsules.activations, torch.tensor([0, 2])).backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    silent = [word for word, p in model.named_parameters() if p.grad is None and not word.startswith("decoder")]
    # Nobody asks inner layers of inverted attention for activations: the next layer hears poses alone.
    unheard = ("direction", "threshold") if routing == "inverted" and len(model.routed_layers) > 1 else ()
    assert not [word for word in silent if not word.endswith(unheard)]
    assert next(model.encoder.parameters()).grad.abs().sum() > 0


@pytest.mark.parametrize("name", CAPSULE_MODELS)
def test_trace_shows_every_layer_and_ends_with_the_answer(name):
    model = tc.create_model(name, image_shape=(1, 28, 28), classes=3, **SLIM[name]).eval()
    images = torch.rand(2, 1, 28, 28)
    traces = model.trace(images)
    assert len(traces) == len(model.routed_layers)
    assert [len(steps) for steps in traces] == [layer.routing.iterations for layer in model.routed_layers]
    torch.testing.assert_close(traces[-1][-1].routed.poses, model(images).poses)


@pytest.mark.parametrize("routing", sorted(set(tc.ROUTINGS) - {"gaussian", "kmeans", "variational"}))
@pytest.mark.parametrize("name", CAPSULE_MODELS)
def test_no_layer_of_a_model_starts_silent_or_saturated(name, routing):
    options = {"sizes": (16, 8, 8, 8)} if name.startswith("matrix") else {}
    model = tc.create_model(name, image_shape=(1, 28, 28), classes=5, routing=routing, decoder=False, **options)
    with torch.no_grad():
        for steps in model.trace(torch.rand(2, 1, 28, 28)):
            assert 0.02 < steps[-1].routed.activations.mean() < 0.9


def test_model_draws_what_its_capsules_say():
    model = tc.create_model("capsnet", image_shape=(1, 20, 24), classes=3, channels=8, capsules=2)
    capsules = model(torch.rand(2, 1, 20, 24))
    assert model.reconstruct(capsules).shape == (2, 1, 20, 24)
    assert model.reconstruct(capsules, top=2).shape == (2, 2, 1, 20, 24)


class Backbone(nn.Module):
    """Somebody's own: 224-pixel photographs to a map of 64 channels, or to a vector."""

    def __init__(self, vector):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 32, 7, stride=8), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=4), nn.ReLU())
        self.vector = vector

    def forward(self, images):
        features = self.layers(images)
        return features.mean((2, 3)) if self.vector else features


@pytest.mark.parametrize("vector", [False, True])
def test_capsules_sit_on_a_backbone_of_ones_own(vector):
    model = tc.create_model(image_shape=(3, 224, 224), classes=5, encoder=Backbone(vector), capsules=8, decoder=False)
    assert isinstance(model, CapsuleModel)
    assert model.encoder.training
    capsules = model(torch.rand(2, 3, 224, 224))
    assert capsules.poses.shape == (2, 5, 16)
    tc.margin_loss(capsules.activations, torch.tensor([0, 4])).backward()
    assert model.encoder.layers[0].weight.grad.abs().sum() > 0


def test_probing_an_encoder_leaves_its_modes_and_numbers_alone():
    frozen = nn.Sequential(nn.Conv2d(1, 16, 5), nn.BatchNorm2d(16)).double()
    frozen[1].eval()
    model = tc.create_model(image_shape=(1, 12, 12), classes=3, encoder=frozen, capsules=4, decoder=False).double()
    assert frozen[0].training
    assert not frozen[1].training
    assert model(torch.rand(1, 1, 12, 12).double()).poses.dtype == torch.float64


def test_model_takes_a_decoder_of_ones_own():
    decoder = tc.ConvDecoder(3, 16, (1, 12, 12))
    model = tc.create_model(image_shape=(1, 12, 12), classes=3, decoder=decoder)
    assert model.decoder is decoder
    assert model.reconstruct(model.eval()(torch.rand(1, 1, 12, 12))).shape == (1, 1, 12, 12)


def test_a_routing_of_ones_own_works_by_name(monkeypatch):
    monkeypatch.setitem(tc.ROUTINGS, "mine", type("Mine", (tc.ROUTINGS["kmeans"],), {}))
    model = tc.create_model(
        "matrix-small", image_shape=(1, 20, 20), classes=3, routing="mine", sharpness=2.0, **SLIM["matrix-small"]
    )
    assert {type(layer.routing).__name__ for layer in model.routed_layers} == {"Mine"}
    assert model(torch.rand(1, 1, 20, 20)).poses.shape == (1, 3, 16)


@pytest.mark.parametrize("name", IMAGE_MODELS)
def test_model_learns_a_handful_of_images(name):
    torch.manual_seed(1)
    shape = (1, 17, 17)
    # A slim network has little mass in its costs, so they need a higher temperature than the paper's wide one.
    options = {"inverse_temperature": 0.1} if name.startswith("matrix") else {}
    model = tc.create_model(name, image_shape=shape, classes=2, **SLIM.get(name, {}), **options)
    images = torch.zeros(8, *shape)
    images[:4, :, 3:8, 3:14] = 1  # bars that lie, and bars that stand
    images[4:, :, 3:14, 3:8] = 1
    images += 0.1 * torch.rand_like(images)
    labels = torch.tensor([0] * 4 + [1] * 4)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3 if name == "cnn" else 1e-2)
    losses = []
    for _ in range(6 if name == "cnn" else 15):
        capsules = model(images)
        if model.readout == "logit":
            loss = nn.functional.cross_entropy(capsules.poses.squeeze(-1), labels)
        else:
            loss = LOSSES[READOUTS[model.readout]](capsules.activations, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: tc.create_model("resnet", image_shape=(1, 28, 28), classes=10),
            "name to be one of 'efficient', 'capsnet'",
        ),
        (lambda: tc.create_model(image_shape=(28, 28), classes=10), "Give three whole numbers"),
        (lambda: tc.create_model(image_shape=(1, 28, 28), classes=1), "classes to be a whole number from 2 on, got 1"),
        (
            lambda: tc.create_model("capsnet", image_shape=(1, 12, 28), classes=10),
            "at least 17 pixels a side and at most 64, got 12 x 28",
        ),
        (lambda: tc.create_model("capsnet", image_shape=(3, 224, 224), classes=10), 'use the model "efficient"'),
        (lambda: tc.create_model("matrix", image_shape=(1, 8, 8), classes=10), "at least 17 pixels"),
        (
            lambda: tc.create_model("cnn", image_shape=(1, 28, 28), classes=10, routing="em"),
            "no options: it routes nothing, got routing",
        ),
        (
            lambda: tc.create_model(image_shape=(1, 28, 28), classes=10, iteration=3),
            (
                r"create_model\('efficient'\): expected options among encoder, stem, capsules, routing, decoder"
                r".*got iteration\."
            ),
        ),
        (lambda: tc.create_model("capsnet", image_shape=(1, 28, 28), classes=10, encoder=nn.Flatten()), "got encoder"),
        (
            lambda: tc.create_model("matrix", image_shape=(1, 28, 28), classes=3, routing=tc.make_routing("dynamic")),
            "Enter yours in tc.ROUTINGS",
        ),
        (lambda: tc.create_model(image_shape=(1, 28, 28), classes=10)(torch.ones(1, 28, 28)), "Add a batch axis"),
        (
            lambda: tc.create_model(image_shape=(1, 28, 28), classes=10)(torch.ones(2, 28, 28, 1)),
            "Put the channels first",
        ),
        (lambda: tc.create_model(image_shape=(1, 28, 28), classes=10)(torch.ones(2, 1, 28, 28).byte()), "images / 255"),
        (lambda: tc.create_model(image_shape=(28, 28, 1), classes=10), r"image_shape is \(channels, height, width\)"),
        (lambda: tc.create_model(image_shape=(1, 28, 28), classes=10, capsules=7), "Choose capsules that divide"),
        (
            lambda: tc.create_model(image_shape=(1, 28, 28), classes=10, encoder=nn.Flatten(0)),
            r"an encoder that gives \[b c h w\] or \[b c\], got \(784\)",
        ),
        (
            lambda: tc.create_model(image_shape=(1, 28, 28), classes=10)(torch.ones(1, 3, 28, 28)),
            r"EfficientCapsNet: expected images \[b c h w\] = \(\*, 1, 28, 28\), got \(1, 3, 28, 28\)",
        ),
        (
            lambda: tc.create_model("matrix-small", image_shape=(1, 28, 28), classes=3).reconstruct(None),
            "Make the model with decoder=True",
        ),
    ],
)
def test_wrong_arguments_get_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


def test_calibrated_layers_start_half_active():
    torch.manual_seed(0)
    options = {"sizes": (16, 4, 8, 8), "sharpness": 1 / 16, "variance_floor": 0.1, "iterations": 2}
    model = tc.create_model("matrix-small", image_shape=(1, 28, 28), classes=5, **options)
    images = load_dataset("mnist-5k").train.batch(torch.arange(32)).inputs
    with torch.no_grad():
        before = [steps[-1].routed.activations.std() for steps in model.trace(images)]
        calibrate(model, images)
        after = [steps[-1].routed.activations for steps in model.trace(images)]
    assert all(0.25 < activations.mean() < 0.75 for activations in after)
    assert all(activations.std() > 10 * flat for activations, flat in zip(after, before, strict=True))


def test_calibration_brings_votes_to_unit_spread():
    torch.manual_seed(0)
    model = tc.create_model("capsnet", image_shape=(1, 20, 20), classes=3, routing="em", channels=16, capsules=2)
    images = torch.rand(8, 1, 20, 20)
    with torch.no_grad():
        calibrate(model, images)
        children = model.children_of(images).flatten()
        layer = model.routed_layers[-1]
        routed, votes = layer.route(children), layer.transform(children.poses)
    weights = routed.couplings * children.activations.unsqueeze(-1)
    total, count = 0.0, 0.0
    for b in range(8):  # in plain loops: the mass-weighted mean of the log standard deviations
        for j in range(3):
            mass = weights[b, :, j].sum()
            deviations = (votes[b, :, j] - routed.poses[b, j]).square()
            variance = (weights[b, :, j, None] * deviations).sum(0) / mass + layer.routing.variance_floor
            total += float(mass * variance.sqrt().log().mean())
            count += float(mass)
    assert abs(total / count) < 0.1


def test_calibration_leaves_a_healthy_start_alone():
    model = tc.create_model(image_shape=(1, 20, 20), classes=3)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    calibrate(model, torch.rand(4, 1, 20, 20))
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("routing", ["attention", "dynamic"])
@pytest.mark.slow
def test_efficient_learns_digits_in_sixty_steps(routing):
    """With votes that started too long, couplings were all or nothing and it stayed near chance."""
    torch.manual_seed(0)
    digits = load_dataset("digits").train
    model = tc.create_model(image_shape=digits.image_shape, classes=10, routing=routing, decoder=False)
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    right = []
    for rows in torch.randint(len(digits), (60, 64)):
        images, labels, _ = digits.batch(rows)
        activations = model(images).activations
        optimizer.zero_grad()
        tc.margin_loss(activations, labels).backward()
        optimizer.step()
        right.append((activations.argmax(-1) == labels).float().mean().item())
    assert sum(right[-10:]) / 10 > 0.9


def test_standardized_images_give_the_same_answer_in_any_light():
    options = {"sizes": (16, 4, 4, 4), "standardize": True}
    model = tc.create_model("matrix-small", image_shape=(1, 20, 20), classes=3, **options).double()
    images = torch.rand(2, 1, 20, 20, dtype=torch.float64)
    darker = 0.1 + 0.5 * images
    torch.testing.assert_close(model(images).activations, model(darker).activations, rtol=1e-3, atol=1e-4)
    assert model(torch.zeros_like(images)).poses.isfinite().all()


def test_decoders_of_large_images_are_convolutional_and_small():
    """A dense one would have 155 million parameters at 224 pixels."""
    model = tc.create_model("efficient", image_shape=(3, 224, 224), classes=10, decoder=True)
    assert isinstance(model.decoder, tc.ConvDecoder)
    assert sum(parameter.numel() for parameter in model.parameters()) < 3_000_000
    drawn = model.reconstruct(model(torch.rand(1, 3, 224, 224)))
    assert drawn.shape == (1, 3, 224, 224)
    small = tc.create_model("efficient", image_shape=(1, 36, 36), classes=10, decoder=True)
    assert isinstance(small.decoder, tc.DenseDecoder)  # the paper's, for pairs of digits


@pytest.mark.parametrize("shape", [(3, 41, 97), (1, 64, 64), (3, 224, 100)])
def test_convolutional_decoders_draw_images_of_any_shape(shape):
    decoder = tc.ConvDecoder(3, 16, shape)
    assert decoder(tc.Capsules(torch.rand(2, 3, 16), torch.rand(2, 3))).shape == (2, *shape)
    assert max(decoder.coarse[1:]) <= 8
