"""Views of toys: the task of smallNORB, without a download."""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from torchcaps._core.progress import bar
from torchcaps.data.base import ImageSet, Splits, hold_out
from torchcaps.data.disk_store import may_write
from torchcaps.data.render import Lamp, Views, render
from torchcaps.data.solids import KINDS, solid

VERSION = 1  # of the images: increase it with every change to them; caches of other versions are ignored
SIDE = 32
INSTANCES = 10  # of each kind: the first half for training, the other for test
ELEVATIONS = range(30, 75, 5)
AZIMUTHS = range(0, 360, 20)
LAMPS = (
    Lamp(-60, 50, power=0.75, glow=0.30),
    Lamp(60, 50, power=0.75, glow=0.30),
    Lamp(0, 65, power=0.60, glow=0.35),
    Lamp(150, 40, power=0.80, glow=0.40),
    Lamp(-120, 60, power=0.50, glow=0.30),
    Lamp(20, 80, power=0.35, glow=0.65),
)
NOISE = 0.02

# Every view of a toy: elevation, azimuth and lamp, [view 3].
GRID = torch.cartesian_prod(torch.tensor(ELEVATIONS), torch.tensor(AZIMUTHS), torch.arange(len(LAMPS)))


def toys(folder: Path | None = None) -> Splits:
    """10,000 views of 50 toys, 32x32, drawn on the first use: 4,500 / 500 / 5,000, the last of other toys."""
    return _load("toys", 200, folder)


def toys_full(folder: Path | None = None) -> Splits:
    """48,600 views of 50 toys, 32x32, drawn on the first use: 21,870 / 2,430 / 24,300, the last of other toys."""
    return _load("toys-full", len(GRID), folder)


def _load(name: str, views_per_toy: int, folder: Path | None) -> Splits:
    chosen = torch.stack([_choose(number, views_per_toy) for number in range(len(KINDS) * INSTANCES)])
    path = folder / "toys" / f"{name}-{VERSION}.npz" if folder else None
    images = _read(path, chosen.numel()) if path else None
    if images is None:
        drawn = [_draw(number, views) for number, views in enumerate(bar(chosen, "drawing toys"))]
        images = torch.cat(drawn)
        if path:
            _write(path, images)
    number = torch.arange(len(chosen)).repeat_interleave(views_per_toy)
    elevation, azimuth, lighting = GRID[chosen.flatten()].T.contiguous()
    instance = number % INSTANCES
    views = {"instance": instance, "elevation": elevation, "azimuth": azimuth, "lighting": lighting}
    everything = ImageSet(images[:, None], number // INSTANCES, tuple(KINDS), views)
    learn, test = everything.take(instance < INSTANCES // 2), everything.take(instance >= INSTANCES // 2)
    return hold_out(learn, len(learn) // 10, test)


def _choose(number: int, count: int) -> Tensor:
    """Rows of the grid for one toy: every elevation and azimuth equally often, up to one, under random lamps."""
    draws = torch.rand(len(GRID), generator=torch.Generator().manual_seed(number))
    rank = draws.reshape(-1, len(LAMPS)).argsort(1).argsort(1).flatten()
    return (rank + draws).argsort()[:count].sort().values


def _look(number: int) -> tuple[float, float]:
    """Gray and size of one toy, from 0 to 1; each half of a kind has the same values, so that they reveal nothing."""
    half, member = divmod(number, INSTANCES // 2)
    dice, ranks = random.Random(half), range(INSTANCES // 2)
    gray, size = (dice.sample(ranks, len(ranks))[member] / (len(ranks) - 1) for _ in range(2))
    return gray, size


def _draw(number: int, chosen: Tensor) -> Tensor:
    """Images [n h w] in bytes of these rows [n] of the grid, for one toy."""
    generator = torch.Generator().manual_seed(number)
    # For the whole grid, so that a view does not depend on which others are rendered.
    right, up, span, table = torch.rand(4, len(GRID), generator=generator)[:, chosen]
    noise = torch.randn(len(GRID), SIDE, SIDE, generator=generator)[chosen]
    elevation, azimuth, lamp = GRID[chosen].T
    views = Views(
        elevation.float(),
        azimuth.float(),
        lamp,
        right=(right - 0.5) * 0.25,
        up=(up - 0.5) * 0.25,
        span=1.0 + 0.3 * span,
        table=0.35 + 0.1 * table,
    )
    kind, instance = divmod(number, INSTANCES)
    gray, size = _look(number)
    toy = solid(list(KINDS)[kind], seed=instance, size=0.66 + 0.14 * size)
    images = render(toy, 0.5 + 0.45 * gray, LAMPS, views, SIDE) + NOISE * noise
    return (images * 255).round().clamp(0, 255).byte()


def _read(path: Path, count: int) -> Tensor | None:
    try:
        with path.open("rb") as file, np.load(file) as arrays:
            images = torch.from_numpy(arrays["images"])
    except Exception:  # if a cache is invalid for any reason, the images are rendered again
        return None
    return images if images.shape == (count, SIDE, SIDE) and images.dtype == torch.uint8 else None


def _write(path: Path, images: Tensor) -> None:
    """Cache the images atomically, if the folder is writable."""
    if not may_write():
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            draft = Path(folder) / path.name
            np.savez(draft, images=images.numpy())
            os.replace(draft, path)
    except OSError:
        pass
