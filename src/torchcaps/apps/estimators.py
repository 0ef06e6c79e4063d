"""The scikit-learn classifiers, or classes that raise an error when scikit-learn is not installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchcaps.apps.sklearn import CapsuleClassifier
    from torchcaps.apps.sklearn_texts import CapsuleTextClassifier
else:
    try:
        from torchcaps.apps.sklearn import CapsuleClassifier
        from torchcaps.apps.sklearn_texts import CapsuleTextClassifier
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != "sklearn":
            raise
        from torchcaps._core.errors import input_error

        class CapsuleClassifier:
            """A classifier of images or vectors; needs scikit-learn."""

            def __init__(self, *_: Any, **__: Any) -> None:
                remedy = "Run: pip install 'torchcaps[train]'."
                raise input_error(type(self).__name__, "the package scikit-learn", "it not installed", remedy)

        class CapsuleTextClassifier(CapsuleClassifier):
            """A classifier of texts; needs scikit-learn."""


__all__ = ["CapsuleClassifier", "CapsuleTextClassifier"]
