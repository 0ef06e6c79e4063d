"""Layers: geometry x vote transform x routing."""

from torchcaps.layers.base import RoutedLayer
from torchcaps.layers.classes import ClassCapsules
from torchcaps.layers.conv import ConvCapsules
from torchcaps.layers.coordinates import add_coordinates
from torchcaps.layers.dense import DenseCapsules
from torchcaps.layers.heads import ConvDecoder, Decoder, DenseDecoder, class_mask
from torchcaps.layers.primary import PrimaryCapsules
from torchcaps.votes.transforms import VOTES, VoteTransform, make_votes

__all__ = [
    "VOTES",
    "ClassCapsules",
    "ConvCapsules",
    "ConvDecoder",
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
