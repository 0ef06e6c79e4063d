"""What training costs on several processes: memory, bytes on the wire, and examples in a second.

python benchmarks/scale.py                memory and communication of a step, measured and calculated
python benchmarks/scale.py --throughput   2 processes of 1 thread against 1 process of 2 threads, in turns

The first: a step of the batch that the recipe gives, in this process on one thread. Adam keeps two numbers for each
parameter. Bytes on the wire are those of a ring all-reduce of gradients in float32: each of N processes sends
2 (N - 1) / N times their size, and receives as much. The bandwidth is that at which sending takes as long as computing,
were nothing hidden behind the backward pass.
"""

from __future__ import annotations

import csv
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from torchcaps.analysis.cost import peak_bytes
from torchcaps.models import create_model
from torchcaps.runs.config import TrainConfig, required
from torchcaps.runs.recipes import resolve
from torchcaps.train import class_loss

SHAPES = {"capsnet": (1, 28, 28), "matrix": (2, 32, 32), "text-b": None}  # of MNIST and smallNORB
WORDS, LENGTH = 18_000, 20  # about the vocabulary of the film reviews "mr", and the words of a sentence in them
ROUNDS = 3
TRAINING = ["mnist-5k", "--model", "capsnet", "--option", "channels=64", "--option", "capsules=8", "--limit", "1280"]


def main() -> None:
    if sys.argv[1:] == ["--throughput"]:
        throughput()
    else:
        costs()


def costs() -> None:
    torch.set_num_threads(1)
    heads = ("batch", "parameters", "weights", "gradients", "Adam", "activations", "s a step", "sent, N=2", "N=8")
    print(f"{'':<8}", *(f"{head:>11}" for head in (*heads, "Mbit/s, N=8")))
    for name, shape in SHAPES.items():
        torch.manual_seed(0)
        config = resolve(TrainConfig(model=name), 10_000, texts=shape is None)
        batch = required(config.batch_size)
        options = config.model_options()
        if shape is None:
            model = create_model(name, vocabulary=WORDS, classes=2, **options)
            inputs = torch.randint(1, WORDS, (batch, LENGTH))
        else:
            model = create_model(name, image_shape=shape, classes=10 if name == "capsnet" else 5, **options)
            inputs = torch.rand(batch, *shape)
        labels = torch.zeros(batch, dtype=torch.long)

        def step(model=model, inputs=inputs, labels=labels, config=config) -> None:
            capsules = model(inputs)
            loss = class_loss(config.loss or model.loss, model, capsules, labels)
            if config.reconstruction:
                loss = loss + (model.reconstruct(capsules, labels) - inputs).square().mean()
            loss.backward()

        step()  # gradients are there from now on
        living = peak_bytes(step)
        times = []
        for _ in range(ROUNDS):
            began = time.process_time()  # other work on the machine does not lengthen it
            step()
            times.append(time.process_time() - began)
        seconds = statistics.median(times)
        parameters = sum(each.numel() for each in model.parameters())
        size = 4 * parameters
        sent = {count: 2 * (count - 1) / count * size for count in (2, 8)}
        numbers = [f"{batch}", f"{parameters:,}", *(_mb(n) for n in (size, size, 2 * size, living)), f"{seconds:.3f}"]
        numbers += [_mb(sent[2]), _mb(sent[8]), f"{8 * sent[8] / seconds / 1e6:,.0f}"]
        print(f"{name:<8}", *(f"{number:>11}" for number in numbers), flush=True)


def _mb(size: float) -> str:
    return f"{size / 1e6:,.1f} MB"


def throughput() -> None:
    ways = {"1 process, 2 threads": (1, 2), "2 processes, 1 thread each": (2, 1)}
    speeds: dict[str, list[float]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(ROUNDS):
            for way, (devices, threads) in ways.items():
                out = Path(folder) / f"{devices}-{number}"
                words = ["train", *TRAINING, "--epochs", "3", "--devices", str(devices), "--out", str(out)]
                environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
                command = [sys.executable, "-m", "torchcaps", *words]
                subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
                with (out / "metrics.csv").open() as file:
                    rows = list(csv.DictReader(file))
                speeds[way].append(statistics.median(float(row["examples_per_second"]) for row in rows[1:]))
                print(f"round {number + 1}, {way}: {speeds[way][-1]:,.0f} examples/s", flush=True)
    for way, found in speeds.items():
        print(f"{way}: median {statistics.median(found):,.0f} ({min(found):,.0f}-{max(found):,.0f}) examples/s")


if __name__ == "__main__":
    main()
