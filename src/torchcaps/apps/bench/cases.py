"""Benchmark cases: a layer or a model of torchcaps and its textbook version, on the same weights and inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps._core.types import Capsules
from torchcaps.apps.bench import textbook
from torchcaps.functional import length, squash
from torchcaps.layers import ConvCapsules2d, DenseCapsules
from torchcaps.losses import margin_loss, reconstruction_loss
from torchcaps.models import CapsuleModel, calibrate, create_model
from torchcaps.routing import EM

Results = tuple[Tensor, ...]


@dataclass(frozen=True)
class Built:
    """Two implementations with equal results, and the tensors that get gradients."""

    textbook: Callable[[], Results]
    torchcaps: Callable[[], Results]
    leaves: list[Tensor]
    operations: float | None = None  # floating-point operations that forward and backward need
    bytes: float | None = None  # bytes that must be read and written at least
    plan: Callable[[], object] | None = None  # how torchcaps makes the votes


@dataclass(frozen=True)
class Case:
    """A benchmark: how to build it, its default sizes, and the part that counts as forward + backward."""

    title: str
    build: Callable[..., Built]
    sizes: dict[str, Any] = field(default_factory=dict)
    forward: bool = True  # is the forward pass alone timed too?

    def make(self, **sizes: Any) -> Built:
        torch.manual_seed(0)
        return self.build(**{**self.sizes, **sizes})


def step(run: Callable[[], Results], leaves: list[Tensor]) -> None:
    """Forward, a loss, backward; gradients are discarded."""
    results = run()
    loss = results[0] if results[0].ndim == 0 else sum((part.square().sum() for part in results), torch.zeros(()))
    loss.backward()
    for leaf in leaves:
        leaf.grad = None


def dense(
    batch: int = 128,
    children: int = 1152,
    parents: int = 10,
    in_dim: int = 8,
    out_dim: int = 16,
    iterations: int = 3,
    gradients: str = "all",
) -> Built:
    layer = DenseCapsules(children, parents, in_dim, out_dim, iterations=iterations, gradients=gradients)
    poses = squash(torch.randn(batch, children, in_dim)).requires_grad_()
    given = Capsules(poses, length(poses.detach()))
    weight = layer.transform.weight
    pairs = batch * children * parents
    votes = 2 * pairs * in_dim * out_dim
    backward = 2 * iterations - 1 if gradients == "all" else 1
    readings = 2 * pairs * out_dim * (2 * iterations - 1 + backward)
    return Built(
        lambda: (textbook.dense_dynamic(poses, weight, iterations, gradients == "last"),),
        lambda: (layer(given).poses,),
        [poses, weight],
        operations=3 * votes + readings,
        bytes=4 * (3 * weight.numel() + 3 * poses.numel()),
        plan=lambda: layer.plan(given),
    )


def _costs(routing: nn.Module) -> textbook.Costs:
    assert isinstance(routing, EM)
    return textbook.Costs(routing.beta_use, routing.beta_active, routing.inverse_temperature)


def conv_em(
    batch: int = 8,
    grid: int = 14,
    children: int = 32,
    parents: int = 32,
    kernel: int = 3,
    stride: int = 2,
    iterations: int = 3,
    competition: str = "window",
) -> Built:
    layer = ConvCapsules2d(
        children,
        parents,
        16,
        16,
        kernel,
        stride,
        votes="matrix",
        routing="em",
        iterations=iterations,
        competition=competition,
    )
    poses = torch.randn(batch, grid, grid, children, 16).requires_grad_()
    activations = torch.rand(batch, grid, grid, children)
    costs, across = _costs(layer.routing), competition == "grid"
    return Built(
        lambda: textbook.conv_em(poses, activations, layer.transform.weight, costs, kernel, stride, iterations, across),
        lambda: layer(Capsules(poses, activations))[:2],
        [poses, *layer.parameters()],
        plan=lambda: layer.plan(Capsules(poses, activations)),
    )


def capsnet(batch: int = 128) -> Built:
    model = create_model("capsnet", image_shape=(1, 28, 28), classes=10)
    assert isinstance(model, CapsuleModel)
    _convolutions_last(model)
    images, labels = _images(batch, 1, 28)
    first, (primary, weight), decoder = model.encoder[0], _parts(model), model.decoder.layers  # type: ignore[index,union-attr]

    def textbook_loss() -> Results:
        lengths, drawn = textbook.capsnet(images, labels, first, primary, weight, decoder)  # type: ignore[arg-type]
        return (_margin_and_drawing(lengths, drawn, images, labels),)

    def own_loss() -> Results:
        capsules = model(images)
        return (_margin_and_drawing(capsules.activations, model.reconstruct(capsules, labels), images, labels),)

    return Built(textbook_loss, own_loss, list(model.parameters()))


def _parts(model: CapsuleModel) -> tuple[nn.Module, Tensor]:
    return model.primary.poses, model.routed_layers[0].transform.weight


def _margin_and_drawing(lengths: Tensor, drawn: Tensor, images: Tensor, labels: Tensor) -> Tensor:
    return margin_loss(lengths, labels) + reconstruction_loss(drawn, images)


def matrix(batch: int = 8, sizes: tuple[int, int, int, int] = (32, 32, 32, 32)) -> Built:
    model = create_model("matrix", image_shape=(1, 32, 32), classes=10, sizes=sizes)
    assert isinstance(model, CapsuleModel)
    _convolutions_last(model)
    images, labels = _images(batch, 1, 32)
    primary = model.primary

    def forward() -> Tensor:
        features = model.encoder(images)
        poses = primary.poses(features).unflatten(1, (-1, 16)).permute(0, 3, 4, 1, 2)
        activations = torch.sigmoid(primary.activations(features)).permute(0, 2, 3, 1)  # type: ignore[misc]
        for layer, stride in zip(model.routed_layers[:2], (2, 1), strict=True):
            costs = _costs(layer.routing)
            poses, activations = textbook.conv_em(
                poses, activations, layer.transform.weight, costs, 3, stride, across=True
            )
        last = model.routed_layers[2]
        return textbook.class_em(poses, activations, last.transform.weight, _costs(last.routing))[1]

    return Built(
        lambda: (margin_loss(forward(), labels),),
        lambda: (margin_loss(model(images).activations, labels),),
        list(model.parameters()),
    )


def text(batch: int = 50, words: int = 60, capsules: int = 32) -> Built:
    model: Any = create_model("text-a", vocabulary=5000, classes=2, dropout=0.0, capsules=capsules)
    tokens, labels = torch.randint(1, 5000, (batch, words)), torch.randint(2, (batch,))
    calibrate(model, tokens)

    def textbook_loss() -> Results:
        vectors = model.words(tokens).transpose(1, 2)
        return (margin_loss(textbook.text_a(vectors, model.branches[0])[:, :2], labels),)

    return Built(textbook_loss, lambda: (margin_loss(model(tokens).activations, labels),), list(model.parameters()))


def _images(batch: int, channels: int, size: int) -> tuple[Tensor, Tensor]:
    images = torch.rand(batch, channels, size, size).contiguous(memory_format=torch.channels_last)
    return images, torch.randint(10, (batch,))


def _convolutions_last(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


CASES: dict[str, Case] = {
    "dense": Case("dense 1152x8 -> 10x16, batch 128, dynamic 3, gradients of all iterations", dense),
    "dense-last": Case("the same, gradients of the last iteration", dense, {"gradients": "last"}, forward=False),
    "em-window": Case("EM convolution 14x14x32 -> 6x6x32, batch 8, 3 iterations, window", conv_em),
    "em-grid": Case("the same, children compete across windows", conv_em, {"competition": "grid"}),
    "capsnet": Case("capsnet, training step, batch 128", capsnet, forward=False),
    "matrix": Case("matrix 32/32/32/32, training step, batch 8", matrix, forward=False),
    "text": Case("text-a, training step, 60 words, batch 50", text, forward=False),
}
