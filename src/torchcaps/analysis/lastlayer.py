"""The last layer for one image: the votes of its children, and the routing after every iteration."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from torchcaps._core.errors import input_error
from torchcaps._core.types import Routed
from torchcaps.analysis.evaluate import eval_mode
from torchcaps.models import CapsuleModel
from torchcaps.models.base import fit_layer


@dataclass(frozen=True)
class Voted:
    """Votes [i j d] of children with activations [i], and their routing after every iteration.

    parents_are_means: whether parents are means of votes, or sums.
    """

    votes: Tensor
    activations: Tensor
    steps: tuple[Routed, ...]
    parents_are_means: bool
    weighs: bool

    @property
    def poses(self) -> Tensor:
        """The final poses of the parents, [j d]."""
        return self.steps[-1].poses

    def shares(self, step: int = -1) -> Float[Tensor, "i j"]:
        """The weight of each vote in its parent's sum or mean; in a mean, the weights of a parent sum to one."""
        couplings = self.steps[step].couplings
        weighed = couplings * self.activations.unsqueeze(1) if self.weighs else couplings
        return (
            weighed / weighed.sum(0).clamp(min=torch.finfo(weighed.dtype).tiny) if self.parents_are_means else weighed
        )


@torch.no_grad()
def last_layer(model: nn.Module, image: Float[Tensor, "c h w"], owner: str = "last_layer") -> Voted:
    """The votes for the classes of one image, and their routing; for capsule networks on images."""
    if not isinstance(model, CapsuleModel):
        remedy = "Train one on images, with --model efficient, capsnet or matrix-small."
        raise input_error(owner, "a network of capsules for images", type(model).__name__, remedy)
    with eval_mode(model):
        image = image.to(next(model.parameters()).device)
        capsules = model.children_of(image.unsqueeze(0))
        *before, layer = model.routed_layers
        for each in before:
            capsules = each(fit_layer(each, capsules))
        capsules = fit_layer(layer, capsules)
        gathered = layer.gather(capsules)
        steps = tuple(Routed(*(part[0].cpu() for part in step.routed)) for step in layer.trace(capsules))
        votes, activations = layer.vote(gathered)[0].cpu(), gathered.activations[0].cpu()
    return Voted(votes, activations, steps, layer.routing.parents_are_means, layer.routing.uses_activations)
