"""Base classes of image models: an encoder, primary capsules, capsule layers, and an optional decoder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from jaxtyping import Float
from torch import Tensor, nn

from torchcaps._core.errors import InputError, first_line, input_error, shape_text
from torchcaps._core.types import Capsules, Step
from torchcaps.layers import ConvDecoder, Decoder, DenseCapsules, DenseDecoder, PrimaryCapsules, RoutedLayer
from torchcaps.models.recipes import ROUTING_OPTIONS, HasRecipes, Recipe, with_options

ImageShape = tuple[int, int, int]
DENSE_SIDE = 40  # pixels a side, up to which a decoder may be dense


class ImageModel(HasRecipes, nn.Module):
    """Base class of classifiers of images [b c h w], with one capsule for each class: poses [b y d], activations [b y].

    `readout` is the kind of its activations: "length", "logistic", "share", or "logit" if poses are logits. Its default
    loss is `losses.READOUTS[readout]`. For its recipes see `models.recipes`.

    image_shape: (channels, height, width). classes: the number of classes. decoder: reconstructs images from class
    capsules; None for no decoder.
    """

    if TYPE_CHECKING:

        def __call__(self, images: Tensor) -> Capsules: ...

    @property
    def readout(self) -> str:
        """The kind of the activations, a key of `losses.READOUTS`."""
        raise NotImplementedError

    def __init__(self, image_shape: ImageShape, classes: int, decoder: Decoder | None = None) -> None:
        super().__init__()
        self.image_shape = check_image_shape(type(self).__name__, image_shape)
        self.classes = classes
        self.decoder = decoder

    def check_images(self, images: Tensor) -> None:
        """Raise an `InputError` if images are not a floating-point tensor [b c h w] of the model's image_shape."""
        owner = type(self).__name__
        channels, height, width = self.image_shape
        expected = f"images [b c h w] = (*, {channels}, {height}, {width})"
        if not isinstance(images, Tensor) or not images.is_floating_point():
            got = f"a tensor of {images.dtype}" if isinstance(images, Tensor) else f"a {type(images).__name__}"
            raise input_error(
                owner, f"{expected} of floating-point numbers", got, "Pass a tensor, bytes as images / 255."
            )
        shape = tuple(images.shape)
        if shape[1:] == self.image_shape:
            return
        if shape == self.image_shape:
            remedy = "Add a batch axis: images[None]."
        elif shape[1:] == (height, width, channels):
            remedy = "Put the channels first: images.permute(0, 3, 1, 2)."
        else:
            remedy = "Resize them, or make the model for images of this shape."
        raise input_error(owner, expected, shape_text(shape), remedy)

    def reconstruct(self, capsules: Capsules, labels: Tensor | None = None, *, top: int | None = None) -> Tensor:
        """Reconstruct images [b c h w] from class capsules; labels and top select the capsules, see `Decoder`."""
        if self.decoder is None:
            raise input_error(type(self).__name__, "a decoder", "none", "Make the model with decoder=True.")
        return self.decoder(capsules, labels, top=top)


def draws(model: nn.Module) -> TypeGuard[ImageModel]:
    """Whether the model is an `ImageModel` with a decoder."""
    return isinstance(model, ImageModel) and model.decoder is not None


def readout_of(model: nn.Module) -> str:
    """The kind of the activations of a network: the attribute `readout` of model, or that of its last routed layer."""
    own = getattr(model, "readout", None)
    if isinstance(own, str):
        return own
    routed = [module for module in model.modules() if isinstance(module, RoutedLayer)]
    if not routed:
        remedy = 'Give it an attribute readout: "length", "logistic", "share" or "logit".'
        raise input_error(type(model).__name__, "a routed layer or an attribute readout", "neither", remedy)
    return routed[-1].routing.readout


