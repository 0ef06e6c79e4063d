"""Room for intermediate results, asked for by several threads at once: none is handed out twice at a time."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import torch
from torch import Tensor

import torchcaps as tc
from torchcaps.votes.buffers import borrowed, reused_pool, scratch
from torture.result import Result

THREADS = 4
KINDS = (torch.float32, torch.float64, torch.uint8)


class StoppedError(Exception):
    """A tile that ended in the middle."""


class Claims:
    """Who uses which memory now."""

    def __init__(self, result: Result) -> None:
        self.result, self.lock, self.marks = result, threading.Lock(), 0
        self.live: dict[int, tuple[int, int]] = {}

    @contextmanager
    def held(self, tensor: Tensor) -> Iterator[None]:
        """Until the end of the block nobody else has this memory, and what is written there stays."""
        start, stop = tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
        with self.lock:
            self.marks += 1
            mark, value = self.marks, self.marks % 251
            if any(start < other_stop and other_start < stop for other_start, other_stop in self.live.values()):
                self.result.faults.append(f"{tensor.nbytes} bytes were handed out twice")
            self.live[mark] = (start, stop)
        tensor.fill_(value)
        try:
            yield
            time.sleep(0)  # another thread's turn
            with self.lock:
                good = bool((tensor == value).all())
                self.result.ended("unchanged") if good else self.result.fault("somebody wrote into it")
        finally:
            with self.lock:
                del self.live[mark]

    def tile(self, draw: random.Random, left: int, depth: int) -> None:
        """Take memory for a while, and within that while more."""
        if left == 0:
            if draw.random() < 0.1:
                raise StoppedError
            return
        shape, like = [draw.randint(0, 40) for _ in range(2)], torch.empty(0, dtype=draw.choice(KINDS))
        if draw.random() < 0.3:
            with borrowed(shape, like) as tensor, self.held(tensor):
                pass
        if depth < 2 and draw.random() < 0.1:
            self.call(draw, depth + 1)
        with self.held(scratch(shape, like)):
            self.tile(draw, left - 1, depth)

    def call(self, draw: random.Random, depth: int = 0) -> None:
        with suppress(StoppedError), reused_pool(has_hooks=draw.random() < 0.1) as room:
            for _ in range(draw.randint(1, 3)):
                with room.tile():
                    self.tile(draw, draw.randint(1, 5), depth)


def at_once(work: Callable[[int], None], result: Result) -> None:
    """The work of several threads, each told its number, that take turns as often as Python can."""

    def watched(number: int) -> None:
        try:
            work(number)
        except Exception as error:
            result.faults.append(f"{type(error).__name__}: {error}")

    started, before = time.perf_counter(), sys.getswitchinterval()
    threads = [threading.Thread(target=watched, args=(number,)) for number in range(THREADS)]
    sys.setswitchinterval(1e-6)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(before)
    result.seconds = time.perf_counter() - started


def try_rooms(takes: int, seed: int) -> Result:
    result = Result("sanitizers", f"buffers taken by {THREADS} threads")
    claims = Claims(result)

    def work(number: int) -> None:
        draw = random.Random(THREADS * seed + number)
        while result.cases < takes and not result.faults:
            claims.call(draw)

    at_once(work, result)
    return result


def try_layers(passes: int, seed: int) -> Result:
    """Layers in several threads compute what they compute in one."""
    result = Result("sanitizers", f"passes of a layer in {THREADS} threads")
    count = torch.get_num_threads()
    torch.manual_seed(seed)
    cases = []
    for routing in ("dynamic", "em", "kmeans"):
        layer = tc.DenseCapsules(30, 5, 4, 6, routing=routing)
        cases.append((layer, tc.Capsules(torch.randn(37, 30, 4), torch.rand(37, 30))))

    def compute(layer: tc.DenseCapsules, children: tc.Capsules) -> list[Tensor]:
        torch.set_num_threads(count)  # a setting of each thread
        parents = layer(children)
        loss = parents.poses.square().sum() + parents.activations.sum()
        return [parents.poses.detach(), *torch.autograd.grad(loss, list(layer.parameters()))]

    wanted = [compute(*case) for case in cases]

    def work(number: int) -> None:
        for turn in range(number, passes, THREADS):
            place = turn % len(cases)
            same = all(map(torch.equal, compute(*cases[place]), wanted[place]))
            with lock:
                result.ended("the same bits") if same else result.fault("other numbers than those of one thread")

    lock = threading.Lock()
    at_once(work, result)
    return result
