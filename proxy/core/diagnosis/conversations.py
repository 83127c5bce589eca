"""Finds the conversation that a request goes on with, where nothing but its prompt tells: on paths where the planner
sees no request, and keeps no session.

A conversation is known by its turns. Each of them counts together with the turn in front of it, because many
conversations say "yes"; the newest one that is known decides, because many begin alike.
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
    """An earlier request: its prompt, the id of its answer, and the account that has answered."""

    record: PromptRecord
    answer: str
    account: str


@dataclass(frozen=True, slots=True)
class Continued:
    """A request beside its conversation. ``names`` are what its conversation is known by, ``before`` the earlier
    requests of that, the newest last, and ``comparison`` is with the one of them that it goes on from (None: it goes on
    from none)."""

    record: PromptRecord
    names: Sequence[bytes]
    before: Sequence[Exchanged]
    comparison: Comparison | None

    def previous(self, account: str) -> str:
        """The id of the answer to the request that this one goes on from, the conversation's last one where it goes on
        from none; empty where there is none, or another account has it."""
        old = self.comparison.old if self.comparison is not None else self.before[-1].record if self.before else None
        return next((one.answer for one in self.before if one.record is old and one.account == account), "")


class Conversations:
    """The last requests of conversations, in memory only, in about ``capacity_bytes``."""

    def __init__(self, capacity_bytes: int) -> None:
        self._held: Bounded[int, Sequence[Exchanged]] = Bounded(capacity_bytes // 2, _weight)
        self._last: LastUsed[bytes, int] = LastUsed(capacity_bytes // 2 // _NAME_BYTES)
        self._count = 0

    def find(self, scope: str, record: PromptRecord, parent: str = "") -> Continued:
        """A request in its conversation; nothing is changed. ``scope`` keeps the conversations of others apart.
        ``parent`` is the id of the answer that it goes on from where the provider keeps what stands in front of it."""
        names = [_name(scope, parent)] if parent else list(_turns(scope, record))
        before = next((some for name in names if (some := self._held.get(self._last.get(name, 0)))), ())
        kept = next((one.record for one in reversed(before) if parent and one.answer == parent), None)
        if kept is not None:
            record = record.continuing(kept)
        return Continued(record, names, before, compared([one.record for one in before], record))

    def add(self, scope: str, found: Continued, exchanged: Exchanged) -> None:
        """The request was answered."""
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
