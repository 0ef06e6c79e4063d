"""What a layer costs on a GPU, counted without one: launches, bytes and operations, forwards and back.

    python benchmarks/gpu_costs.py

Layers run on torch's meta device, where nothing is computed, and every operation that would launch a kernel is counted
with the bytes of all tensors that it reads and writes. A kernel of ours counts as one launch with the bytes of its
arguments and results: what it reads again comes from the cache. Three versions: textbook code, votes made by torch in
tiles of 1 GB, and the kernels. The times are CALCULATED from peak figures of data sheets and 5 microseconds for each
launch that is not hidden; none was measured.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

os.environ["TORCHCAPS_NATIVE"] = "0"
os.environ["TORCHCAPS_TILE_BYTES"] = str(2**30)

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

import torchcaps as tc
from torchcaps.apps.bench import textbook
from torchcaps.votes.triton import backend, fits, grid, squash
from torchcaps.votes.triton.products import TritonProducts

# Operations that change how a tensor is seen, or make room, and launch nothing.
FREE = {
    "view", "_unsafe_view", "reshape", "expand", "t", "transpose", "permute", "slice", "select", "detach", "unsqueeze",
    "squeeze", "alias", "as_strided", "unfold", "split", "split_with_sizes", "unbind", "_reshape_alias", "diagonal",
    "movedim", "lift_fresh", "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "is_same_size",
    "_local_scalar_dense",
}  # fmt: skip
LAUNCH = 5e-6  # seconds
# Bytes a second of memory and float32 operations a second, from data sheets.
DEVICES = {"A100 80 GB": (2.0e12, 19.5e12), "H100 SXM": (3.35e12, 67e12), "RTX 4070 laptop": (0.256e12, 15.6e12)}


class Cost(NamedTuple):
    launches: int
    bytes: int
    operations: int

    def __str__(self) -> str:
        seconds = {
            name: max(self.launches * LAUNCH, self.bytes / memory + 0, self.operations / compute)
            for name, (memory, compute) in DEVICES.items()
        }
        times = "".join(f"{1e3 * each:>12.2f}" for each in seconds.values())
        return f"{self.launches:>9,}{self.bytes / 1e9:>11.2f}{self.operations / 1e9:>11.1f}{times}"


class Counting(TorchDispatchMode):
    """Counts what would be launched."""

    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()
        self.bytes = self.operations = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        name = function._schema.name.split("::")[1].rstrip("_")
        if name not in FREE:
            seen = [each for each in (*tree_leaves((args, kwargs)), *tree_leaves(result)) if isinstance(each, Tensor)]
            self.add(name, sum({id(each): _stored(each) for each in seen}.values()), 0)
            counter = flop_registry.get(function._overloadpacket)
            outputs = [each for each in tree_leaves(result) if isinstance(each, Tensor)]
            self.operations += (
                counter(*args, **(kwargs or {}), out_val=result) if counter else sum(each.numel() for each in outputs)
            )
        return result

    def add(self, name: str, bytes_: int, operations: int) -> None:
        self.names[name] += 1
        self.bytes += bytes_
        self.operations += operations

    @property
    def cost(self) -> Cost:
        return Cost(sum(self.names.values()), self.bytes, self.operations)


def _stored(tensor: Tensor) -> int:
    """The bytes of a tensor in memory; numbers that are repeated by strides of zero are there once."""
    numbers = 1
    for size, step in zip(tensor.shape, tensor.stride(), strict=True):
        numbers *= size if step else 1
    return numbers * tensor.element_size()


COUNTING: list[Counting] = [Counting()]  # the first one for what nobody asked to count


def _votes_launch(self: Any, kernel: Any, grid_: Any, pairs: Any, arrays: Any, *_: Any, **flags: Any) -> None:
    """In place of a launch: what the kernel would read, write and compute."""
    tensors = [self._poses, self._weight, *(each for each in arrays if each is not None)]
    tensors += [] if pairs is None else [pairs[0]]
    blocks = self._blocks
    votes = self._examples * self._children * self._parents * blocks.rows * blocks.columns
    name = getattr(kernel, "__name__", str(kernel))
    readings = {"moments_kernel": 2, "sums_kernel": 1, "inner_kernel": 1}.get(name, 2)
    COUNTING[-1].add(name, sum(map(_stored, tensors)), votes * (2 * blocks.inner + 4) * readings)


def _grid_launch(name: str, windows: Any, *arrays: Tensor, **flags: bool) -> None:
    COUNTING[-1].add(name, sum(map(_stored, arrays)), 4 * arrays[0].numel())


def _squash_launch(kernel: Any, rows: Tensor, constant: float, *more: Tensor) -> Tensor:
    found = torch.empty_like(rows)
    COUNTING[-1].add(kernel.__name__, sum(map(_stored, (rows, found, *more))), 6 * rows.numel())
    return found


def _fit_launch(name: str, like: Tensor, arrays: tuple[Tensor | None, ...], *_: Any, **flags: Any) -> None:
    COUNTING[-1].add(name, sum(_stored(each) for each in arrays if each is not None), 20 * like.numel())


def counted(run: Callable[[], Any]) -> Counting:
    run()  # tables are made once, and a routing says what it reads
    COUNTING.append(Counting())
    with COUNTING[-1]:
        run()
    return COUNTING.pop()


def _step(outputs: tuple[Tensor, ...]) -> None:
    torch.autograd.backward(outputs, [torch.ones_like(each) for each in outputs])


def _leaf(*shape: int) -> Tensor:
    return torch.empty(*shape, device="meta", requires_grad=True)


def dense(batch: int = 128) -> dict[str, Callable[[], None]]:
    layer = tc.DenseCapsules(1152, 10, 8, 16).to("meta")
    children = tc.Capsules(_leaf(batch, 1152, 8), torch.empty(batch, 1152, device="meta"))

    def ours() -> None:
        parents = layer(children)
        _step((parents.poses, parents.activations))

    weight = _leaf(1152, 10, 8, 16)
    return {"textbook": lambda: _step((textbook.dense_dynamic(children.poses, weight),)), "ours": ours}


def convolution(batch: int = 64) -> dict[str, Callable[[], None]]:
    layer = tc.ConvCapsules2d(32, 32, 16, 16, 3, stride=2, votes="matrix", routing="em").to("meta")
    poses, activations = _leaf(batch, 14, 14, 32, 16), _leaf(batch, 14, 14, 32)

    def ours() -> None:
        parents = layer(tc.Capsules(poses, activations))
        _step((parents.poses, parents.activations))

    weight, costs = _leaf(288, 32, 4, 4), textbook.Costs(_leaf(32, 1), _leaf(32))

    def plain() -> None:
        with torch.device("meta"):
            _step(textbook.conv_em(poses, activations, weight, costs, 3, 2, across=True))

    return {"textbook": plain, "ours": ours}


def model(name: str, shape: tuple[int, int, int], batch: int) -> dict[str, Callable[[], None]]:
    network = tc.create_model(name, image_shape=shape, classes=10).to("meta")
    images = torch.empty(batch, *shape, device="meta")
    return {"ours": lambda: _step((network(images).activations,))}


CASES: dict[str, Callable[[], dict[str, Callable[[], None]]]] = {
    "dense 1152x8 -> 10x16, batch 128, dynamic routing 3": dense,
    "EM convolution 14x14x32 -> 6x6x32 over a grid, batch 64, 3 iterations": convolution,
    "capsnet, 28x28, batch 128": lambda: model("capsnet", (1, 28, 28), 128),
    "matrix-small, 32x32, batch 64": lambda: model("matrix-small", (1, 32, 32), 64),
}


def costs() -> dict[str, dict[str, Counting]]:
    """For each case: textbook, torch in tiles, kernels."""
    torch._C._len_torch_dispatch_stack = lambda: 0  # type: ignore[attr-defined]  # we only count
    TritonProducts._launch = _votes_launch  # type: ignore[method-assign]
    grid._launch = _grid_launch
    squash._launch = _squash_launch
    fits._launch = _fit_launch
    found: dict[str, dict[str, Counting]] = {}
    for name, make in CASES.items():
        works = make()
        found[name] = {"textbook": counted(works["textbook"])} if "textbook" in works else {}
        for version, served in (("torch, tiles of 1 GB", False), ("kernels", True)):
            backend.serves = lambda device, served=served: served  # type: ignore[misc]
            found[name][version] = counted(works["ours"])
    return found


def main() -> None:
    print(f"{'':24}{'launches':>9}{'GB':>11}{'GFLOP':>11}" + "".join(f"{name[:11]:>12}" for name in DEVICES))
    print(f"{'':55}{'milliseconds, calculated':>36}")
    for name, versions in costs().items():
        print(name)
        for version, each in versions.items():
            print(f"  {version:<22}{each.cost}")


if __name__ == "__main__":
    main()
