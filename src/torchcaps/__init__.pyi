"""torchcaps: capsule networks for PyTorch, where every routing is a clustering algorithm."""

from . import data, functional, layers, losses, models, routing
from ._core.types import Capsules, Routed, Step
from .apps.classifier import Classifier
from .apps.estimators import CapsuleClassifier, CapsuleTextClassifier
from .apps.fit import fit
from .apps.inference import evaluate, predict
from .data import DATASETS
from .functional import SQUASHES, length, self_pooling, squash, squash_potential
from .layers import (
    VOTES,
    ClassCapsules,
    ConvCapsules1d,
    ConvCapsules2d,
    ConvCapsules3d,
    ConvDecoder,
    ConvTransposeCapsules1d,
    ConvTransposeCapsules2d,
    ConvTransposeCapsules3d,
    Decoder,
    DenseCapsules,
    DenseDecoder,
    PrimaryCapsules,
    add_coordinates,
    class_mask,
)
from .losses import LOSSES, MarginLoss, SpreadLoss, margin_loss, reconstruction_loss, spread_loss, spread_margin
from .models import MODELS, calibrate, create_model
from .models.pretrained import PRETRAINED, load_pretrained
from .routing import ROUTINGS, ContractError, Routing, check_routing, make_routing, routing_options
from .runs.encoders import load_encoder
from .runs.hub import from_pretrained, save_pretrained
from .runs.load import load

__version__: str

__all__ = [
    "DATASETS",
    "LOSSES",
    "MODELS",
    "PRETRAINED",
    "ROUTINGS",
    "SQUASHES",
    "VOTES",
    "CapsuleClassifier",
    "CapsuleTextClassifier",
    "Capsules",
    "ClassCapsules",
    "Classifier",
    "ContractError",
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
    "MarginLoss",
    "PrimaryCapsules",
    "Routed",
    "Routing",
    "SpreadLoss",
    "Step",
    "add_coordinates",
    "calibrate",
    "check_routing",
    "class_mask",
    "create_model",
    "data",
    "evaluate",
    "fit",
    "from_pretrained",
    "functional",
    "layers",
    "length",
    "load",
    "load_encoder",
    "load_pretrained",
    "losses",
    "make_routing",
    "margin_loss",
    "models",
    "predict",
    "reconstruction_loss",
    "routing",
    "routing_options",
    "save_pretrained",
    "self_pooling",
    "spread_loss",
    "spread_margin",
    "squash",
    "squash_potential",
]
