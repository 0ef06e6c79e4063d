"""A training step of `matrix-small` on one thread: CPU seconds, and number of torch operations."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from torchcaps.apps.bench.measure import middle
from torchcaps.losses import spread_loss
from torchcaps.models import create_model

BATCH, ITERATIONS = 32, 2


def time_step(repeats: int) -> list[dict[str, Any]]:
    """Print and return the CPU seconds of steps on one thread, and the number of operations of one step."""
    print(f"matrix-small, training step on one thread, batch {BATCH}, {ITERATIONS} iterations")
    torch.manual_seed(0)
    model = create_model("matrix-small", image_shape=(1, 32, 32), classes=5, iterations=ITERATIONS)
    images, labels = torch.rand(BATCH, 1, 32, 32), torch.randint(5, (BATCH,))
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)  # as `train` has it

    def step() -> None:
        optimizer.zero_grad()
        spread_loss(model(images).activations, labels).backward()
        optimizer.step()

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        seconds = []
        for turn in range(repeats + 2):
            start = time.process_time()
            step()
            if turn > 1:  # two warm up
                seconds.append(time.process_time() - start)
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            step()
    finally:
        torch.set_num_threads(threads)
    operations = sum(1 for event in seen.events() or [] if event.name.startswith("aten::"))
    print(f"  {'CPU seconds':16}{middle(seconds):.3f} ({min(seconds):.3f}-{max(seconds):.3f})", flush=True)
    print(f"  {'operations':16}{operations:,} of torch, nested ones included", flush=True)
    return [{"case": "matrix-small", "work": "step", "seconds": seconds, "operations": operations}]
