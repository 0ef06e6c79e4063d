"""An exported network in onnxruntime against the same network in torch: latency and throughput."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import torch

from torchcaps.apps.bench.measure import Run, interleaved, middle
from torchcaps.apps.export import export_model, load_onnx
from torchcaps.models import create_model

BATCHES = (1, 64)


def time_export(repeats: int) -> list[dict[str, Any]]:
    """Time the forward pass of `efficient` for 28 x 28 images on both sides, and print a row for each batch size."""
    print("efficient, forward, exported")
    torch.manual_seed(0)
    model = create_model("efficient", image_shape=(1, 28, 28), classes=10, decoder=False).eval()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        exported = load_onnx(export_model(model, Path(folder) / "efficient.onnx").path)
    with torch.inference_mode():
        for batch in BATCHES:
            images = torch.rand(batch, 1, 28, 28)
            runs: dict[str, Run] = {"torch": partial(model, images), "onnxruntime": partial(exported, images)}
            times = interleaved(runs, repeats)
            cells = [
                f"{side} {_ms(values)} ms, {batch / middle(values):,.0f} images/s" for side, values in times.items()
            ]
            ratio = middle(times["torch"]) / middle(times["onnxruntime"])
            print(f"  {f'batch {batch}':9}  {cells[0]:<46}  {cells[1]:<50}  {ratio:.1f}x", flush=True)
            rows.append({"case": "export", "work": f"forward, batch {batch}", "seconds": times, "ratio": ratio})
    return rows


def _ms(values: list[float]) -> str:
    return f"{1e3 * middle(values):.1f} ({1e3 * min(values):.1f}-{1e3 * max(values):.1f})"
