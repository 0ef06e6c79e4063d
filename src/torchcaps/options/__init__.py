"""What the commands beside training take."""

from torchcaps.options.analysis import Attack, Health, Jumble, Strange
from torchcaps.options.basic import Bench, Evaluate, Explain, List, Predict, Similar, TextInputs
from torchcaps.options.compare import Compare, Report, Viewpoint
from torchcaps.options.draw import (
    DrawAgreement,
    DrawClusters,
    DrawConvergence,
    DrawMembership,
    DrawRun,
    DrawSplit,
    DrawTextModel,
    DrawViewpoints,
    DrawWeights,
)
from torchcaps.options.export import Export
from torchcaps.options.studio import Studio

__all__ = [
    "Attack",
    "Bench",
    "Compare",
    "DrawAgreement",
    "DrawClusters",
    "DrawConvergence",
    "DrawMembership",
    "DrawRun",
    "DrawSplit",
    "DrawTextModel",
    "DrawViewpoints",
    "DrawWeights",
    "Evaluate",
    "Explain",
    "Export",
    "Health",
    "Jumble",
    "List",
    "Predict",
    "Report",
    "Similar",
    "Strange",
    "Studio",
    "TextInputs",
    "Viewpoint",
]
