"""Peak memory of a training step, compiled with torch.compile(fullgraph=True) and not, each in a process of its own.

python benchmarks/compiled.py
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable

import torch

import torchcaps as tc
from torchcaps.apps.bench.measure import peak_memory
from torchcaps.votes import buffers

CASES = {"capsnet": ((1, 28, 28), 64), "matrix-small": ((1, 32, 32), 64)}


def step(name: str, compiled: bool) -> Callable[[], None]:
    """A training step, after two that compile and fill caches."""
    shape, batch = CASES[name]
    torch.manual_seed(0)
    model = tc.create_model(name, image_shape=shape, classes=10)
    run = torch.compile(model, fullgraph=True) if compiled else model
    images, labels = torch.rand(batch, *shape), torch.arange(batch) % 10

    def work() -> None:
        model.zero_grad()
        tc.margin_loss(run(images).activations, labels).backward()

    work()
    work()
    model.zero_grad()
    gc.collect()
    buffers._current.__dict__.clear()  # what these two left behind must count when it is made again
    ctypes.CDLL(None).malloc_trim(0)
    return work


if __name__ == "__main__":
    for name in CASES:
        found = {word: peak_memory(step, name, word == "compiled") for word in ("eager", "compiled")}
        shown = ", ".join(f"{word} {(peak or 0) / 2**20:,.0f} MB" for word, peak in found.items())
        print(f"{name}, batch {CASES[name][1]}: {shown}", flush=True)
