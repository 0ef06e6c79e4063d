"""Distributed training: starts processes, knows their ranks, and lets only one of them print.

`--devices` starts processes as torchrun would, with the same environment variables and a store, so that all other code
is the same for both. The parent does not train: it waits, ends the others if one is lost, and says how to resume.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing import current_process, parent_process
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor
from torch import distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.multiprocessing.spawn import ProcessExitedException, spawn
from tqdm.auto import tqdm

from torchcaps._core.device import choose_device
from torchcaps._core.errors import InputError, input_error
from torchcaps._core.extensions import import_again
from torchcaps.runs.config import TrainConfig

OURS = "torchcaps"  # the run id of processes that `start` started
NEEDED = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK")


class Member(NamedTuple):
    """One of `world` processes, counted from 0."""

    rank: int = 0
    world: int = 1


def joined() -> bool:
    """Whether torchrun, or torchcaps itself, started this process as one of several."""
    return dist.is_torchelastic_launched()


def this_process() -> Member:
    """The rank of this process and the number of processes."""
    return Member(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])) if joined() else Member()


def sizes() -> tuple[int, int]:
    """The number of processes on this machine, and of machines, from the environment."""
    local = int(os.environ["LOCAL_WORLD_SIZE"]) if joined() else 1
    return local, this_process().world // local


def asked(config: TrainConfig) -> bool:
    """Whether the config asks for processes that are not started yet."""
    return not joined() and ((config.devices or 1) * (config.nodes or 1) > 1 or config.strategy == "ddp")


def check_processes(config: TrainConfig) -> None:
    """Raise an `InputError` for numbers of processes that this machine, or torchrun, does not have."""
    if joined():
        for name, count in zip(("devices", "nodes"), sizes(), strict=True):
            if getattr(config, name) not in (None, count):
                expected = f"{count}, as torchrun started them"
                raise input_error(f"--{name}", expected, getattr(config, name), f"Drop --{name}.")
        return
    if asked(config) and getattr(current_process(), "_inheriting", False):  # a child process that is still starting
        expected = 'a script that trains under if __name__ == "__main__":, as every process imports it'
        raise input_error("devices", expected, "a call outside of that", "Put it there, or use the command line.")
    kind = choose_device("train", config.device).type
    most = {"cpu": os.cpu_count() or 1, "cuda": torch.cuda.device_count()}.get(kind, 1)
    if (config.devices or 1) > most:
        what = {"cpu": "the cores of this machine", "cuda": "the GPUs of this machine"}.get(kind, f"with {kind}")
        raise input_error("--devices", f"at most {most}, {what}", config.devices, "Ask for fewer.")
    if (config.nodes or 1) > 1:
        missing = [name for name in NEEDED if name not in os.environ]
        if missing:
            remedy = "Set them on every node, or use torchrun (docs/scale.md)."
            raise input_error("--nodes", f"{', '.join(NEEDED)} in the environment", f"no {missing[0]}", remedy)
        if config.out is None:
            raise input_error("--nodes", "a folder that all nodes know", "no --out", "Give --out FOLDER.")


def is_other_node(config: TrainConfig) -> bool:
    """Whether another machine creates the run."""
    return asked(config) and (config.nodes or 1) > 1 and os.environ.get("NODE_RANK", "0") != "0"


def start(work: Callable[[Path], Any], folder: Path, config: TrainConfig) -> None:
    """Call `work(folder)` in as many processes as the config asks for, and wait for them."""
    devices, nodes = config.devices or 1, config.nodes or 1
    node = int(os.environ["NODE_RANK"]) if nodes > 1 else 0
    host = os.environ["MASTER_ADDR"] if nodes > 1 else "127.0.0.1"
    port = int(os.environ["MASTER_PORT"]) if nodes > 1 else 0
    store = TCPStore(host, port, is_master=node == 0, wait_for_workers=False)
    environment = {
        "MASTER_ADDR": host,
        "MASTER_PORT": str(store.port),
        "WORLD_SIZE": str(devices * nodes),
        "LOCAL_WORLD_SIZE": str(devices),
        "GROUP_RANK": str(node),
        "TORCHELASTIC_RUN_ID": OURS,
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    logging.getLogger("torch.multiprocessing.spawn").setLevel(logging.ERROR)
    team = spawn(_begin, (work, folder, environment), nprocs=devices, join=False)
    assert team is not None
    try:
        while not team.join():
            pass
    except KeyboardInterrupt:
        os.kill(team.pids()[0], signal.SIGINT)  # it handles Ctrl-C as a single process does
        team.processes[0].join()
        for process in team.processes:
            process.kill()
        raise
    except ProcessExitedException as error:
        if store.check(["refusal"]):
            raise InputError(store.get("refusal").decode()) from None
        how = error.signal_name or f"exit code {error.exit_code}"
        raise _loss(folder, devices * nodes, f"one that ended with {how}") from None


def _begin(local: int, work: Callable[[Path], Any], folder: Path, environment: dict[str, str]) -> None:
    """The main function of a child process."""
    rank = int(environment["GROUP_RANK"]) * int(environment["LOCAL_WORLD_SIZE"]) + local
    os.environ.update(environment, LOCAL_RANK=str(local), RANK=str(rank))
    if hasattr(os, "setpgrp"):  # not on Windows
        os.setpgrp()  # Ctrl-C is for the parent
    end_with_parent()
    tqdm.set_lock(threading.RLock())  # its own is a semaphore that a killed process leaves behind
    _hush()
    import_again()
    try:
        work(folder)
    except InputError as error:
        _store().set("refusal", str(error))
        sys.exit(2)


def end_with_parent() -> None:
    """End this process when its parent has ended for any reason.

    Otherwise it could wait half an hour for other processes, and would keep the lock of the run.
    """
    parent = parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _loss(folder: Path, world: int, got: str) -> InputError:
    remedy = f"Go on with: torchcaps train --resume {folder}"
    return input_error(str(folder), f"{world} processes that work to the end", got, remedy)


def _hush() -> None:
    """Silence all processes but the first, which also handles Ctrl-C; the others end after it."""
    if this_process().rank:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        warnings.simplefilter("ignore")
        signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def one_voice() -> Iterator[None]:
    """Under torchrun, let only the process that meets an `InputError` first report it."""
    if not joined():
        yield
        return
    _hush()
    try:
        yield
    except InputError:
        if _may_speak():
            raise
        sys.exit(2)


def announce_folder(folder: Path) -> None:
    """Tell the other processes the run folder, once it exists."""
    if joined():
        _store().set("folder", str(folder.resolve()))


def wait_for_folder() -> Path:
    """Wait for the run folder that the first process chose."""
    return Path(_store().get("folder").decode())


def _store() -> TCPStore:
    """A store that outlives this process: that of torchrun, or of the parent process."""
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return TCPStore(host, port, timeout=timedelta(days=1))


def _ours() -> bool:
    """Whether a parent process reports errors for this one."""
    return os.environ["TORCHELASTIC_RUN_ID"] == OURS


def _may_speak() -> bool:
    return _store().add("spoken", 1) == 1


def is_loss(error: BaseException) -> bool:
    """Whether an error reports that another process cannot be reached any more."""
    return joined() and (isinstance(error, dist.DistError) or "gloo" in str(error).lower())


def leave(folder: Path) -> NoReturn:
    """End this process after another one was lost; report it if no other process does."""
    if _ours():
        time.sleep(2)  # the parent should notice the lost process first
    elif _may_speak():
        print(_loss(folder, this_process().world, "one that did not"), file=sys.stderr, flush=True)
    os._exit(1)


def leave_when_told(folder: Path) -> None:
    """On SIGTERM, leave at once. Lightning would ask the other processes first, which may be gone."""
    if joined():
        signal.signal(signal.SIGTERM, signal.SIG_DFL if _ours() else lambda *_: leave(folder))


def summed(values: Tensor, device: torch.device) -> Tensor:
    """The sum of values over all processes."""
    if not dist.is_initialized():
        return values
    total = values.detach().to(device, copy=True)
    dist.all_reduce(total)
    return total.to(values.device)
