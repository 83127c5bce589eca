"""What moves: a file, a map, a document."""

from dataclasses import dataclass

from proxy.core.recognition.fixed_texts import Claim
from proxy.core.recognition.pieces import PieceKind


@dataclass(frozen=True, slots=True)
class Item:
    """One movable piece: a file, a map. ``key`` names it over time, ``digest`` covers its text."""

    key: str
    kind: PieceKind
    claim: Claim
    text: str
    digest: bytes
