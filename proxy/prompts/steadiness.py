"""Finds prompts that change within a conversation.

A text that changes invalidates the cached prefix after it, and after the system text that is the whole conversation. A
prompt of the position ``context`` that has changed in a conversation is moved to the newest user message from then on,
where a change costs only the prompt itself. If a prompt changes in most conversations of its client, new conversations
begin in this way. Prompts of other positions stay in their places, and their changes are reported.

The second part finds such texts before they are sent: content that differs from request to request, or must soon be
edited: clocks, dates, counters and random ids.

In a system text, such content makes the provider's cache useless for everything after it. Names and texts are only
signs of it: a date in a text may be the date of a law, and a field named ``turn`` may never change. Code in fences is
an example and is not looked at.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from proxy.kit.lru import Bounded, LastUsed
from proxy.kit.value import dataclass, field
from proxy.prompts import Composition, Json, Position

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
class Seen:
    """The result for one request. ``at_tail`` are the ids of the prompts that are moved to the newest user message.
    ``changed`` are those whose text differs from that in the request before, and those that were added or removed.
    ``volatile`` are those of the changed prompts that change in too many requests of their client."""

    at_tail: frozenset[str] = frozenset()
    changed: tuple[str, ...] = ()
    volatile: tuple[str, ...] = ()


@dataclass(slots=True)
class Steadiness:
    """The remembered conversations of all clients: the prints of each, and the prompts that are moved. The memory is
    bounded."""

    _conversations: Bounded[tuple[str, bytes], tuple[Mapping[str, bytes], frozenset[str]]] = field(
        default_factory=lambda: Bounded(_MOST_BYTES, lambda one: 300 + _BYTES_PER_PRINT * len(one[0]))
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
            self._conversations.put(key, (prints, at_tail))
            return Seen(at_tail)
        former, at_tail = before
        names = tuple(dict.fromkeys((*former, *prints)))
        changed = tuple(name for name in names if former.get(name) != prints.get(name))
        counts = {name: self._counts.get((scope, name)) or ChangeCount() for name in names}
        for name, count in counts.items():
            self._counts.put((scope, name), count)
            count.requests += 1
            count.changes += name in changed
        at_tail |= movable.intersection(changed)
        self._conversations.put(key, (prints, at_tail))
        return Seen(at_tail, changed, tuple(name for name in changed if counts[name].is_volatile))


_MOST_CHARS = 60
_MOST_FINDINGS = 20
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_COMMENT = re.compile(r"\{#(?:[^#]|#(?!\}))*+(?:#\})?")
_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
_SIGNS: Sequence[tuple[str, re.Pattern[str]]] = (
    ("date", re.compile(r"(?<![\w-])\d{4}-[01]\d-[0-3]\d(?![\w-]|T\d)")),
    ("date", re.compile(rf"\b(?:{_MONTHS}) \d{{1,2}}(?:st|nd|rd|th)?,? \d{{4}}\b|\b\d{{1,2}} (?:{_MONTHS}) \d{{4}}\b")),
    ("time", re.compile(r"(?<![\d:.])(?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d{1,9})?)?(?![\d:])")),
    ("time", re.compile(r"(?<![\w.-])1[5-9]\d{8}(?:\d{3})?(?![\w.-])")),
    ("random", re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE)),
    ("counter", re.compile(r"\b(?:turn|request|attempt|message|step) (?:number |no\. |#)\d", re.IGNORECASE)),
)
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_CLOCK = frozenset({
    "now", "today", "clock", "time", "date", "datetime", "timestamp", "timestamps", "weekday", "hour", "minute",
    "uptime", "elapsed", "epoch",
})  # fmt: skip
_RANDOM = frozenset({"random", "rand", "uuid", "guid", "nonce", "salt", "seed"})
_COUNTER = frozenset({"counter", "turn", "turns", "iteration", "attempt", "attempts", "tick"})
_OF_A_REQUEST = frozenset({"request", "trace", "span", "correlation", "message", "session", "conversation"})
_UNITS = frozenset({"limit", "max", "min", "zone", "format", "budget", "type", "out", "created", "updated"})


@dataclass(frozen=True, slots=True)
class Volatile:
    """A sign of content that changes. ``kind`` is "date", "time", "random" or "counter". ``line`` counts from 1, and is
    0 if the sign is not in a line of a text. ``shown`` is the sign itself."""

    kind: str
    shown: str
    line: int = 0


def volatile_in(text: str) -> tuple[Volatile, ...]:
    """The signs in a text, which may be a template, by line. There are at most 20."""
    found: list[Volatile] = []
    for number, line in _lines(text):
        for kind, pattern in _SIGNS:
            found += [Volatile(kind, match[0][:_MOST_CHARS], number) for match in pattern.finditer(line)]
        if len(found) >= _MOST_FINDINGS:
            break
    return tuple(found[:_MOST_FINDINGS])


def volatile_name(path: str) -> str:
    """The kind of value that the name at the end of a path suggests: "time", "random" or "counter". "" if it suggests
    none of these. Limits, zones and formats of a time do not count."""
    words = [word.lower() for word in _WORD.findall(path.rpartition(".")[2][:_MOST_CHARS])]
    if not words or _UNITS.intersection(words):
        return ""
    if _CLOCK.intersection(words):
        return "time"
    if _RANDOM.intersection(words) or (words[-1] == "id" and _OF_A_REQUEST.intersection(words)):
        return "random"
    return "counter" if _COUNTER.intersection(words) else ""


def volatile_values(context: Mapping[str, Mapping[str, Json]]) -> Iterator[tuple[str, Volatile]]:
    """The signs in the names and values of a context, each with the path of the value."""
    stack: list[tuple[str, Json]] = [(root, dict(values)) for root, values in reversed(list(context.items()))]
    while stack:
        path, value = stack.pop()
        if isinstance(value, dict):
            stack += [(f"{path}.{name}", inner) for name, inner in reversed(list(value.items()))]
        elif isinstance(value, list):
            stack += [(path, inner) for inner in reversed(value)]
        elif value is not None and (kind := volatile_name(path)):
            yield path, Volatile(kind, path.rpartition(".")[2][:_MOST_CHARS])
        elif isinstance(value, (str, int)) and not isinstance(value, bool):
            yield from ((path, sign) for sign in volatile_in(str(value))[:1])


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines outside of fences and of a template's comments, each with its number."""
    text = _COMMENT.sub(lambda match: "\n" * match[0].count("\n"), text)
    fence = ""
    for number, line in enumerate(text.split("\n"), start=1):
        opening = _FENCE.match(line)
        if opening is not None and (not fence or opening[1].startswith(fence)):
            fence = "" if fence else opening[1]
        elif not fence:
            yield number, line
