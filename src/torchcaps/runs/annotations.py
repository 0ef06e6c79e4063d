"""What options say to the command line. Without its package (a core install), they say nothing, and all else works."""

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
            """Stands in for tyro's function."""


__all__ = ["Positional", "Suppress", "UseAppendAction", "arg"]
