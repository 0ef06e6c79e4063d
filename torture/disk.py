"""A disk that fills up while a run is written: a sentence, nothing lost, and the run goes on once there is room."""

from __future__ import annotations

import io
import os
import random
import subprocess
import tempfile
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import torch

from torchcaps._core.files import is_temporary
from torchcaps.apps.cli.main import main
from torchcaps.runs.weights import load_weights
from torture.kill import TRAINING
from torture.result import Result

SIZE = 64 << 20


def command(*words: str) -> tuple[int, str]:
    """Exit code and what stood on standard error, of a command run in this process."""
    said = io.StringIO()
    with redirect_stdout(io.StringIO()), redirect_stderr(said):
        code = main(list(words))
    return code, said.getvalue().strip()


def can_mount() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0 and Path("/proc/mounts").exists()


def _fill(folder: Path, room: int) -> None:
    """Leave so many bytes free on the disk of a folder."""
    stat = os.statvfs(folder)
    free = stat.f_bavail * stat.f_frsize
    with (folder / "filler").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, free - room))


def _intact(folder: Path) -> None:
    """Raise unless the checkpoint and the weights that there are can be read."""
    if (folder / "last.ckpt").exists():
        torch.load(folder / "last.ckpt", weights_only=True)
    if (folder / "model.safetensors").exists():
        load_weights(folder / "model.safetensors")


def try_disk(disk: Path, room: int, wanted: dict[str, torch.Tensor]) -> tuple[str, str | None]:
    """A training with so much room, and again with more: the file that did not fit, and what is wrong."""
    out = disk / "run"
    _fill(disk, room)
    code, said = command(*TRAINING, "--out", str(out))
    if code == 0:
        return "fitted", None
    if code != 2 or len(said.splitlines()) != 1 or "No space left on device" not in said:
        return "", f"exit code {code}: {said[-200:]}"
    name = "the folder" if "to write" not in said else Path(said.split("to write ")[1].split(",")[0]).name
    if any(is_temporary(path.name) for path in out.iterdir()):
        return name, "a temporary file was left behind"
    _intact(out)
    (disk / "filler").unlink()
    again = ("--resume", str(out)) if (out / "config.json").exists() else (*TRAINING[1:], "--out", str(out))
    code, said = command("train", *again)
    if code:
        return name, f"not resumed: {said[-200:]}"
    found = load_weights(out / "model.safetensors")
    same = all(torch.equal(found[each], wanted[each]) for each in wanted)
    return name, None if same else "other weights than those of a run with room"


def run(disks: int, seed: int = 0) -> list[Result]:
    """So many disks, each with another amount of room."""
    result = Result("disk", "full disks")
    started = time.perf_counter()
    if not can_mount():
        result.outcomes["skipped: only root can mount a small disk"] += 1
        return [result]
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as place:
        whole = Path(place) / "whole"
        code, said = command(*TRAINING, "--out", str(whole))
        if code:
            result.fault(said)
            return [result]
        wanted = load_weights(whole / "model.safetensors")
        files = sum(path.stat().st_size for path in whole.iterdir())
        for number in range(disks):
            disk = Path(place) / f"disk{number}"
            disk.mkdir()
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "torture", str(disk)], check=True)
            try:
                name, wrong = try_disk(disk, int(draw.random() ** 2 * 2 * files), wanted)
            finally:
                subprocess.run(["umount", str(disk)], check=True)
            result.fault(f"{name}: {wrong}") if wrong else result.ended(name)
    result.seconds = time.perf_counter() - started
    return [result]
