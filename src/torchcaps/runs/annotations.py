"""Annotations of options for the command line. Without tyro (a core install) they are replaced by stubs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tyro.conf import Positional, Suppress, UseAppendAction, arg
else:
    try:
        from tyro.conf import Positional, Suppress, UseAppendAction, arg
    except ModuleNotFoundError:

        class _Plain:
            def __class_getitem__(cls, kind: Any) -> Any:
                return kind

        Positional = Suppress = UseAppendAction = _Plain

        def arg(**words: Any) -> None:
            """Replaces tyro's function."""


__all__ = ["Positional", "Suppress", "UseAppendAction", "arg"]
