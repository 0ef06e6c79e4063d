"""Examples in blocks: how a tile is laid out for native functions, and back.

A block holds as many examples as the functions work on at a time, its lanes. They lie innermost in memory, and all
numbers of a block together: children's poses are [block child number lane]. torch sees [block lane child number], so
that routings take blocks and lanes for leading axes like any others. Where there are fewer examples than lanes, several
windows of each share a block.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any

import torch
from torch import Tensor

from torchcaps.votes.buffers import scratch
from torchcaps.votes.competition import Competition, Reduce
from torchcaps.votes.windows import Windows


class Blocks:
    """The arrangement of a tile of `rows` examples, each with the same number of windows, in blocks of `lanes`.

    Lanes that are left over repeat the last example; windows that are left over repeat the last window.
    """

    def __init__(self, rows: int, windows: Windows | None, lanes: int) -> None:
        self.rows, self.lanes, self.windows = rows, lanes, windows
        self.count = 1 if windows is None else windows.count
        self.batch = -(-rows // lanes) * lanes  # with those that are left over
        if rows < lanes and self.count > 1:
            self.batch = 2 ** math.ceil(math.log2(rows))
        self.together = max(1, lanes // self.batch)  # windows in a block
        self.groups = max(1, self.batch // lanes)  # of blocks that have no example in common
        self.padded = -(-self.count // self.together) * self.together
        self.blocks = self.groups * self.padded // self.together  # in all

    def _fill(self, values: Tensor) -> Tensor:
        """The batch with more of its last example."""
        extra = self.batch - self.rows
        return torch.cat([values, values[-1:].expand(extra, *values.shape[1:])]) if extra else values

    def arrange(self, values: Tensor) -> Tensor:
        """Values of windows [b *out *rest] as [block lane *rest]."""
        values = self._fill(values.flatten(1, len(self.out)) if self.out else values.unsqueeze(1))  # [b p *rest]
        if self.padded > self.count:
            last = values[:, -1:].expand(-1, self.padded - self.count, *values.shape[2:])
            values = torch.cat([values, last], 1)
        rest = range(3, values.ndim + 1)
        if self.together == 1:
            laid = values.unflatten(0, (self.groups, self.lanes)).permute(0, 2, *rest, 1)  # [m p *rest l]
            return laid.contiguous().flatten(0, 1).movedim(-1, 1)
        laid = values.unflatten(1, (-1, self.together)).permute(1, *rest, 2, 0)  # [p' *rest w b]
        return laid.contiguous().flatten(-2).movedim(-1, 1)

    @property
    def out(self) -> tuple[int, ...]:
        return () if self.windows is None else self.windows.out

    def gather(self, values: Tensor) -> Tensor:
        """Values of places [b q c *rest] as windows see them, [block lane (k c) *rest]; zero outside."""
        values = self._fill(values)
        rest = range(2, values.ndim + 1)
        laid = values.unflatten(0, (self.groups, -1)).permute(0, *rest, 1).contiguous()  # [m q c *rest l]
        if self.windows is not None:
            if self.windows.sees_outside:
                laid = torch.cat([laid, torch.zeros_like(laid[:, :1])], 1)
            laid = laid.index_select(
                1, self.seen(values.device, self.windows.count - 1).flatten()
            )  # [m (p k) c *rest l]
            laid = laid.unflatten(1, (self.padded, -1)).flatten(2, 3)  # [m p (k c) *rest l]
            if self.together > 1:
                laid = laid[0].unflatten(0, (-1, self.together)).movedim(1, -2).contiguous().flatten(-2)
            else:
                laid = laid.flatten(0, 1)
        else:
            laid = laid.flatten(1, 2)
        return laid.movedim(-1, 1)

    def seen(self, device: torch.device, more: int | None = None) -> Tensor:
        """What each window sees, [p k], where those left over see as window number `more`; nothing, if that is None."""
        assert self.windows is not None
        seen = self.windows.seen(device)
        if self.padded == self.count:
            return seen
        extra = torch.full_like(seen[:1], self.windows.places) if more is None else seen[more : more + 1]
        return torch.cat([seen, extra.expand(self.padded - self.count, -1)])

    def restore(self, values: Tensor) -> Tensor:
        """Values [block lane *rest] as [b *out *rest]."""
        if self.together == 1:
            laid = values.unflatten(0, (self.groups, self.count)).transpose(1, 2).flatten(0, 1)  # [b p *rest]
        else:
            laid = values.unflatten(1, (self.together, self.batch))  # [p' w b *rest]
            laid = laid.flatten(0, 1).transpose(0, 1)[:, : self.count]
        laid = laid[: self.rows]
        return laid.unflatten(1, self.out) if self.out else laid.squeeze(1)


def argument(value: Any) -> Any:
    """A tensor, a number or nothing, as native functions take it."""
    if value is None or isinstance(value, Tensor):
        return ctypes.c_void_p(None if value is None else value.data_ptr())
    if isinstance(value, bool):
        return ctypes.c_int(value)
    return ctypes.c_ssize_t(value) if isinstance(value, int) else value


def call(function: Any, *arguments: Any) -> None:
    function(ctypes.c_int(torch.get_num_threads()), *map(argument, arguments))


def innermost(values: Tensor) -> Tensor:
    """Values [block lane x y], or [block lane x], as they lie: [block x y lane], without gaps."""
    return (values.permute(0, 2, 3, 1) if values.ndim == 4 else values.transpose(1, 2)).contiguous()


def outermost(values: Tensor) -> Tensor:
    """The other way round."""
    return values.permute(0, 3, 1, 2) if values.ndim == 4 else values.transpose(1, 2)


class InBlocks(Competition):
    """The competition of a layer, `across` windows or not, for scores that lie in blocks."""

    def __init__(self, library: ctypes.CDLL, blocks: Blocks, usual: Competition, children: int) -> None:
        self.library, self.blocks, self.usual = library, blocks, usual
        self.local, self.out = usual.local, usual.out
        self.sizes: tuple[int, ...] = ()
        self.seen: Tensor | None = None
        if not self.local:
            assert blocks.windows is not None
            self.seen = blocks.seen(torch.device("cpu"))
            offsets = self.seen.shape[1]
            lanes = min(blocks.batch, blocks.lanes)
            self.sizes = (blocks.groups, blocks.blocks // blocks.groups, offsets, children // offsets)
            self.places = (blocks.windows.places + 1, lanes)

    def __call__(self, values: Tensor, reduce: Reduce) -> Tensor:
        if self.local:
            return super().__call__(values, reduce)
        return self.blocks.arrange(self.usual(self.blocks.restore(values), reduce))

    def even(self, like: Tensor, leaky: bool) -> Tensor | None:
        if self.local:
            return super().even(like, leaky)
        blocks = self.blocks
        assert blocks.windows is not None
        each = self.usual.even(like.new_empty(()).expand(1, *blocks.out, *like.shape[2:]), leaky)
        if each is None:
            return None
        name = ("even in blocks", blocks.groups, blocks.together, blocks.lanes, *like.shape[2:], leaky, like.dtype)
        return blocks.windows.table(name, like.device, lambda: self._laid(each[0, ..., :1])).expand(like.shape)

    def for_windows(self, values: Tensor, like: Tensor) -> Tensor:
        return (values if values.ndim == 2 else self._laid(values)).expand(like.shape)

    def _laid(self, values: Tensor) -> Tensor:
        """Values of the pairs of windows, [*out i j], in blocks: [block lane i j], or with one lane for all."""
        blocks = self.blocks
        one = Blocks(1, blocks.windows, blocks.together)  # the windows of one example
        laid = one.arrange(values.unsqueeze(0)).repeat(blocks.groups, 1, 1, 1)  # [block w i j]
        return laid if blocks.together == 1 else laid.repeat_interleave(blocks.lanes // blocks.together, 1)

    def shares(
        self, scores: Tensor, mask: Tensor | None, kept: Tensor | None, *, hard: bool = False, leaky: bool = False
    ) -> Tensor:
        if hard:
            return super().shares(scores, mask, kept, hard=hard, leaky=leaky)
        couplings: Tensor = _Shares.apply(scores, self, mask, kept, leaky)
        return couplings

    def run(self, back: bool, parents: int, rows: int, *given: Any) -> None:
        if self.local:
            call(self.library.softmax_back if back else self.library.softmax, rows, parents, *given)
        else:
            function = self.library.grid_softmax_back if back else self.library.grid_softmax
            call(function, *self.sizes, parents, *self.places, self.seen, *given)


class _Shares(torch.autograd.Function):
    """Shares of masked children, and of parents that do not compete, are zero, and so are their gradients."""

    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, competition: InBlocks, mask: Tensor | None, kept: Tensor | None, leaky: bool
    ) -> Tensor:
        laid = innermost(scores)
        if mask is not None:
            laid = laid.masked_fill(~innermost(mask).unsqueeze(2), -math.inf)
        if kept is not None:
            laid = laid.masked_fill(~innermost(kept).unsqueeze(1), -math.inf)
        shares = scratch(laid.shape, laid, shown=True)
        competition.run(False, laid.shape[2], laid.shape[0] * laid.shape[1], leaky, laid, shares)
        ctx.competition = competition
        result = outermost(shares)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (shares,) = ctx.saved_tensors
        if torch.is_grad_enabled():
            weighed = shares * gradient
            return weighed - shares * ctx.competition(weighed, torch.sum), None, None, None, None
        laid, given = innermost(shares), innermost(gradient)
        result = scratch(laid.shape, laid)
        ctx.competition.run(True, laid.shape[2], laid.shape[0] * laid.shape[1], laid, given, result)
        return outermost(result), None, None, None, None
