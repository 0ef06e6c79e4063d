"""What pretrained networks have in common: they are frozen until they are tuned."""

from __future__ import annotations

from typing import TypeVar

from torch import nn

from torchcaps._core.errors import input_error

Own = TypeVar("Own", bound="Pretrained")


class Pretrained(nn.Module):
    """A pretrained network, frozen at first: its parameters have no gradients, and it stays in evaluation mode.

    network: the pretrained network. source: where it came from, as `load_encoder` takes it.
    """

    def __init__(self, network: nn.Module, source: str) -> None:
        super().__init__()
        self.network = network
        self.source = source
        self.frozen = True
        self.requires_grad_(False)
        self.tunable = _set_mode(network, False)

    def tune(self) -> None:
        """Let the parameters learn, and batch norm and dropout follow the mode of the whole network."""
        if not self.tunable:
            remedy = "Keep it frozen."
            raise input_error(f"encoder {self.source}", "a network with a training mode", "one without", remedy)
        self.frozen = False
        self.requires_grad_(True).train()

    def train(self: Own, mode: bool = True) -> Own:
        self.training = mode
        if not self.frozen:
            self.network.train(mode)
        return self

    @property
    def parameter_count(self) -> int:
        return sum(parameter.numel() for parameter in self.network.parameters())


def _set_mode(network: nn.Module, mode: bool) -> bool:
    """Set the mode of a network; return whether it has one, which programs of torch.export have not."""
    try:
        network.train(mode)
    except NotImplementedError:
        return False
    return True
