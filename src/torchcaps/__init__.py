"""torchcaps: capsule networks for PyTorch, where every routing is a clustering algorithm.

The public names are in `__init__.pyi`; each is imported on first use, so that the command line answers at once.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = "0.2.0"
