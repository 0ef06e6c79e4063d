"""What the commands beside training take."""

from torchcaps.apps.cli.options.analysis import Attack, Health, Jumble, Strange
from torchcaps.apps.cli.options.basic import Bench, Doctor, Evaluate, Explain, List, Predict, Similar, TextInputs
from torchcaps.apps.cli.options.compare import Compare, Report, Viewpoint
from torchcaps.apps.cli.options.draw import (
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
from torchcaps.apps.cli.options.export import Export
from torchcaps.apps.cli.options.studio import Studio

__all__ = [
    "Attack",
    "Bench",
    "Compare",
    "Doctor",
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
