"""torchcaps: capsule networks for PyTorch, where every routing is a clustering algorithm.

The public names; `as` says to type checkers that a name is public.
"""

from . import data as data
from . import functional as functional
from . import layers as layers
from . import losses as losses
from . import models as models
from . import routing as routing
from ._core.types import Capsules as Capsules
from ._core.types import Routed as Routed
from ._core.types import Step as Step
from .apps.classifier import Classifier as Classifier
from .apps.estimators import CapsuleClassifier as CapsuleClassifier
from .apps.estimators import CapsuleTextClassifier as CapsuleTextClassifier
from .apps.fit import fit as fit
from .apps.inference import evaluate as evaluate
from .apps.inference import predict as predict
from .data import DATASETS as DATASETS
from .functional import SQUASHES as SQUASHES
from .functional import length as length
from .functional import self_pooling as self_pooling
from .functional import squash as squash
from .functional import squash_potential as squash_potential
from .layers import VOTES as VOTES
from .layers import ClassCapsules as ClassCapsules
from .layers import ConvCapsules1d as ConvCapsules1d
from .layers import ConvCapsules2d as ConvCapsules2d
from .layers import ConvCapsules3d as ConvCapsules3d
from .layers import ConvDecoder as ConvDecoder
from .layers import ConvTransposeCapsules1d as ConvTransposeCapsules1d
from .layers import ConvTransposeCapsules2d as ConvTransposeCapsules2d
from .layers import ConvTransposeCapsules3d as ConvTransposeCapsules3d
from .layers import Decoder as Decoder
from .layers import DenseCapsules as DenseCapsules
from .layers import DenseDecoder as DenseDecoder
from .layers import PrimaryCapsules as PrimaryCapsules
from .layers import add_coordinates as add_coordinates
from .layers import class_mask as class_mask
from .losses import LOSSES as LOSSES
from .losses import MarginLoss as MarginLoss
from .losses import SpreadLoss as SpreadLoss
from .losses import margin_loss as margin_loss
from .losses import reconstruction_loss as reconstruction_loss
from .losses import spread_loss as spread_loss
from .losses import spread_margin as spread_margin
from .models import MODELS as MODELS
from .models import calibrate as calibrate
from .models import create_model as create_model
from .models.pretrained import PRETRAINED as PRETRAINED
from .models.pretrained import load_pretrained as load_pretrained
from .routing import ROUTINGS as ROUTINGS
from .routing import ContractError as ContractError
from .routing import Routing as Routing
from .routing import check_routing as check_routing
from .routing import make_routing as make_routing
from .routing import routing_options as routing_options
from .runs.encoders import load_encoder as load_encoder
from .runs.hub import from_pretrained as from_pretrained
from .runs.hub import save_pretrained as save_pretrained
from .runs.load import load as load

__version__: str
