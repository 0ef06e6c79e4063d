"""Encoders of texts in Hugging Face's format: a network of transformers and its tokenizer."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from torch import nn

from torchcaps._core.errors import input_error
from torchcaps._core.files import read_text
from torchcaps.data.subwords import subwords
from torchcaps.models.tokens import TextEncoder
from torchcaps.runs import huggingface

TOKENIZER = "tokenizer.json"
MOST_BYTES = 1 << 28  # of a tokenizer
UNLIMITED = 1 << 20  # tokens of a text for networks without a limit


def packaged_folder(name: str) -> Path | None:
    """The folder with a pretrained network in an installed package, whose code is not executed; None if there is none.

    name: of the package, as it is imported or as it is installed (with hyphens).
    """
    module = name.replace("-", "_")
    if not module.isidentifier():
        return None
    try:
        spec = importlib.util.find_spec(module)
    except ValueError:  # of a module that was made in Python
        return None
    found = [
        config.parent
        for place in (spec.submodule_search_locations if spec is not None else None) or ()
        for pattern in ("", "*/", "*/*/")
        for config in sorted(Path(place).glob(pattern + huggingface.CONFIG))
        if (config.parent / huggingface.WEIGHTS).is_file()
    ]
    if len(found) > 1:
        got = f"{len(found)}, such as {found[0]} and {found[1]}"
        raise input_error(f"--encoder {name}", "a package with one network", got, "Give one of these folders.")
    return found[0].resolve() if found else None


def from_folder(source: str, config: dict[str, Any]) -> TextEncoder:
    """The encoder of a folder with its weights and its tokenizer, frozen."""
    folder = Path(source)
    path = folder / TOKENIZER
    if not path.is_file():
        remedy = "Save the tokenizer with save_pretrained of a fast tokenizer."
        raise input_error(source, f"a folder with {TOKENIZER} beside {huggingface.CONFIG}", f"no {TOKENIZER}", remedy)
    network = huggingface.make_network(source, config, huggingface.read_state(folder))
    known: Any = network.config
    encoder = wrapped(network, source)
    vocabulary = subwords(
        str(path),
        read_text(path, MOST_BYTES),
        getattr(known, "pad_token_id", None),
        most_tokens(network),
        encoder.tokens,
    )
    encoder.padding, encoder.vocabulary = vocabulary.padding, vocabulary
    return encoder


def wrapped(network: nn.Module, source: str, padding: int = 0) -> TextEncoder:
    """A network of transformers as an encoder of texts."""
    known: Any = network.config
    if getattr(known, "is_encoder_decoder", False):
        got = f"{known.model_type}, which also writes texts"
        raise input_error(source, "an encoder for texts", got, f"Choose one like {huggingface.LIKE['texts']}.")
    tokens = network.get_input_embeddings().num_embeddings  # type: ignore[operator]
    return TextEncoder(network, source, dim=int(known.hidden_size), tokens=int(tokens), padding=padding)


def most_tokens(network: nn.Module) -> int:
    """The largest number of tokens that a network has positions for."""
    most = getattr(network.config, "max_position_embeddings", None) or UNLIMITED
    positions = [
        part for name, part in network.named_modules() if "position" in name and isinstance(part, nn.Embedding)
    ]
    # Where a position is for padding (RoBERTa), texts begin at the next one.
    taken = max((1 + part.padding_idx for part in positions if part.padding_idx is not None), default=0)
    return int(most) - taken
