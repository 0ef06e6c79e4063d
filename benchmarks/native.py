"""How much of the peak each native function reaches, votes made anew included: python benchmarks/native.py."""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.bench.measure import interleaved, machine_peaks, middle
from torchcaps.votes.native import describe, native_votes
from torchcaps.votes.native.products import Products

# Name: examples, children, parents, and the matrices' rows, inner numbers and columns.
SIZES = {
    "dense 1152x8 -> 10x16, 64 examples": (64, 1152, 10, 1, 8, 16),
    "matrix 288x16 -> 32x16, 64 windows": (64, 288, 32, 4, 4, 4),
}
TERMS = 5  # products of which the gradient of votes is made after three iterations


def main() -> None:
    print(f"native functions {describe()}")
    peak, _ = machine_peaks()
    print(f"peak of a matrix product {peak / 1e9:.0f} GFLOP/s\n")
    for title, sizes in SIZES.items():
        print(title)
        time_functions(peak, *sizes)


def time_functions(
    peak: float, examples: int, children: int, parents: int, rows: int, inner: int, columns: int
) -> None:
    poses = torch.randn(examples, children, rows * inner)
    weight = torch.randn(children, parents, inner, columns)
    make = native_votes(poses, weight, False, len(poses))
    if make is None:
        raise SystemExit("There are no native functions here: see TORCHCAPS_NATIVE=1 torchcaps bench dense.")
    products = make(poses, None, weight).products
    pairs = [_lanes(products, torch.rand(examples, children, parents)) for _ in range(TERMS)]
    means = _lanes(products, torch.randn(examples, parents, rows * columns))

    def gradients(square: bool) -> None:
        for each in pairs:
            products.ledger.add(each, **({"scaled": means, "means": means} if square else {"plain": means}))
        products.gradients()

    numbers = 2 * examples * children * parents * rows * columns  # operations: a multiplication and an addition each
    works = {
        "sums": (lambda: products.sums(pairs[0], None), inner + 1),
        "sums of squares": (lambda: products.sums(pairs[0], means, True), inner + 2),
        "agreements": (lambda: products.inner(means, None), inner + 1),
        "distances": (lambda: products.inner(means, means, True), inner + 2),
        "gradients": (lambda: gradients(False), TERMS + 2 * inner),
        "gradients of squares": (lambda: gradients(True), 2 * TERMS + 1 + 3 * inner),
    }
    times = interleaved({name: run for name, (run, _) in works.items()}, 15)
    for name, (_, each) in works.items():
        seconds = middle(times[name])
        print(f"  {name:22}{1e3 * seconds:7.2f} ms  {numbers * each / seconds / peak:6.0%} of the peak")


def _lanes(products: Products, values: Tensor) -> Tensor:
    """As routings have them: examples innermost."""
    return products.outside(products.inside(values).clone())


if __name__ == "__main__":
    main()
