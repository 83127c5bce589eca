"""Cuts texts into pieces.

One text of a message comes in; pieces that cover it exactly once go out: files, documents, blocks, changed lines. Each
recogniser is linear in the length of the text, and a text that it does not understand stays whole.
What a plugin needs is exported here.
"""

import warnings

from proxy.core.recognition.fixed_texts import FileClaim
from proxy.core.recognition.pieces import (
    MOST_CHARS,
    MOST_PIECES,
    Bound,
    Cut,
    MessageKind,
    PieceKind,
    Recogniser,
    Recognition,
    TooMuch,
)

__all__ = [
    "MOST_CHARS",
    "MOST_PIECES",
    "Bound",
    "Cut",
    "FileClaim",
    "MessageKind",
    "PieceKind",
    "Recogniser",
    "Recognition",
    "TooMuch",
]


def __getattr__(name: str) -> type:
    """The names that plugins of earlier versions import, with a warning."""
    renamed: dict[str, type] = {"Form": MessageKind, "Claim": FileClaim}
    if name not in renamed:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    new = renamed[name]
    warnings.warn(f"{__name__}.{name} is named {new.__name__} now", DeprecationWarning, stacklevel=2)
    return new
