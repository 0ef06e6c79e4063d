"""Training, evaluation and prediction over and over in one process: memory, open files and threads stay as they are."""

from __future__ import annotations

import gc
import io
import os
import shutil
import tempfile
import time
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
from PIL import Image

from torchcaps.analysis.evaluate import evaluate
from torchcaps.apps.inference import predict
from torchcaps.runs.config import TrainConfig
from torchcaps.runs.load import load
from torchcaps.train import train
from torture.result import Result, resident

ALLOWED = 4096  # bytes of memory for each cycle: four megabytes in a thousand


def cycle(folder: Path, picture: Path) -> None:
    """One small training from beginning to end, and its use."""
    config = TrainConfig(data="digits", limit=50, epochs=1, batch_size=25, option=("capsules=4",), out=folder / "run")
    with redirect_stdout(io.StringIO()):
        run = train(config)
    evaluate(load(run.folder), run.load_parts().test)
    predict(run, [picture])
    shutil.rmtree(run.folder)


def _state() -> tuple[int, int, int]:
    """Bytes of memory, open files, threads."""
    gc.collect()
    return resident(), len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def slope(values: np.ndarray) -> tuple[float, float]:
    """The slope of a straight line through the values, and its standard error."""
    places = np.arange(len(values)) - (len(values) - 1) / 2
    rise = float(places @ values / (places @ places))
    rest = values - values.mean() - rise * places
    return rise, float(np.sqrt(rest @ rest / max(1, len(values) - 2) / (places @ places)))


def run(cycles: int, seed: int = 0) -> list[Result]:
    """So many cycles, of which the first tenth warms up."""
    result = Result("leaks", "cycles of train, evaluate, predict")
    started = time.perf_counter()
    states = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        Image.new("L", (8, 8)).save(folder / "some.png")
        for _ in range(cycles):
            cycle(folder, folder / "some.png")
            states.append(_state())
    memory, files, threads = np.array(states[cycles // 10 :], dtype=np.float64).T
    rise, error = slope(memory)
    result.cases = cycles
    result.outcomes[f"memory {rise / 1024:+.2f} ± {error / 1024:.2f} KB a cycle, MB at the end"] = int(memory[-1]) >> 20
    result.outcomes["open files at the end"], result.outcomes["threads"] = int(files[-1]), int(threads[-1])
    if rise - 2 * error > ALLOWED:
        result.faults.append(f"memory grows by {rise:.0f} bytes a cycle")
    for name, counts in (("open files", files), ("threads", threads)):
        if counts[-1] > counts[0]:
            result.faults.append(f"{name} grew from {counts[0]:.0f} to {counts[-1]:.0f}")
    result.seconds = time.perf_counter() - started
    return [result]
