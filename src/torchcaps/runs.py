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
import warnings
import zlib
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from torchcaps.config import TrainConfig, load_config, save_config
from torchcaps.data import DATASETS, ImageSet, PairSet, Splits, in_classes, open_data, split, viewpoint_split
from torchcaps.errors import InputError, complaint, shape_text
from torchcaps.fields import read_fields
from torchcaps.models import ImageModel, create_model


@dataclass(frozen=True)
class DataFacts:
    """What a model must know of its data.

    fits: the reconstruction error that 99 % of validation images stay below. fingerprints: of the pixels and labels of
    each part. stopped: patience ended the run, and there is nothing to resume.
    """

    classes: tuple[str, ...]
    image_shape: tuple[int, int, int]
    labels_per_image: int = 1
    fits: float | None = None
    fingerprints: dict[str, str] = field(default_factory=dict)
    stopped: bool = False


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
            refuse_folder(folder)
        train = parts.train
        stored = {word: part for word, part in parts._asdict().items() if isinstance(part, ImageSet)}
        marks = {word: fingerprint(part) for word, part in stored.items()}
        facts = DataFacts(train.classes, train.image_shape, train.labels_per_image, fingerprints=marks)
        run = cls(folder, config, facts)
        run.new_model()  # what cannot be made leaves no folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            names = {word: part.names for word, part in stored.items()}
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
        facts = read_fields(DataFacts, folder / "data.json", "the facts of a run")
        return cls(folder, load_config(folder / "config.json"), facts)

    def with_facts(self, **changes: Any) -> Run:
        run = replace(self, facts=replace(self.facts, **changes))
        run.save_facts()
        return run

    def new_model(self) -> ImageModel:
        """The model with fresh weights."""
        shape, classes, options = self.facts.image_shape, len(self.facts.classes), self.config.model_options()
        try:
            return create_model(self.config.model, image_shape=shape, classes=classes, **options)
        except InputError:
            raise
        except (ArithmeticError, AttributeError, RuntimeError, TypeError, ValueError) as error:
            if not self.config.option:
                raise
            given = " ".join(self.config.option)
            raise complaint(
                "--option", f"values that {self.config.model} takes", f"{given} ({error})", "Change them."
            ) from None

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

    def load_parts(self, data: ImageSet | Splits | None = None) -> Splits:
        """The data of this run (or a copy of them) in the parts that were written down; other images are refused."""
        data = read_data(self.config) if data is None else data
        parts = self._as_written(data) if isinstance(data, ImageSet) else limit(data, self.config)
        for word, known in self.facts.fingerprints.items():
            part = getattr(parts, word)
            if not isinstance(part, ImageSet) or fingerprint(part) != known:
                got = f"other pixels or labels in the {word} part"
                raise complaint(self.config.data, "the images of this run", got, "Put the data back as they were.")
        return parts

    def _as_written(self, data: ImageSet) -> Splits:
        rows = {name: row for row, name in enumerate(data.names)}
        parts: dict[str, ImageSet] = {}
        for word, names in self.split_names().items():
            found = [rows[name] for name in names if name in rows]
            if len(found) < len(names):
                got = f"{len(found)} of {len(names)} images of the {word} part"
                raise complaint(self.config.data, "the images of this run", got, "Put the missing files back.")
            chosen = data.take(torch.tensor(found, dtype=torch.long))
            parts[word] = in_classes(self.config.data, chosen, self.facts.classes)
        return Splits(**parts)

    def split_names(self) -> dict[str, list[str]]:
        """The names of the images of each part, as they were written down."""
        path = self.folder / "split.json"
        names = _read_json(path)
        whole = all(isinstance(part, list) and all(isinstance(name, str) for name in part) for part in names.values())
        if not whole or not {"train", "validation", "test"} <= names.keys() <= set(Splits._fields):
            raise complaint(str(path), "lists of names for train, validation and test", "others", "Train anew.")
        return names


