"""Features of frozen encoders: computed once for all epochs, in memory or on disk."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from torchcaps._core.device import choose_device
from torchcaps._core.progress import bar
from torchcaps.data import Batch, Examples, Labeled, Splits, TextSet
from torchcaps.data.disk_store import Floats, Records, Rows
from torchcaps.models import ImageModel
from torchcaps.models.encoders import Encoder, encoder_of, head_of
from torchcaps.models.tokens import TextEncoder
from torchcaps.runs.config import TrainConfig

CHUNK = 32  # images or texts that are encoded together


class TokenFeatures:
    """A labeled set of texts that are replaced by the vectors of their tokens, padded with zero to [b t c]."""

    def __init__(self, data: TextSet, features: Rows) -> None:
        self.data, self.features = data, features
        self.classes, self.labels, self.lengths = data.classes, data.labels, data.lengths

    def __len__(self) -> int:
        return len(self.data)

    def batch(self, indices: Tensor) -> Batch:
        """The vectors [b t c] of the texts with these indices [b], and their labels."""
        rows = [self.features[row] for row in indices.tolist()]
        return Batch(pad_sequence(rows, batch_first=True), self.labels[indices])


class FeatureSet:
    """A labeled set whose images are replaced by features, [n c h w]; the images are beside them for a decoder."""

    def __init__(self, data: Any, features: Tensor | Floats, *, with_images: bool) -> None:
        self.data, self.features, self.with_images = data, features, with_images
        self.classes: tuple[str, ...] = data.classes

    def __len__(self) -> int:
        return len(self.data)

    @property
    def labels(self) -> Tensor:
        """Those of the images."""
        found: Tensor = self.data.labels
        return found

    def batch(self, indices: Tensor) -> Batch:
        """The features with these indices [b], and their labels."""
        features = self.features[indices]
        if not self.with_images:
            return Batch(features, self.data.labels[indices])
        images, labels, parts = self.data.batch(indices)
        return Batch(features, labels, images if parts is None else parts)


def split_encoder(model: nn.Module, parts: Splits, config: TrainConfig) -> tuple[nn.Module, Splits, Any]:
    """The network that learns, the data that it reads, and a frozen encoder that each batch still has to pass.

    A frozen encoder is not a part of the network that learns. Without augmentation its features are computed once,
    here.
    """
    encoder = encoder_of(model)
    if encoder is None or not encoder.frozen:
        return model, parts, None
    head = head_of(model)  # type: ignore[arg-type]  # it has an encoder
    plain = config.augment in (None, "none")
    if not plain or not isinstance(parts.train, Labeled) or not isinstance(parts.validation, Labeled):
        return head, parts, encoder
    device = choose_device("train", config.device)
    train, validation = (_featured(model, encoder, part, device, config) for part in (parts.train, parts.validation))
    encoder.cpu()
    return head, Splits(train, validation, None), None


def _featured(model: nn.Module, encoder: Any, part: Any, device: torch.device, config: TrainConfig) -> Examples:
    """A part with features in place of its inputs."""
    if isinstance(part, TextSet):
        return TokenFeatures(part, token_features(encoder, part, device))
    with_images = isinstance(model, ImageModel) and bool(config.reconstruction)
    return FeatureSet(part, features_of(encoder, part, device), with_images=with_images)


@torch.no_grad()
def token_features(encoder: TextEncoder, data: TextSet, device: torch.device) -> Rows:
    """The vectors [t c] of the tokens of each text. Texts of similar length are encoded together."""
    encoder.to(device)
    order = data.lengths.argsort(stable=True)
    places = torch.empty_like(order)
    places[order] = torch.arange(len(order))
    records = Records("encoder", int(data.lengths.sum()) * encoder.dim * torch.float32.itemsize)
    for rows in bar(order.split(CHUNK), "features", -(-len(data) // CHUNK)):
        found = encoder(data.batch(rows).inputs.to(device)).float().cpu()
        for each, length in zip(found, data.lengths[rows].tolist(), strict=True):
            records.append(each[:length].contiguous().numpy().tobytes())
    return Rows(records, encoder.dim, places)


@torch.no_grad()
def features_of(encoder: Encoder, data: Any, device: torch.device) -> Tensor | Floats:
    """The features of all images of a set, [n c h w]."""
    encoder.to(device)
    records: Records | None = None
    shape: tuple[int, ...] = ()
    for rows in bar(torch.arange(len(data)).split(CHUNK), "features", -(-len(data) // CHUNK)):
        features = encoder(data.batch(rows).inputs.to(device)).float().cpu().contiguous()
        if records is None:
            shape = tuple(features.shape[1:])
            records = Records("encoder", len(data) * features[0].nbytes)
        for each in features:
            records.append(each.numpy().tobytes())
    return torch.zeros(0) if records is None else Floats(records, shape).held()


@torch.no_grad()
def encoded(encoder: Encoder, batch: Batch) -> Batch:
    """The batch with features in place of its images, which are kept beside them."""
    return Batch(encoder(batch.inputs), batch.labels, batch.inputs if batch.parts is None else batch.parts)
