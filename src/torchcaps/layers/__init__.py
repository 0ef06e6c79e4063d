"""Layers: geometry x vote transform x routing."""

from torchcaps.layers.base import RoutedLayer
from torchcaps.layers.classes import ClassCapsules
from torchcaps.layers.conv import ConvCapsules1d, ConvCapsules2d, ConvCapsules3d
from torchcaps.layers.coordinates import add_coordinates
from torchcaps.layers.dense import DenseCapsules
from torchcaps.layers.heads import ConvDecoder, Decoder, DenseDecoder, class_mask
from torchcaps.layers.primary import PrimaryCapsules
from torchcaps.layers.transposed import (
    ConvTransposeCapsules1d,
    ConvTransposeCapsules2d,
    ConvTransposeCapsules3d,
)
from torchcaps.votes.transforms import VOTES, VoteTransform, make_votes

__all__ = [
    "VOTES",
    "ClassCapsules",
    "ConvCapsules1d",
    "ConvCapsules2d",
    "ConvCapsules3d",
    "ConvDecoder",
    "ConvTransposeCapsules1d",
    "ConvTransposeCapsules2d",
    "ConvTransposeCapsules3d",
    "Decoder",
    "DenseCapsules",
    "DenseDecoder",
    "PrimaryCapsules",
    "RoutedLayer",
    "VoteTransform",
    "add_coordinates",
    "class_mask",
    "make_votes",
]
