"""The last diagnoses of a session, in a few bytes each, so that they can be shared with the session."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final

from proxy.core.diagnosis.breaks import KINDS, Break
from proxy.core.diagnosis.record import PromptRecord
from proxy.core.response.usage import Usage

MOST_REQUESTS: Final = 500
MOST_CULPRITS: Final = 100
_OTHER: Final = "other"
# Time, prompt, read, written; kind (0: no break), culprit, waste, line; before, culprit, behind, lost; USD.
_ENTRY: Final = Struct("<dIIIBBBHIIIIf")
ENTRY_BYTES: Final = _ENTRY.size
_MOST = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Entry:
    """One request of a session: when it came, in seconds, the tokens of its prompt, and those that were read and
    written. ``kind`` is empty where nothing broke; the rest is as in a ``Break``, and ``culprit`` is kind and key."""

    at: float
    prompt: int
    read: int
    written: int
    kind: str = ""
    culprit: str = ""
    is_waste: bool = False
    line: int = 0
    before: int = 0
    tokens: int = 0
    behind: int = 0
    lost: int = 0
    usd: float = 0.0


@dataclass(frozen=True, slots=True)
class History:
    """The last requests of a session as ``packed`` bytes, and the names of the culprits by their numbers."""

    packed: bytes = b""
    culprits: Sequence[str] = ()

    def added(self, record: PromptRecord, usage: Usage | None, found: Break | None) -> "History":
        """With one more request; the oldest makes room for it."""
        told = usage or Usage(record.total, 0)
        culprits, number = list(self.culprits), 0
        if found is not None and found.culprit:
            name = f"{found.culprit_kind}:{found.culprit}"
            if name not in culprits:
                if len(culprits) >= MOST_CULPRITS:
                    name = _OTHER
                culprits += [] if name in culprits else [name]
            number = culprits.index(name) + 1
        one = found or Break(kind=KINDS[0])  # type: ignore[arg-type]
        packed = _ENTRY.pack(
            record.at,
            _fits(told.prompt),
            _fits(told.read),
            _fits(told.write),
            KINDS.index(one.kind) + 1 if found is not None else 0,
            number,
            one.is_waste,
            min(one.line, 2**16 - 1),
            *map(_fits, (one.before, one.tokens, one.behind, one.lost)),
            one.usd,
        )
        return History((self.packed + packed)[-MOST_REQUESTS * ENTRY_BYTES :], culprits)

    def entries(self) -> Iterator[Entry]:
        """The requests, the oldest first. What is no whole entry is passed over."""
        whole = len(self.packed) // ENTRY_BYTES * ENTRY_BYTES
        for at, prompt, read, written, kind, culprit, is_waste, *rest in _ENTRY.iter_unpack(self.packed[:whole]):
            name = self.culprits[culprit - 1] if 0 < culprit <= len(self.culprits) else ""
            told = KINDS[kind - 1] if 0 < kind <= len(KINDS) else ""
            yield Entry(at, prompt, read, written, told, name, bool(is_waste), *rest)


def _fits(tokens: int) -> int:
    return max(0, min(_MOST, tokens))
