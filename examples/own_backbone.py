"""Put capsules on a network of your own, here a small one for photographs of 224 pixels.

Any torch module that turns images into a feature map [b c h w] or a vector [b c] will do, a pretrained one too: cut its
head off and pass it as `encoder`. The channels are shared out among the primary capsules.

Run: python examples/own_backbone.py
"""

import torch
from torch import nn

import torchcaps as tc

backbone = nn.Sequential(
    nn.Conv2d(3, 32, 7, stride=4),
    nn.ReLU(),
    nn.Conv2d(32, 64, 5, stride=4),
    nn.ReLU(),
    nn.Conv2d(64, 128, 3, stride=2),
)

model = tc.create_model(
    "efficient", image_shape=(3, 224, 224), classes=5, encoder=backbone, capsules=16, decoder=False, routing="dynamic"
)
photographs, labels = torch.rand(4, 3, 224, 224), torch.tensor([0, 3, 1, 4])
classes = model(photographs)
loss = tc.margin_loss(classes.activations, labels)
loss.backward()
print(f"class capsules {tuple(classes.poses.shape)}, loss {loss.item():.3f}")
print(f"gradient reaches the backbone: {backbone[0].weight.grad.abs().sum() > 0}")
