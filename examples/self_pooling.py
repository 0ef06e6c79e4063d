"""Pool many vectors into one that agrees with itself: x = Sum_i softmax<x, x_i> x_i, from the mean on.

The smallest case of routing: one parent, no learned weight. Where most points crowd together, the pooled vector leaves
the mean and walks to the crowd; outliers lose their say.

Run: python examples/self_pooling.py
"""

import torch

import torchcaps as tc


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    crowd = torch.tensor([2.0, 1.0]) + 0.2 * torch.randn(6, 2, generator=generator)
    outliers = torch.tensor([[-2.0, 0.5], [0.0, -2.0], [-1.0, -1.0]])
    points = torch.cat([crowd, outliers])
    print("iteration   pooled vector        weight on the outliers in the next one")
    for iterations in range(6):
        pooled = tc.self_pooling(points, iterations)
        weight = (points @ pooled).softmax(0)[len(crowd) :].sum()
        print(f"{iterations:>9}   ({pooled[0]:6.3f}, {pooled[1]:6.3f})     {weight:.4f}")


if __name__ == "__main__":
    main()
