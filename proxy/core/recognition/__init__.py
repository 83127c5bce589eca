"""Cuts texts into pieces.

One text of a message comes in; pieces that cover it exactly once go out: files, documents, blocks, changed lines. Each
recogniser takes time that is linear in the length of the text. A text that no recogniser understands stays whole. The
package exports the names that a plugin needs.
"""

from proxy.core.recognition.fixed_texts import FileClaim
from proxy.core.recognition.pieces import (
    MOST_CHARS,
    MOST_PIECES,
    MOVABLE_IN_SYSTEM,
    Bound,
    Cut,
    MessageKind,
    PieceKind,
    Recogniser,
    Recognition,
    TooMuch,
    covers,
    joined,
    recognise_text,
)
from proxy.core.renamed import renamed

__all__ = [
    "MOST_CHARS",
    "MOST_PIECES",
    "MOVABLE_IN_SYSTEM",
    "Bound",
    "Cut",
    "FileClaim",
    "MessageKind",
    "PieceKind",
    "Recogniser",
    "Recognition",
    "TooMuch",
    "covers",
    "joined",
    "recognise_text",
]

__getattr__ = renamed(__name__, __name__, {"Form": "MessageKind", "Claim": "FileClaim"})