def read_data(config: TrainConfig) -> ImageSet | Splits:
    """The images a config names: in parts where the set has its own."""
    data = open_data(
        config.data,
        folder=config.data_dir,
        size=config.size,
        colour=config.colour,
        validation=config.validation,
        seed=config.seed,
    )
    if config.viewpoint is None:
        return data
    if isinstance(data, ImageSet):
        remedy = "Drop --viewpoint; toys, smallnorb and eth-80 know theirs."
        raise complaint("--viewpoint", "images that know their viewpoints", config.data, remedy)
    return viewpoint_split(data, config.viewpoint)


def limit(parts: Splits, config: TrainConfig) -> Splits:
    """The parts with as many training images as the config allows."""
    if config.limit is None or config.limit >= len(parts.train):
        return parts
    if isinstance(parts.train, PairSet):
        return Splits(cast("ImageSet", parts.train.shortened(config.limit)), *parts[1:])
    train = split(parts.train, [config.limit], config.seed)[0]
    missing = [name for name, count in train.counts().items() if not count]
    if missing:
        got = f"none of {', '.join(missing)}"
        raise complaint("--limit", "images of every class", got, "Raise --limit.")
    return parts._replace(train=train)


def parts_for(run: Run, source: str | None = None, data_dir: Path | None = None) -> Splits:
    """The run's own data, or others in the run's classes and image shape.

    A moved copy of the run's own images keeps the split of the run; of other files, all are for testing.
    """
    config = replace(run.config, data_dir=data_dir or run.config.data_dir)
    run = replace(run, config=config)
    if source is None:
        return run.load_parts()
    channels, height, width = run.facts.image_shape
    size = config.size
    if source not in DATASETS and size is None and height == width:
        size = height
    data = open_data(source, folder=config.data_dir, size=size, colour={1: False, 3: True}.get(channels))
    if source.endswith("-5k") and config.data in ("mnist", "multimnist", "translated", "affnist"):
        warnings.warn(f"the digits of {source} are among those that {config.data} trains on: no test", stacklevel=2)
    if isinstance(data, ImageSet):
        if config.data not in DATASETS and set(run.split_names()["train"]) <= set(data.names):
            return run.load_parts(data)
        data = Splits(data, data, data)
    if data.test.image_shape != run.facts.image_shape:
        got = shape_text(data.test.image_shape)
        raise complaint(source, f"images {shape_text(run.facts.image_shape)}", got, "Choose data of this shape.")
    named = {word: part for word, part in data._asdict().items() if part is not None}
    return Splits(**{word: in_classes(source, part, run.facts.classes) for word, part in named.items()})


def next_folder(config: TrainConfig, root: Path = Path("runs")) -> Path:
    """A free folder for a new run: runs/DATA-MODEL, or with -2, -3, ... behind it."""
    stem = f"{Path(config.data).stem or 'data'}-{config.model}" + (f"-{config.routing}" if config.routing else "")
    number = 1
    while (folder := root / (stem if number == 1 else f"{stem}-{number}")).exists():
        number += 1
    return folder


def refuse_folder(folder: Path) -> None:
    remedy = f"Choose another --out, or go on with it: torchcaps train --resume {folder}"
    raise complaint(str(folder), "a new folder", "one that holds a run already", remedy)


def find_runs(root: Path) -> list[Path]:
    """Run folders at or below `root`, no deeper than three levels."""
    depths = ("", "*/", "*/*/", "*/*/*/")
    found = {path.parent for depth in depths for path in root.glob(f"{depth}config.json")}
    return sorted(folder for folder in found if (folder / "data.json").exists())


def fingerprint(part: ImageSet) -> str:
    """A number that other pixels, labels or another order would change."""
    pixels = zlib.crc32(part.images.numpy().tobytes())
    return f"{zlib.crc32(part.labels.numpy().tobytes(), pixels):08x}"


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
