"""What moves: a file, a map, a document."""

from dataclasses import dataclass

from proxy.core.recognition import PieceKind
from proxy.core.words import Claim


@dataclass(frozen=True, slots=True)
class Item:
    """One movable piece: a file, a map. ``key`` names it over time, ``digest`` covers its text."""

    key: str
    kind: PieceKind
    claim: Claim
    text: str
    digest: bytes
