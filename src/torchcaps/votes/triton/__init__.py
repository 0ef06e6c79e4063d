"""The backend `triton`: votes that are made in the registers of a GPU. Triton is imported when a GPU's tensor asks."""

from torchcaps.votes.triton.backend import Triton

__all__ = ["Triton"]
