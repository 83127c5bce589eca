"""What moves: a file, a map, a document."""

from dataclasses import dataclass

from proxy.core.recognition.fixed_texts import FileClaim
from proxy.core.recognition.pieces import PieceKind


@dataclass(frozen=True, slots=True)
class ContextPiece:
    """One movable piece: a file, a map. ``key`` names it over time, ``digest`` covers its text."""

    key: str
    kind: PieceKind
    claim: FileClaim
    text: str
    digest: bytes
