"""How much of the peak each native function reaches, votes made anew included: python benchmarks/native.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from torchcaps.apps.bench.measure import interleaved, machine_peaks, middle
from torchcaps.votes.competition import OverGrid, over_own_parents
from torchcaps.votes.gradients import MergedFactors
from torchcaps.votes.native import describe
from torchcaps.votes.native.blocks import Blocks, InBlocks
from torchcaps.votes.native.build import Geometry, library, widest
from torchcaps.votes.native.products import NativeProducts
from torchcaps.votes.windows import Windows, windows_of

TERMS = 5  # products of which the gradient of votes is made after three iterations
TURNS = 15


class Case(NamedTuple):
    """A layer. types: children at a place; without windows there is one place, seen by all."""

    examples: int
    types: int
    parents: int
    geometry: Geometry
    windows: Windows | None = None


CASES = {
    "dense 1152x8 -> 10x16, 64 examples": Case(64, 1152, 10, Geometry(1, 8, 16)),
    "matrix 288x16 -> 32x16, 64 examples": Case(64, 288, 32, Geometry(4, 4, 4)),
    "3x3 windows of 32x16 -> 32x16 on 8x8 places, 8 examples": Case(
        8, 32, 32, Geometry(4, 4, 4), windows_of((8, 8), (3, 3), (1, 1), (0, 0))
    ),
}


def main() -> None:
    print(f"native functions {describe()}, threads {torch.get_num_threads()}")
    peak, copy = machine_peaks()
    print(f"peak of a matrix product {peak / 1e9:.0f} GFLOP/s, of a copy {copy / 1e9:.0f} GB/s\n")
    for title, case in CASES.items():
        print(title)
        time_functions(case, peak, copy)


def time_functions(case: Case, peak: float, copy: float) -> None:
    functions = library(case.geometry, torch.float32)
    if isinstance(functions, str):
        raise SystemExit(f"There are no native functions here: {functions}.")
    blocks = Blocks(case.examples, case.windows, widest(torch.float32))
    places = 1 if case.windows is None else case.windows.places
    poses = blocks.gather(torch.randn(case.examples, places, case.types, case.geometry.in_dim))
    children = poses.shape[2]
    weight = torch.randn(children, case.parents, case.geometry.inner, case.geometry.columns)
    products = NativeProducts(functions, case.geometry, poses, weight)
    competition = InBlocks(
        functions, blocks, over_own_parents if case.windows is None else OverGrid(case.windows), children
    )
    works = {**of_votes(products), **of_scores(competition, products)}
    times = interleaved({name: work for name, (work, _, _) in works.items()}, TURNS)
    for name, (_, operations, moved) in works.items():
        seconds = middle(times[name])
        reached = f"{operations / seconds / 1e9:5.0f} GFLOP/s, {operations / seconds / peak:4.0%} of the peak"
        if moved:
            reached = f"{moved / seconds / 1e9:5.1f} GB/s, {moved / seconds / copy:4.0%} of a copy"
        print(f"  {name:22}{1e3 * seconds:7.2f} ms {reached}")
    print()


Work = tuple[Callable[[], object], float, float]  # what runs, its operations, or the bytes that it moves


def laid(products: NativeProducts, *sizes: int) -> Tensor:
    """Numbers as routings have them: [block lane *sizes], examples innermost."""
    return torch.rand(products.blocks, *sizes, products.lanes).movedim(-1, 1)


def of_votes(products: NativeProducts) -> dict[str, Work]:
    """Multiplications and additions of a number of a vote, in pairs: those that make it, and those that read it."""
    inner = products.geometry.inner
    numbers = 2 * products.shape.numel()
    pairs = [laid(products, products.children, products.parents) for _ in range(TERMS)]
    means = laid(products, products.parents, products.geometry.out_dim) - 0.5

    def gradients(square: bool) -> object:
        vectors, nothing = [[means]] * TERMS, [list[Tensor]()] * TERMS
        plain, scaled = (nothing, vectors) if square else (vectors, nothing)
        return products.gradients(MergedFactors(pairs, plain, scaled, means))

    return {
        "sums": (lambda: products.sums(pairs[0], None, first=True), numbers * (inner + 1), 0),
        "sums of squares": (lambda: products.sums(pairs[0], means, second=True), numbers * (inner + 2), 0),
        "moments": (lambda: products.moments(pairs[0], None), numbers * (inner + 2), 0),
        "agreements": (lambda: products.inner(means, None, None, None), numbers * (inner + 1), 0),
        "distances": (lambda: products.inner(None, means, None, means), numbers * (inner + 2), 0),
        "gradients": (lambda: gradients(False), numbers * (TERMS + 2 * inner), 0),
        "gradients of squares": (lambda: gradients(True), numbers * (2 * TERMS + 1 + 3 * inner), 0),
    }


def of_scores(competition: InBlocks, products: NativeProducts) -> dict[str, Work]:
    """Softmaxes, which read one number or two for each that they write."""
    sizes = (products.parents, products.blocks * products.children)
    scores, gradient, result = (
        torch.rand(products.blocks, products.children, products.parents, products.lanes) for _ in range(3)
    )
    name = "softmax" if competition.local else "grid softmax"
    return {
        name: (lambda: competition.run(False, *sizes, False, scores, result), 0, 2 * scores.nbytes),
        f"{name}, backward": (lambda: competition.run(True, *sizes, scores, gradient, result), 0, 3 * scores.nbytes),
    }


if __name__ == "__main__":
    main()
