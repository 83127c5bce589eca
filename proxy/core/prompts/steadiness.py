"""Finds prompts that change within a conversation.

A text that changes invalidates the cached prefix after it, and after the system text that is the whole conversation. A
prompt of the position ``context`` that has changed in a conversation is moved to the newest user message from then on,
where a change costs only the prompt itself. If a prompt changes in most conversations of its client, new conversations
begin in this way. Prompts of other positions stay in their places, and their changes are reported.
"""

from collections.abc import Mapping

from proxy.core.lru import Bounded, LastUsed
from proxy.core.prompts.composition import Composition
from proxy.core.prompts.prompt import Position
from proxy.core.value import dataclass, field

VOLATILE_SHARE = 0.2
"""A prompt is volatile for a client if more than this share of the requests of known conversations change it."""
_LEAST_REQUESTS = 5
_MOST_BYTES = 32 << 20
_MOST_COUNTS = 20_000
_BYTES_PER_PRINT = 120


@dataclass(slots=True)
class ChangeCount:
    """The number of requests of known conversations, and how many of them changed a prompt."""

    requests: int = 0
    changes: int = 0

    @property
    def is_volatile(self) -> bool:
        """Whether the prompt changes so often that it does not belong in front of a conversation."""
        return self.requests >= _LEAST_REQUESTS and self.changes > VOLATILE_SHARE * self.requests


@dataclass(frozen=True, slots=True)
class _Conversation:
    prints: Mapping[str, bytes]
    at_tail: frozenset[str]


@dataclass(frozen=True, slots=True)
class Seen:
    """The result for one request. ``at_tail`` are the ids of the prompts that are moved to the newest user message.
    ``changed`` are those whose text differs from that in the request before, and those that were added or removed.
    ``volatile`` are those of the changed prompts that change in too many requests of their client."""

    at_tail: frozenset[str] = frozenset()
    changed: tuple[str, ...] = ()
    volatile: tuple[str, ...] = ()


def _weight(conversation: _Conversation) -> int:
    return 300 + _BYTES_PER_PRINT * len(conversation.prints)


@dataclass(slots=True)
class Steadiness:
    """The remembered conversations of all clients. The memory is bounded."""

    _conversations: Bounded[tuple[str, bytes], _Conversation] = field(
        default_factory=lambda: Bounded(_MOST_BYTES, _weight)
    )
    _counts: LastUsed[tuple[str, str], ChangeCount] = field(default_factory=lambda: LastUsed(_MOST_COUNTS))

    def seen(self, scope: str, conversation: bytes, composition: Composition) -> Seen:
        """Count a request with its composition. ``conversation`` names the conversation within the ``scope`` of its
        client."""
        key, prints = (scope, conversation), composition.prints
        movable = {part.id for part in composition.parts if part.position is Position.CONTEXT}
        before = self._conversations.get(key)
        if before is None:
            at_tail = frozenset(
                name for name in movable if (self._counts.get((scope, name)) or ChangeCount()).is_volatile
            )
            self._conversations.put(key, _Conversation(prints, at_tail))
            return Seen(at_tail)
        names = tuple(dict.fromkeys((*before.prints, *prints)))
        changed = tuple(name for name in names if before.prints.get(name) != prints.get(name))
        counts = {name: self._count(scope, name, is_change=name in changed) for name in names}
        at_tail = before.at_tail | movable.intersection(changed)
        self._conversations.put(key, _Conversation(prints, at_tail))
        return Seen(at_tail, changed, tuple(name for name in changed if counts[name].is_volatile))

    def _count(self, scope: str, prompt: str, *, is_change: bool) -> ChangeCount:
        count = self._counts.get((scope, prompt)) or ChangeCount()
        self._counts.put((scope, prompt), count)
        count.requests += 1
        count.changes += is_change
        return count
