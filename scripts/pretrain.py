"""Make the networks that ship with torchcaps anew, or from runs that are trained already.

    python scripts/pretrain.py mnist-efficient               train (hours on a CPU), convert, test, write
    python scripts/pretrain.py mnist-efficient --run RUN     convert a run that was trained with the same options

The weights are stored in float16, which halves the file; the accuracy that is written down beside them was measured
after that, on the whole test part, with the weights read back as `load_pretrained` reads them.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from torchcaps._core.errors import input_error
from torchcaps.analysis.evaluate import evaluate
from torchcaps.models.pretrained import FOLDER
from torchcaps.runs.config import TrainConfig, save_config
from torchcaps.runs.parts import parts_for
from torchcaps.runs.recipes import resolve
from torchcaps.runs.run import Run
from torchcaps.train import train

TITLES = {
    "mnist-efficient": "MNIST digits, Efficient-CapsNet",
    "mnist-matrix-small": "MNIST digits, small matrix capsules with EM",
}
CONFIGS = {
    "mnist-efficient": TrainConfig(data="mnist", model="efficient", preset="best"),
    "mnist-matrix-small": TrainConfig(data="mnist", model="matrix-small", epochs=20),
}


def convert(name: str, run: Run, data_dir: Path | None) -> None:
    folder = FOLDER / name
    folder.mkdir(exist_ok=True)
    state = {word: _half(tensor) for word, tensor in load_file(run.weights).items()}
    save_file(state, folder / "model.safetensors")
    model = run.new_model().eval()
    model.load_state_dict(load_file(folder / "model.safetensors"))
    result = evaluate(model, parts_for(run, None, data_dir).test, batch_size=256)
    low, high = result.error_interval
    metadata = {
        "title": TITLES[name],
        "model": run.config.model,
        "options": run.config.model_options(),
        "image_shape": run.metadata.image_shape,
        "classes": run.metadata.classes,
        "data": run.config.data,
        "accuracy": result.accuracy,
        "examples": result.count,
        "error_interval_95": [low, high],
        "command": f"python scripts/pretrain.py {name}",
    }
    (folder / "metadata.json").write_text(json.dumps(metadata, indent=2) + "\n")
    save_config(dataclasses.replace(run.config, out=None, data_dir=None), folder / "config.json")
    size = (folder / "model.safetensors").stat().st_size
    print(f"{name}: accuracy {result.accuracy:.2%} on {result.count:,} examples, {size / 1e6:.1f} MB")


def check_same(name: str, run: Run, examples: int) -> None:
    """Refuse a run that was trained with other options than this script would train with."""
    ours = resolve(CONFIGS[name], examples)
    free = {"out", "data_dir", "device", "devices", "nodes", "strategy"}
    other = [
        field.name
        for field in dataclasses.fields(TrainConfig)
        if field.name not in free and getattr(run.config, field.name) != getattr(ours, field.name)
    ]
    if other:
        raise input_error(str(run.folder), "a run with the options of this script", ", ".join(other), "Train anew.")


def _half(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.half() if tensor.is_floating_point() else tensor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=CONFIGS)
    parser.add_argument("--run", type=Path, help="a run that is trained already")
    parser.add_argument("--out", type=Path, help="where to train; left out, a new folder under runs/")
    parser.add_argument("--data-dir", type=Path, help="where data sets by name are kept")
    asked = parser.parse_args()
    if asked.run is None:
        run = train(dataclasses.replace(CONFIGS[asked.name], out=asked.out, data_dir=asked.data_dir))
    else:
        run = Run.open(asked.run)
        check_same(asked.name, run, len(run.split_names()["train"]))
    convert(asked.name, run, asked.data_dir)


if __name__ == "__main__":
    main()
