"""A run folder: what was trained, on what, how it went, and the weights.

config.json        every option, complete: `torchcaps train --config` reads it back
data.json          classes, image shape, and what a usual reconstruction error is
split.json         which images (files or rows) were for training, validation and test
metrics.csv        one row for each epoch
model.safetensors  the weights that did best on the validation part
last.ckpt          everything needed to go on
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from torchcaps.config import TrainConfig, load_config, save_config
from torchcaps.data import ImageSet, Splits, make_parts, open_data, viewpoint_split
from torchcaps.errors import complaint, shape_text
from torchcaps.models import ImageModel, create_model


@dataclass(frozen=True)
class DataFacts:
    """What a model must know of its data. fits: the reconstruction error that 99 % of validation images stay below."""

    classes: tuple[str, ...]
    image_shape: tuple[int, int, int]
    labels_per_image: int = 1
    fits: float | None = None


@dataclass(frozen=True)
class Run:
    """A run on disk. `Run.open(folder)` reads one, `Run.create(...)` begins one."""

    folder: Path
    config: TrainConfig
    facts: DataFacts

    @property
    def weights(self) -> Path:
        return self.folder / "model.safetensors"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "last.ckpt"

    @property
    def metrics(self) -> Path:
        return self.folder / "metrics.csv"

    @classmethod
    def create(cls, folder: Path, config: TrainConfig, parts: Splits) -> Run:
        if (folder / "config.json").exists():
            remedy = f"Choose another --out, or go on with it: torchcaps train --resume {folder}"
            raise complaint(str(folder), "a new folder", "one that holds a run already", remedy)
        train = parts.train
        run = cls(folder, config, DataFacts(train.classes, train.image_shape, train.labels_per_image))
        run.new_model()  # what cannot be made leaves no folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            names = {word: part.names for word, part in parts._asdict().items() if isinstance(part, ImageSet)}
            (folder / "split.json").write_text(json.dumps(names))
            run.save_facts()
            save_config(config, folder / "config.json")
        except OSError as error:
            raise complaint(str(folder), "a folder to write to", str(error), "Choose another --out.") from None
        return run

    def save_facts(self) -> None:
        write_whole(self.folder / "data.json", json.dumps(asdict(self.facts), indent=2))

    @classmethod
    def open(cls, folder: Path | str) -> Run:
        folder = Path(folder)
        if not (folder / "config.json").exists():
            got = "no such folder" if not folder.exists() else "no config.json in it"
            remedy = "List the runs with: torchcaps list runs."
            raise complaint(str(folder), "a run folder", got, remedy)
        values = _read_json(folder / "data.json")
        try:
            facts = DataFacts(
                tuple(values["classes"]), tuple(values["image_shape"]), values["labels_per_image"], values["fits"]
            )
        except (KeyError, TypeError) as error:
            raise complaint(str(folder / "data.json"), "the facts of a run", repr(error), "Train anew.") from None
        return cls(folder, load_config(folder / "config.json"), facts)

    def with_facts(self, **changes: Any) -> Run:
        run = replace(self, facts=replace(self.facts, **changes))
        run.save_facts()
        return run

    def new_model(self) -> ImageModel:
        """The model with fresh weights."""
        options = self.config.model_options()
        return create_model(
            self.config.model, image_shape=self.facts.image_shape, classes=len(self.facts.classes), **options
        )

    def load_model(self) -> ImageModel:
        """The trained model, ready to use. safetensors holds numbers only, so nothing is executed."""
        if not self.weights.exists():
            remedy = f"Go on with it: torchcaps train --resume {self.folder}"
            raise complaint(str(self.folder), "trained weights", "none yet", remedy)
        model = self.new_model()
        try:
            model.load_state_dict(load_file(self.weights))
        except (SafetensorError, RuntimeError, OSError) as error:
            reason = str(error).splitlines()[0]
            raise complaint(str(self.weights), "the weights of this run", reason, "Train or copy it anew.") from None
        return model.eval()

    def save_weights(self, model: torch.nn.Module) -> None:
        state = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
        temporary = self.weights.with_suffix(".tmp")
        save_file(state, temporary)
        os.replace(temporary, self.weights)

    def load_parts(self) -> Splits:
        """The data of this run, in the parts that were written down."""
        data = read_data(self.config)
        if isinstance(data, Splits):
            return data
        kept = _read_json(self.folder / "split.json")
        rows = {name: row for row, name in enumerate(data.names)}
        parts: dict[str, ImageSet] = {}
        for word, names in kept.items():
            found = [rows[name] for name in names if name in rows]
            if len(found) < len(names):
                got = f"{len(found)} of {len(names)} images of the {word} part"
                raise complaint(self.config.data, "the images of this run", got, "Put the missing files back.")
            parts[word] = data.take(torch.tensor(found))
        return Splits(**parts)


def read_data(config: TrainConfig) -> ImageSet | Splits:
    """The images a config names: in parts where the set has its own."""
    data = open_data(config.data, folder=config.data_dir, size=config.size, colour=config.colour)
    if config.viewpoint is None:
        return data
    return viewpoint_split(make_parts(data, seed=config.seed), config.viewpoint)


def parts_for(run: Run, source: str | None = None, data_dir: Path | None = None) -> Splits:
    """The run's own data, or others in the run's classes and image shape; own files are all for testing."""
    config = replace(run.config, data_dir=data_dir or run.config.data_dir)
    if source is None:
        return replace(run, config=config).load_parts()
    channels, height, width = run.facts.image_shape
    size = height if height == width else None
    colour = {1: False, 3: True}.get(channels)
    data = open_data(source, folder=config.data_dir, size=config.size or _own_size(source, size), colour=colour)
    parts = Splits(data, data, data) if isinstance(data, ImageSet) else data
    if parts.test.image_shape != run.facts.image_shape:
        got = shape_text(parts.test.image_shape)
        raise complaint(source, f"images {shape_text(run.facts.image_shape)}", got, "Choose data of this shape.")
    named = {word: part for word, part in parts._asdict().items() if part is not None}
    return Splits(**{word: _in_classes(source, part, run.facts.classes) for word, part in named.items()})


def _own_size(source: str, size: int | None) -> int | None:
    """Pictures of a user are resized to fit; a data set by name keeps its size."""
    return size if Path(source).expanduser().exists() else None


def _in_classes(source: str, part: ImageSet, classes: tuple[str, ...]) -> ImageSet:
    """The same images with labels that count the classes of a run."""
    if part.classes == classes:
        return part
    unknown = [name for name in part.classes if name not in classes]
    if unknown:
        expected = f"classes among {', '.join(classes)}"
        raise complaint(source, expected, ", ".join(unknown), "Rename the subfolders, or leave these out.")
    places = torch.tensor([classes.index(name) for name in part.classes])
    return replace(part, labels=places[part.labels], classes=classes)


def next_folder(config: TrainConfig, root: Path = Path("runs")) -> Path:
    """A free folder for a new run: runs/DATA-MODEL, or with -2, -3, ... behind it."""
    stem = f"{Path(config.data).stem or 'data'}-{config.model}" + (f"-{config.routing}" if config.routing else "")
    number = 1
    while (folder := root / (stem if number == 1 else f"{stem}-{number}")).exists():
        number += 1
    return folder


def find_runs(root: Path) -> list[Path]:
    """Run folders at or below `root`, no deeper than three levels."""
    depths = ("", "*/", "*/*/", "*/*/*/")
    found = {path.parent for depth in depths for path in root.glob(f"{depth}config.json")}
    return sorted(folder for folder in found if (folder / "data.json").exists())


def write_whole(path: Path, text: str) -> None:
    """Write a file so that it is either the old or the new one, whatever happens meanwhile."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text)
    os.replace(temporary, path)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise complaint(str(path), "a JSON file of a run", str(error), "Train or copy the run anew.") from None
    if not isinstance(values, dict):
        raise complaint(str(path), "a JSON object", type(values).__name__, "Train or copy the run anew.")
    return values
