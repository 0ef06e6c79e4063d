"""What mypy refuses: an option that a loss or a routing does not have."""

import torchcaps as tc
from torchcaps.routing import Dynamic

loss = tc.MarginLoss(reducton="sum")
layer = tc.DenseCapsules(6, 3, 4, 5, routing=Dynamic(iterations=2, leeky=True))
