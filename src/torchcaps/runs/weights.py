"""Weights on disk: safetensors, which holds numbers only, with a checksum."""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor
from torch.overrides import TorchFunctionMode

from torchcaps._core.errors import InputError, input_error
from torchcaps._core.files import atomic_write, open_regular
from torchcaps._core.memory import available_memory

HEADER = 1 << 24  # the maximum size of the header in bytes
Network = TypeVar("Network", bound=torch.nn.Module)
SUM = "crc32"  # a key of the file's metadata


def save_weights(path: Path, model: torch.nn.Module) -> None:
    """Write the state dict of a model as safetensors, with a checksum."""
    state, seen = {}, set()
    for name, tensor in model.state_dict().items():
        kept = tensor.detach().cpu().contiguous()
        place = kept.untyped_storage().data_ptr()
        state[name] = kept.clone() if place in seen else kept  # safetensors takes no memory twice
        seen.add(place)
    atomic_write(path, save(state, {SUM: _sum(state)}))


def load_weights(path: Path, most: int | None = None) -> dict[str, Tensor]:
    """Load the tensors of a file by name. Raises an `InputError` if it is broken or its checksum is wrong.

    most: the expected number of bytes of the weights; a much larger file is an error before it is read.
    """
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
        if most is not None and size > most + HEADER:
            raise refused(path, f"{size:,} bytes where {most:,} should be")
        with safe_open(path, "pt") as file:
            known = (file.metadata() or {}).get(SUM)
        state = load(path.read_bytes())  # the tensors of `safe_open` leak a little memory (0.8.0)
    except InputError:
        raise
    except (SafetensorError, OSError, RuntimeError, ValueError, TypeError) as error:
        raise refused(path, str(error)) from None
    if known is not None and known != _sum(state):
        raise refused(path, "numbers that have changed")
    broken = first_not_finite(state)
    if broken is not None:
        raise input_error(str(path), "weights that are finite numbers", f"others in {broken}", "Train or copy it anew.")
    return state


def first_not_finite(state: Mapping[str, Tensor]) -> str | None:
    """The name of the first tensor that contains NaN or infinity; None if all are finite."""
    floats = ((name, tensor) for name, tensor in state.items() if tensor.is_floating_point())
    return next((name for name, tensor in floats if not bool(tensor.isfinite().all())), None)


SMALL = 512 * 2**20  # bytes of a network that is made without a plan


class _LargeError(Exception):
    """A network has more bytes than SMALL."""


class _Small(TorchFunctionMode):
    """Raises a `_LargeError` as soon as the parameters that are made have more bytes than SMALL."""

    needed = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.empty and args:
            sizes = args if isinstance(args[0], int) else args[0]
            self.needed += math.prod(sizes) * ((kwargs or {}).get("dtype") or torch.get_default_dtype()).itemsize
            if self.needed > SMALL:
                raise _LargeError
        return func(*args, **(kwargs or {}))


def make_network(make: Callable[[], Network], plan: Callable[[], Network] | None = None) -> Network:
    """The network that `make` returns; an `InputError` before it is made if it does not fit into memory.

    A large network is first planned on the meta device, by `plan` if it is given. A small one is not, because that
    imports torch's compiler, which takes a second.
    """
    try:
        with _Small():
            return make()
    except _LargeError:
        pass
    with torch.device("meta"):
        planned = (plan or make)()
    check_room(planned)
    return make()


def check_room(model: torch.nn.Module) -> None:
    """Raise an `InputError` if a network does not fit into memory."""
    needed, there = sum(tensor.nbytes for tensor in model.state_dict().values()), available_memory()
    if there is not None and needed > there:
        got = f"one of {needed / 2**30:,.1f} GB"
        raise input_error("model", f"a network that fits {there / 2**30:.1f} GB of memory", got, "Make it smaller.")


def refused(path: Path, reason: str, remedy: str = "Train or copy it anew.") -> Exception:
    """The error for a file of weights that cannot be used."""
    return input_error(str(path), "the weights of this run", first_reason(reason), remedy)


def first_reason(reason: str) -> str:
    """The first informative line of a library's error; torch starts some of them with a heading."""
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("Error(s) in loading state_dict"):
        lines = lines[1:]
    return lines[0].rstrip(":. ") if lines else "a broken file"


def _sum(state: dict[str, Tensor]) -> str:
    found = 0
    for name in sorted(state):
        found = zlib.crc32(name.encode(), found)
        found = zlib.crc32(state[name].contiguous().view(-1).view(torch.uint8).numpy().data, found)
    return f"{found:08x}"
