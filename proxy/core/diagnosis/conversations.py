"""Finds the conversation that a request continues by its prompt alone. This is for paths where the planner sees no
requests and keeps no sessions.

A conversation is identified by its turns. Each turn counts together with the turn in front of it, because the turn
"yes" occurs in many conversations. The newest known turn decides, because many conversations begin alike.
"""

from collections.abc import Iterator, Sequence

from proxy.core.diagnosis.diagnose import Comparison, compared
from proxy.core.diagnosis.record import TURN, PromptRecord
from proxy.core.digest import digest
from proxy.core.lru import Bounded, LastUsed
from proxy.core.value import dataclass

_MOST_RECORDS = 3
_MOST_TURNS = 64
_NAME_BYTES = 300


@dataclass(frozen=True, slots=True)
class Exchanged:
    """An earlier request: its prompt, the id of its answer, and the account that gave the answer."""

    record: PromptRecord
    answer: str
    account: str


@dataclass(frozen=True, slots=True)
class Continued:
    """A request with its conversation. ``names`` are the names by which the conversation is found. ``before`` are its
    earlier requests, the newest last. ``comparison`` compares the request with the earlier one that it continues (None:
    it continues none)."""

    record: PromptRecord
    names: Sequence[bytes]
    before: Sequence[Exchanged]
    comparison: Comparison | None

    def previous(self, account: str) -> str:
        """The id of the answer to the request that this one continues; if it continues none, to the conversation's last
        request. Empty if there is no such answer, or if another account gave it."""
        old = self.comparison.old if self.comparison is not None else self.before[-1].record if self.before else None
        return next((one.answer for one in self.before if one.record is old and one.account == account), "")


class Conversations:
    """The last requests of conversations, in memory only, in about ``capacity_bytes``."""

    def __init__(self, capacity_bytes: int) -> None:
        self._held: Bounded[int, Sequence[Exchanged]] = Bounded(capacity_bytes // 2, _weight)
        self._last: LastUsed[bytes, int] = LastUsed(capacity_bytes // 2 // _NAME_BYTES)
        self._count = 0

    def find(self, scope: str, record: PromptRecord, parent: str = "") -> Continued:
        """A request with its conversation. Nothing is changed. ``scope`` keeps the conversations of different clients
        apart. ``parent`` is the id of the answer that the request continues, if the provider keeps the conversation up
        to there."""
        names = [_name(scope, parent)] if parent else list(_turns(scope, record))
        before = next((some for name in names if (some := self._held.get(self._last.get(name, 0)))), ())
        kept = next((one.record for one in reversed(before) if parent and one.answer == parent), None)
        if kept is not None:
            record = record.continuing(kept)
        return Continued(record, names, before, compared([one.record for one in before], record))

    def add(self, scope: str, found: Continued, exchanged: Exchanged) -> None:
        """Record that the request was answered."""
        self._count += 1
        self._held.put(self._count, [*found.before, exchanged][-_MOST_RECORDS:])
        for name in (*found.names, *([_name(scope, exchanged.answer)] if exchanged.answer else [])):
            self._last.put(name, self._count)


def _turns(scope: str, record: PromptRecord) -> Iterator[bytes]:
    """The names of a conversation, the newest first: its last turns, each with the one in front of it."""
    turns = [one for one, (kind, _) in zip(record.each(), record.named(), strict=True) if kind == TURN]
    for number in range(len(turns) - 1, max(-1, len(turns) - 1 - _MOST_TURNS), -1):
        yield digest(scope.encode(), turns[number - 1] if number else b"", turns[number])


def _name(scope: str, answer: str) -> bytes:
    return digest(scope.encode(), answer.encode("utf-8", "surrogatepass"))


def _weight(some: Sequence[Exchanged]) -> int:
    return sum(one.record.about_bytes for one in some)
