"""Cuts texts into pieces.

One text of a message comes in; pieces that cover it exactly once go out: files, documents, blocks, changed lines. Each
recogniser is linear in the length of the text, and a text that it does not understand stays whole.
What a plugin needs is exported here.
"""

from proxy.core.recognition.pieces import (
    MOST_CHARS,
    MOST_PIECES,
    Bound,
    Cut,
    Form,
    PieceKind,
    Recogniser,
    Recognition,
    TooMuch,
)

__all__ = ["MOST_CHARS", "MOST_PIECES", "Bound", "Cut", "Form", "PieceKind", "Recogniser", "Recognition", "TooMuch"]
