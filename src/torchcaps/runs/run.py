"""A run folder: what was trained, on what, how it went, and the weights.

config.json        every option, complete: `torchcaps train --config` reads it back
metadata.json          classes, image shape or size of the vocabulary, and what a usual reconstruction error is
split.json         which images or texts (files or rows) were for training, validation and test
vocabulary.json    of texts: the words that the network knows, or the tokenizer of its encoder
metrics.csv        one row for each epoch
model.safetensors  the weights that did best on the validation part
encoder/           a pretrained encoder as training began; model.safetensors then lacks it unless it was tuned
last.ckpt          everything needed to go on
train.log          what was said during training, and under which conditions it ran
README.md          a card, as model hubs read it

The folder may come from a stranger: every file of it is reached through `Run.path`, which refuses links that leave it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from torchcaps._core.errors import InputError, input_error
from torchcaps._core.fields import as_json
from torchcaps._core.files import atomic_write, inside
from torchcaps.data import (
    DATASETS,
    Labeled,
    Names,
    Splits,
    Vocabulary,
    in_classes,
    only_reading,
    read_names,
    row_finder,
    write_names,
)
from torchcaps.models import MODELS, create_model
from torchcaps.models.encoders import encoder_of
from torchcaps.models.frozen import Pretrained
from torchcaps.runs.config import TrainConfig, required, save_config
from torchcaps.runs.encoders import FOLDER, frozen_state, open_encoder, save_encoder, tuned
from torchcaps.runs.metadata import RunMetadata, load_metadata, load_metrics, load_resolved
from torchcaps.runs.rundata import limit, read_data
from torchcaps.runs.runfolders import check_new
from torchcaps.runs.weights import load_weights, make_network, refused, save_weights

GIVE_THE_SAME = "Give a network like the one that was trained."


@dataclass(frozen=True)
class Run:
    """A run on disk. `Run.open(folder)` reads one, `run.begin(parts)` writes a new one.

    folder: of the run. config: its options. metadata: about its data and network. network, parts: a network and data
    that were given in Python and are not in the folder. encoder: a pretrained one that is not in the folder yet.
    """

    folder: Path
    config: TrainConfig
    metadata: RunMetadata
    network: torch.nn.Module | None = field(default=None, compare=False, repr=False)
    parts: Splits | None = field(default=None, compare=False, repr=False)
    encoder: Pretrained | None = field(default=None, compare=False, repr=False)

    def path(self, *names: str) -> Path:
        """A file or folder of the run. Raises an `InputError` if a link leads out of it."""
        return inside(self.folder, *names)

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def weights(self) -> Path:
        return self.path("model.safetensors")

    @property
    def checkpoint(self) -> Path:
        return self.path("last.ckpt")

    @property
    def metrics(self) -> Path:
        return self.path("metrics.csv")

    @property
    def vocabulary(self) -> Path:
        return self.path("vocabulary.json")

    @property
    def log(self) -> Path:
        return self.path("train.log")

    def begin(self, parts: Splits, vocabulary: Vocabulary | None = None) -> Run:
        """Create the run folder with its config, metadata and split."""
        check_new(self.folder)
        stored = {word: part for word, part in parts._asdict().items() if isinstance(part, Labeled)}
        marks = {word: part.fingerprint() for word, part in stored.items()}
        run = replace(self, metadata=replace(self.metadata, fingerprints=marks))
        try:
            run.folder.mkdir(parents=True, exist_ok=True)
            write_names(run.path("split.json"), {word: part.names for word, part in stored.items()})
            if vocabulary is not None:
                vocabulary.save(run.vocabulary)
            if run.encoder is not None:
                save_encoder(run.encoder, run.path(FOLDER))
            run.save_metadata()
            save_config(run.config, run.path("config.json"))
        except OSError as error:
            raise input_error(str(run.folder), "a folder to write to", str(error), "Choose another --out.") from None
        return run

    def save_metadata(self) -> None:
        atomic_write(self.path("metadata.json"), as_json(asdict(self.metadata)))

    @property
    def model_name(self) -> str:
        """The name of the model, or the class of a network from Python."""
        return self.config.model or str(self.metadata.network)

    @property
    def how_to_resume(self) -> str:
        """The command that continues this run, or the Python call if its network or data were given in Python."""
        if self.metadata.in_python or self.config.model is None:
            return f"torchcaps.fit(model, data, resume={str(self.folder)!r})"
        return f"torchcaps train --resume {self.folder}"

    @classmethod
    def open(cls, folder: Path | str, *, network: torch.nn.Module | None = None, parts: Splits | None = None) -> Run:
        """Open the run in a folder, with objects that were given in Python."""
        folder = Path(folder)
        if not (folder / "config.json").exists():
            got = "no such folder" if not folder.exists() else "no config.json in it"
            remedy = "List the runs with: torchcaps list runs."
            raise input_error(str(folder), "a run folder", got, remedy)
        metadata = load_metadata(inside(folder, "metadata.json"))
        config = load_resolved(inside(folder, "config.json"))
        if config.model is None and metadata.network is None:
            raise input_error(str(folder), "the name of a model in config.json", "none", "Train or copy the run anew.")
        return cls(folder, config, metadata, network, parts)

    def with_metadata(self, **changes: Any) -> Run:
        run = replace(self, metadata=replace(self.metadata, **changes))
        run.save_metadata()
        return run

    def new_model(self, *, plan: bool = False) -> Any:
        """The model with its initial weights. plan: on the meta device, without memory."""
        if self.network is not None:
            return self.network if plan else deepcopy(self.network)
        if self.config.model is None:
            expected = f"its network, {self.metadata.network}, which was made in Python"
            remedy = f"Load it there: torchcaps.load({str(self.folder)!r}, model=...)."
            raise input_error(str(self.folder), expected, "none", remedy)
        if not plan:
            return make_network(self._make, partial(self._make, plan=True))
        with torch.device("meta"):
            return self._make(plan=True)

    def _make(self, *, plan: bool = False) -> Any:
        metadata, name, options = self.metadata, required(self.config.model), self.config.model_options()
        if metadata.kind == "texts":
            options |= {"dim": metadata.word_dim} | ({"many": metadata.many} if not MODELS[name].routes else {})
        if self.config.encoder is not None:
            encoder = open_encoder(self.path(FOLDER), plan=plan) if self.encoder is None else self.encoder
            options["encoder"] = tuned(encoder) if self.config.encoder_lr else encoder
        shape, words = metadata.image_shape, metadata.vocabulary
        make = partial(create_model, name, image_shape=shape, vocabulary=words, classes=len(metadata.classes))
        try:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self.config.seed)
                return make(**options)
        except InputError:
            raise
        except (ArithmeticError, AttributeError, RuntimeError, TypeError, ValueError) as error:
            if not self.config.option:
                raise
            given = " ".join(self.config.option)
            raise input_error(
                "--option", f"values that {self.config.model} takes", f"{given} ({error})", "Change them."
            ) from None

    def load_model(self) -> Any:
        """The trained model in evaluation mode. safetensors holds numbers only, so nothing is executed."""
        if not self.weights.exists():
            remedy = f"Go on with it: {self.how_to_resume}"
            raise input_error(str(self.folder), "trained weights", "none yet", remedy)
        return self.load_into(self.new_model())

    def load_into(self, model: torch.nn.Module, remedy: str = "Train or copy it anew.") -> Any:
        """Load the trained weights of this run into a model, and set evaluation mode. remedy: if they do not fit it."""
        state = load_weights(self.weights, sum(tensor.nbytes for tensor in model.state_dict().values()))
        encoder = encoder_of(model)
        if encoder is not None and encoder.frozen:  # its weights are in a folder of their own
            folder = None if self.metadata.network is None else self.path(FOLDER)
            state = frozen_state(encoder, folder) | state
        try:
            model.load_state_dict(state)
        except RuntimeError as error:
            raise refused(self.weights, str(error), remedy) from None
        return model.eval()

    def save_weights(self, model: torch.nn.Module) -> None:
        save_weights(self.weights, model)

    def data_folder(self, given: Path | None) -> tuple[Path | None, AbstractContextManager[None]]:
        """Where data sets by name are: the given folder, or that of the run, which is only read."""
        own = self.config.data_dir
        return (given, nullcontext()) if given is not None or own is None else (own, only_reading())

    def load_parts(self, data: Labeled | Splits | None = None, data_dir: Path | None = None) -> Splits:
        """Load the data of this run (or a copy) in its recorded parts. Raises an `InputError` for other data."""
        if data is None and self.parts is not None:
            return self._checked(self.parts)
        if data is None and self.metadata.in_python:
            remedy = "Give them there: torchcaps.evaluate(run, data); or here: --data FOLDER."
            raise input_error(str(self.folder), "its data, which were given in Python", "none", remedy)
        if data is None:
            if self.config.data not in DATASETS and not Path(self.config.data).exists():
                remedy = f"Put them back, or test on others: torchcaps evaluate {self.folder} --data FOLDER"
                raise input_error(str(self.folder), f"its data in {self.config.data}", "nothing there", remedy)
            folder, allowed = self.data_folder(data_dir)
            with allowed:
                data = read_data(replace(self.config, data_dir=folder))
        parts = self._as_written(data) if isinstance(data, Labeled) else limit(data, self.config)
        return self.readable(self._checked(parts))

    def _checked(self, parts: Splits) -> Splits:
        """Return these parts. Raises an `InputError` if they are not those of this run."""
        for word, known in self.metadata.fingerprints.items():
            part = getattr(parts, word)
            if not isinstance(part, Labeled) or part.fingerprint() != known:
                what = "pixels" if self.metadata.kind == "images" else self.metadata.kind
                got = f"other {what} or labels in the {word} part"
                raise input_error(self.config.data, "the data of this run", got, "Put the data back as they were.")
        return parts

    def own_parts(self, data: Labeled) -> Splits | None:
        """The parts of this run, if these are its data in another place (perhaps with more examples); else None."""
        try:
            return self.load_parts(data)
        except InputError:
            return None

    def words(self) -> Vocabulary:
        """The vocabulary of a run on texts."""
        found = Vocabulary.load(self.vocabulary)
        if len(found) != self.metadata.vocabulary:
            expected = f"the {self.metadata.vocabulary} words of this run"
            raise input_error(str(self.vocabulary), expected, len(found), "Train or copy the run anew.")
        return found

    def readable(self, parts: Splits) -> Splits:
        """The parts with the vocabulary of the run, if they are texts."""
        if self.metadata.kind != "texts":
            return parts
        how = {"vocabulary": self.words(), "max_length": self.config.max_length}
        return Splits(*(part if part is None else replace(part, **how) for part in parts))

    def _as_written(self, data: Labeled) -> Splits:
        find = row_finder(data.names)
        parts: dict[str, Labeled] = {}
        for word, names in self.split_names().items():
            found = find(names)
            if len(found) < len(names):
                there = set(data.names)
                lost = next((name for name in names if name not in there), "")
                got = f"{len(found)} of {len(names)} examples of the {word} part (not {lost})"
                raise input_error(self.config.data, "the data of this run", got, "Put what is missing back.")
            parts[word] = in_classes(self.config.data, data.take(found), self.metadata.classes)
        return Splits(**parts)

    def rows(self) -> list[dict[str, str]]:
        """The table of metrics, with a row for each epoch."""
        return load_metrics(self.metrics)

    def split_names(self) -> dict[str, Names]:
        """The recorded names of the examples of each part."""
        path = self.path("split.json")
        try:
            names = read_names(path)
        except (OSError, ValueError, RecursionError) as error:
            raise input_error(str(path), "a JSON file of names", error, "Train or copy the run anew.") from None
        if not {"train", "validation", "test"} <= names.keys() <= set(Splits._fields):
            raise input_error(str(path), "lists of names for train, validation and test", "others", "Train anew.")
        return names
