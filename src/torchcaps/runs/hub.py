"""Networks in the format of model hubs: a folder or repository with config.json, model.safetensors and a card."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps._core.errors import InputError, input_error
from torchcaps._core.types import Capsules
from torchcaps.models import ImageModel, Model, TextModel, create_model
from torchcaps.runs.weights import first_not_finite, first_reason, make_network

CARD = """\
---
{{ card_data }}
---

# {{ name }}

A network for {{ reads }} in {{ classes }} classes{{ names }}, made with torchcaps.

```python
import torchcaps

model = torchcaps.from_pretrained("path/or/repository")  # model(x).activations: one number for each class
```
"""


def save_pretrained(
    model: Model, folder: Path | str, *, class_names: Sequence[str] | None = None, **options: Any
) -> None:
    """Write a network of `create_model` or `load` into a folder: config.json, model.safetensors and a card.

    model: the network. folder: where to write. class_names: the names of its classes, in order. options: those of
    huggingface_hub's `PyTorchModelHubMixin.save_pretrained`; `repo_id` and `push_to_hub=True` also upload the folder.
    """
    origin = getattr(model, "origin", None)
    if origin is None:
        remedy = "Make it with torchcaps.create_model, or keep its state_dict."
        raise input_error("save_pretrained", "a network of create_model", type(model).__name__, remedy)
    name, given = origin
    names = None if class_names is None else [str(each) for each in class_names]
    if names is not None and len(names) != model.classes:
        raise input_error("save_pretrained", f"{model.classes} class_names", len(names), "Give one for each class.")
    try:
        known = json.loads(json.dumps(given))
    except TypeError:
        word = next(word for word, value in given.items() if not _is_json(value))
        remedy = "Keep its state_dict, and make the network again in Python."
        raise input_error("save_pretrained", "options that can be stored as JSON", word, remedy) from None
    shape = list(model.image_shape) if isinstance(model, ImageModel) else None
    words = model.vocabulary if isinstance(model, TextModel) else None
    broken = first_not_finite(model.state_dict())
    if broken is not None:
        raise input_error("save_pretrained", "weights that are finite numbers", f"others in {broken}", "Train it anew.")
    with torch.random.fork_rng(devices=[]):
        kept = _hub_model()(name, model.classes, shape, words, known, names)
    kept.model.load_state_dict(model.state_dict())
    listed = "" if names is None else f" ({', '.join(names[:40])}{', ...' if len(names) > 40 else ''})"
    about = {"name": name, "reads": model.reads, "classes": model.classes, "names": listed}
    kept.save_pretrained(folder, model_card_kwargs=about, **options)


def from_pretrained(source: Path | str, **options: Any) -> Model:
    """Load a network that `save_pretrained` wrote, in evaluation mode.

    source: a folder, or a repository on a hub. options: those of huggingface_hub's
    `PyTorchModelHubMixin.from_pretrained`, for example `revision` and `local_files_only`. The attribute `class_names`
    of the network has the names that were saved, or None.
    """
    folder = Path(source)
    if folder.is_dir():
        for file in ("config.json", "model.safetensors"):
            if not (folder / file).is_file():
                remedy = "For a run folder use torchcaps.load."
                raise input_error(str(source), f"a folder with {file}", "none", remedy)
        if (folder / "metadata.json").is_file():
            raise input_error(str(source), "a folder of save_pretrained", "a run folder", "Use torchcaps.load.")
    try:
        with torch.random.fork_rng(devices=[]):
            kept = _hub_model().from_pretrained(str(source), **{"strict": True, **options})
    except InputError:
        raise
    except Exception as error:  # invalid JSON or safetensors, missing fields, other networks
        got = first_reason(str(error) or type(error).__name__)
        remedy = "Check the folder, or the name of the repository."
        raise input_error(str(source), "a network that save_pretrained wrote", got, remedy) from None
    model: Model = kept.model.eval()
    broken = first_not_finite(model.state_dict())
    if broken is not None:
        raise input_error(str(source), "weights that are finite numbers", f"others in {broken}", "Copy it anew.")
    return model


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except TypeError:
        return False
    return True


@cache
def _hub_model() -> Any:
    """The class that huggingface_hub saves and loads; created on first use, because the package is slow to import."""
    try:
        from huggingface_hub import PyTorchModelHubMixin
    except ModuleNotFoundError:
        remedy = "Run: pip install 'torchcaps[hub]'."
        raise input_error("torchcaps", "the package huggingface_hub", "it not installed", remedy) from None

    class HubModel(
        nn.Module,
        PyTorchModelHubMixin,
        library_name="torchcaps",
        tags=["capsule-network"],
        model_card_template=CARD,
    ):
        """A network created from its name, sizes and options, which can be stored as JSON."""

        def __init__(
            self,
            name: str,
            classes: int,
            image_shape: list[int] | None = None,
            vocabulary: int | None = None,
            options: dict[str, Any] | None = None,
            class_names: list[str] | None = None,
        ) -> None:
            super().__init__()
            shape = None if image_shape is None else tuple(image_shape)
            sizes: dict[str, Any] = {"classes": classes, "image_shape": shape, "vocabulary": vocabulary}
            asked = (options or {}).items()
            given: dict[str, Any] = {word: tuple(v) if isinstance(v, list) else v for word, v in asked}
            if class_names is not None and len(class_names) != classes:
                remedy = "Copy the folder anew."
                raise input_error("config.json", f"{classes} class_names", len(class_names), remedy)
            self.model = make_network(partial(create_model, name, **sizes, **given))
            self.model.class_names = None if class_names is None else tuple(map(str, class_names))

        def forward(self, inputs: Tensor) -> Capsules:
            answer: Capsules = self.model(inputs)
            return answer

    return HubModel
