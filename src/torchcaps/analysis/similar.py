"""Similarity of texts: compared by their class capsules, a set of vectors, instead of one averaged vector.

He 2018, section 4.3, represents texts by several capsules. Two texts are similar if the same class capsules are long
and have similar directions.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from torchcaps._core.errors import input_error
from torchcaps.functional import unit
from torchcaps.models import TextCapsules
from torchcaps.runs.run import Run


@torch.no_grad()
def text_poses(run: Run, texts: Sequence[str], *, batch_size: int = 64) -> Float[Tensor, "n y d"]:
    """The class capsules of each text."""
    model = run.load_model()
    if not isinstance(model, TextCapsules):
        raise input_error("similar", "a run of text capsules", run.model_name, "Train text, text-a or text-b.")
    vocabulary = run.words()
    batches = (texts[start : start + batch_size] for start in range(0, len(texts), batch_size))
    return torch.cat([model(vocabulary.read(few, run.config.max_length)).poses for few in batches])


def likeness(poses: Float[Tensor, "n y d"], others: Float[Tensor, "m y d"]) -> Float[Tensor, "n m"]:
    """Sum_y <v_y, w_y>, divided by the lengths of both sets; from -1 to 1."""
    return unit(poses.flatten(1)) @ unit(others.flatten(1)).mT
