"""A mode that sees who looks at numbers, for which a device must wait."""

from torch.utils._python_dispatch import TorchDispatchMode


class Waits(TorchDispatchMode):
    """Counts operations that would make a device wait for the host."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.name() in ("aten::_local_scalar_dense", "aten::item", "aten::nonzero", "aten::is_nonzero"):
            self.seen.append(function.name())
        return function(*args, **(kwargs or {}))
