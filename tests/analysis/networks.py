"""Networks and data whose answers are known by hand."""

import torch
from torch import nn

from torchcaps._core.types import Capsules
from torchcaps.models import ImageModel


class Linear(ImageModel):
    """Logits that are a matrix [y chw] times the pixels, with the readout of another network."""

    def __init__(self, weight, image_shape, readout="logit", bias=None):
        super().__init__(image_shape, len(weight))
        self.weight = nn.Parameter(torch.as_tensor(weight, dtype=torch.float32))
        self.bias = torch.zeros(len(weight)) if bias is None else bias
        self._readout = readout

    @property
    def readout(self):
        return self._readout

    def forward(self, images):
        self.check_images(images)
        logits = images.flatten(1) @ self.weight.T + self.bias
        if self.readout in ("length", "logistic"):
            return Capsules(logits.unsqueeze(-1), logits.sigmoid())
        return Capsules(logits.unsqueeze(-1), logits.softmax(-1))
