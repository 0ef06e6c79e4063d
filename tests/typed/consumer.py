"""What a user's own file looks like to mypy --strict: nothing public gives Any."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

import torchcaps as tc

if TYPE_CHECKING:
    from typing_extensions import assert_type


class Halved(tc.Routing):
    """A routing of one's own."""

    def update(
        self, votes: Any, weights: Tensor, previous: Tensor | None, step: int, origin: Tensor | None = None
    ) -> Tensor:
        return tc.functional.combine(weights, votes) / 2

    def assign(self, votes: Any, clusters: Tensor, scores: Tensor, step: int) -> Tensor:
        return scores + tc.functional.agree(votes, clusters)

    def read(self, clusters: Tensor, couplings: Tensor, weights: Tensor) -> tc.Routed:
        return tc.Routed(tc.squash(clusters), tc.length(tc.squash(clusters)), couplings)


def main() -> None:
    images = torch.rand(2, 1, 28, 28)
    children = tc.PrimaryCapsules(1, 2, 4, kernel_size=9, stride=9)(images).flatten()
    layer = tc.DenseCapsules(children.poses.shape[1], 3, 4, 5, routing=Halved(iterations=2))
    parents = layer(children)
    routed = tc.make_routing("dynamic")(torch.randn(2, 6, 3, 4))
    model = tc.create_model("efficient", image_shape=(1, 28, 28), classes=3)
    texts = tc.create_model("text", vocabulary=50, classes=2)
    shipped = tc.load_pretrained("mnist-efficient")
    loss = tc.MarginLoss()
    if TYPE_CHECKING:
        assert_type(children, tc.Capsules)
        assert_type(parents, tc.Capsules)
        assert_type(routed, tc.Routed)
        assert_type(model(images), tc.Capsules)
        assert_type(texts(torch.ones(2, 4, dtype=torch.long)).activations, Tensor)
        assert_type(shipped(images).poses, Tensor)
        assert_type(tc.load("runs/mine")(images), tc.Capsules)
        assert_type(tc.load("runs/mine", model=layer), tc.DenseCapsules)
        run = tc.fit(model, (images, torch.tensor([0, 1])), epochs=1)
        assert_type(tc.evaluate(run).accuracy, float)
        assert_type(tc.predict(run, images)[0].labels, tuple[str, ...])
        assert_type(tc.margin_loss(parents.activations, torch.tensor([0, 1])), Tensor)
    print(loss(parents.activations, torch.tensor([0, 1])))


if __name__ == "__main__":
    main()