class CapsuleModel(ImageModel):
    """A model of images: encoder -> primary capsules -> routed layers -> classes, with an optional decoder.

    image_shape, classes, decoder: see `ImageModel`. encoder: any module from images to a feature map [b c h w] or a
    vector [b c]. primary: from the feature map to capsules. layers: routed layers, the last one with a capsule for each
    class. A grid of capsules is flattened before a dense layer.
    """

    def __init__(
        self,
        image_shape: ImageShape,
        classes: int,
        encoder: nn.Module,
        primary: PrimaryCapsules,
        layers: list[RoutedLayer],
        decoder: Decoder | None = None,
    ) -> None:
        super().__init__(image_shape, classes, decoder)
        self.encoder = encoder
        self.primary = primary
        self.layers = nn.ModuleList(layers)

    @classmethod
    def recipe(cls, preset: str, routing: str | None) -> Recipe:
        recipe = super().recipe(preset, routing)
        return recipe if preset == "paper" else with_options(recipe, *ROUTING_OPTIONS.get(routing, ()))

    def children_of(self, images: Float[Tensor, "b c h w"]) -> Capsules:
        """The primary capsules of these images, on their grid: poses [b h w i e]."""
        self.check_images(images)
        return self.primary(as_map(self.encoder(images)))

    @property
    def readout(self) -> str:
        """That of the routing of the last layer."""
        return self.routed_layers[-1].routing.readout

    @property
    def routed_layers(self) -> list[RoutedLayer]:
        """The layers, typed."""
        return [layer for layer in self.layers if isinstance(layer, RoutedLayer)]

    def forward(self, images: Float[Tensor, "b c h w"]) -> Capsules:
        capsules = self.children_of(images)
        for layer in self.routed_layers:
            capsules = layer(fit_layer(layer, capsules))
        return capsules

    def trace(self, images: Float[Tensor, "b c h w"]) -> list[list[Step]]:
        """For every layer, the steps of the routing: see `Routing.trace`."""
        capsules = self.children_of(images)
        traces: list[list[Step]] = []
        for layer in self.routed_layers:
            capsules = fit_layer(layer, capsules)
            traces.append(layer.trace(capsules))
            capsules = layer(capsules)
        return traces


def fit_layer(layer: nn.Module, capsules: Capsules) -> Capsules:
    """Capsules as a layer expects them: a grid is flattened before a dense layer."""
    return capsules.flatten() if isinstance(layer, DenseCapsules) and capsules.poses.ndim > 3 else capsules


def as_map(features: Tensor) -> Tensor:
    """A feature map [b c h w] unchanged; a vector [b c] as a map of one position."""
    return features[..., None, None] if features.ndim == 2 else features


def feature_shape(owner: str, encoder: nn.Module, image_shape: ImageShape) -> tuple[int, int, int]:
    """Channels, height and width of the feature map of an encoder for images of this shape."""
    modes = {module: module.training for module in encoder.modules()}
    like = next(encoder.parameters(), torch.empty(0))
    try:
        with torch.no_grad():
            features = encoder.eval()(torch.zeros(1, *image_shape, dtype=like.dtype, device=like.device))
    except (RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        expected = f"an encoder for images {shape_text(image_shape)}"
        raise input_error(owner, expected, f"an error ({first_line(error)})", "Resize them, or change it.") from error
    for module, training in modes.items():  # each by itself: some may be frozen
        module.training = training
    if not isinstance(features, Tensor) or features.ndim not in (2, 4):
        got = shape_text(features.shape) if isinstance(features, Tensor) else type(features).__name__
        raise input_error(owner, "an encoder that gives [b c h w] or [b c]", got, "Cut its head off, or reshape.")
    channels, height, width = as_map(features).shape[1:]
    return channels, height, width


def check_image_shape(owner: str, image_shape: Any) -> ImageShape:
    """The image_shape as a tuple; raises an `InputError` if it is not three positive integers."""
    whole = isinstance(image_shape, tuple | list) and all(isinstance(size, int) and size > 0 for size in image_shape)
    if not whole or len(image_shape) != 3:
        raise input_error(owner, "image_shape (channels, height, width)", image_shape, "Give three whole numbers.")
    channels, height, width = image_shape
    return channels, height, width


def check_size(owner: str, image_shape: ImageShape, low: int, high: int | None = None) -> None:
    """Raise an `InputError` if a side of the images is below `low` or above `high`."""
    _, height, width = image_shape
    if min(height, width) < low or (high is not None and max(height, width) > high):
        expected = f"images of at least {low} pixels a side" + ("" if high is None else f" and at most {high}")
        remedy = "Resize them; image_shape is (channels, height, width)."
        if high is not None:
            remedy = 'Resize them, or use the model "efficient".'
        raise input_error(owner, expected, f"{height} x {width}", remedy)


def make_decoder(decoder: bool | Decoder, classes: int, image_shape: ImageShape) -> Decoder | None:
    """The decoder of a model (True), none (False), or the given one.

    Up to 40 pixels a side it is that of Sabour 2017, which for 36 has a million parameters; for 224 it would have 150
    million. Larger images have a convolutional one.
    """
    if isinstance(decoder, Decoder) or not decoder:
        return decoder or None
    kind = DenseDecoder if max(image_shape[1:]) <= DENSE_SIDE else ConvDecoder
    return kind(classes, 16, image_shape)
