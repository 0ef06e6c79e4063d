"""Transposed convolutions of capsules, which make grids larger: each child reaches a kernel of parents.

The same routing as in `conv`, with windows turned round: a parent sees the children whose kernels reach it.
"""

from __future__ import annotations

import math
from typing import Any

from torchcaps._core.errors import input_error
from torchcaps.layers.windowed import WindowedLayer
from torchcaps.routing import Routing
from torchcaps.votes.transforms import VoteTransform
from torchcaps.votes.transposed import transposed_windows_of
from torchcaps.votes.windows import Sizes, Windows, strided_count


class _ConvTransposeCapsules(WindowedLayer):
    rivalry = 0.7  # a child reaches many parents, each of which sees few children: they find each other more slowly

    def __init__(
        self, in_capsules: int, out_capsules: int, in_dim: int, out_dim: int,
        kernel_size: int | Sizes, stride: int | Sizes = 1, padding: int | Sizes = 0, output_padding: int | Sizes = 0, *,
        dilation: int | Sizes = 1, competition: str = "grid", votes: str | VoteTransform = "full",
        routing: str | Routing = "dynamic", **options: Any,
    ) -> None:  # fmt: skip
        sizes, where = (in_capsules, out_capsules, in_dim, out_dim), (kernel_size, stride, padding, dilation)
        super().__init__(sizes, *where, competition=competition, votes=votes, routing=routing, **options)
        self.output_padding = self._per_axis("output_padding", output_padding, 0)
        steps = [max(pair) for pair in zip(self.stride, self.dilation, strict=True)]
        if any(more >= step for more, step in zip(self.output_padding, steps, strict=True)):
            got = f"output_padding={self.output_padding} for stride={self.stride} and dilation={self.dilation}"
            owner = type(self).__name__
            raise input_error(owner, "output_padding below stride or dilation", got, "Use less output_padding.")

    def _check_skip(self, sizes: dict[str, Any]) -> None:
        remedy = "Leave skip out, or use a convolution."
        raise input_error(type(self).__name__, "no skip: most parents are in no child's place", "skip=True", remedy)

    def _sees(self, kernel: Sizes, stride: Sizes, dilation: Sizes) -> tuple[int, int]:
        return strided_count(kernel, stride, dilation), math.prod(kernel)

    def windows(self, grid: Sizes) -> Windows:
        sizes = (self.kernel_size, self.stride, self.padding, self.output_padding, self.dilation)
        found = transposed_windows_of(grid, *sizes)
        if min(found.out) < 1:
            expected = f"a grid of which padding={self.padding} leaves parents"
            raise input_error(type(self).__name__, expected, f"a grid of {grid}", "Use less padding.")
        return found


class ConvTransposeCapsules1d(_ConvTransposeCapsules):
    """Children on a line [b t i e] to parents on a longer one [b t' j d].

    in_capsules, out_capsules, in_dim, out_dim, kernel_size, stride, padding, output_padding, dilation, competition and
    further arguments are those of `ConvTransposeCapsules2d`.
    """

    dimensions = 1


class ConvTransposeCapsules2d(_ConvTransposeCapsules):
    """Children on a grid [b h w i e] to parents on a larger grid [b h' w' j d].

    in_capsules, out_capsules: the types of capsules at one position. in_dim, out_dim: the sizes of poses.
    kernel_size, stride, padding, output_padding and dilation are those of `torch.nn.ConvTranspose2d`, and so is the
    size of the larger grid: h' = (h - 1) stride - 2 padding + dilation (kernel_size - 1) + output_padding + 1. The
    child at q votes for the parents at q stride - padding + k dilation, one for each place k of the kernel.
    competition: "grid" (a child is shared among all parents that it reaches) or "window" (among the types of parents at
    each position). The couplings are [b h' w' k i j], k running over the kernel row by row, and zero where place k
    holds no child. With a stride most places hold none, yet each costs as much as one that does: the work is about
    stride_h stride_w times what is needed.
    A parent that no child reaches (gaps where the stride is longer than the kernel, output_padding) has zero pose and
    activation; where there is any, parents carry a mask. Where children carry one, parents do too, as in
    `ConvCapsules2d`. Further arguments are those of `DenseCapsules`, without skip.
    """

    dimensions = 2


class ConvTransposeCapsules3d(_ConvTransposeCapsules):
    """Children on a grid [b z h w i e] to parents [b z' h' w' j d].

    in_capsules, out_capsules, in_dim, out_dim, kernel_size, stride, padding, output_padding, dilation, competition and
    further arguments are those of `ConvTransposeCapsules2d`.
    """

    dimensions = 3
