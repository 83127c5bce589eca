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

The third part remembers the operator's texts that were sent with earlier turns, and decides whether they are sent
again. When the client sends a turn again as part of its conversation, the text around that user message is missing. If
the text is applied again, the prefix stays as it was and each later request reads the text. If it is not, the tokens
after it are written to the cache again, once. The cheaper choice is made once for each turn, when the next turn
arrives, and is kept from then on. All of this is in memory: another process, and the next start, do not apply texts of
turns that they have not sent, and these turns are written once more.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum

from proxy.kit.lru import Bounded, LastUsed
from proxy.kit.value import dataclass, field, replace
from proxy.prompts import Composition, Json, Position
from proxy.protocol.providers import CacheProfile
from proxy.protocol.request import Inset

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


# P(the prefix is still stored) within its TTL and after its TTL: some providers keep it longer.
_STORED = 1.0
_OUTLIVED = 0.1
# The bounds of how many further requests of the conversation are expected: about as many as there have been.
_FEWEST_REQUESTS = 10
_MOST_REQUESTS = 60
_RECORD_BYTES = 400


class Again(StrEnum):
    """Whether the text of a turn is sent with it again: if that is expected to be cheaper, always, or never."""

    BY_PRICE = "by-price"
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class AppliedTexts:
    """The texts around user messages before the newest one. ``texts`` are by the messages' indices. ``kept`` are the
    keys of their turns. ``decided`` says for turns whether their text is sent from now on. ``newest`` is the key of the
    newest turn, and ``head`` is a digest of the part before the conversation. ``before`` is what is remembered of the
    request before; None: no request had texts."""

    texts: Mapping[int, Inset] = field(default_factory=dict)
    kept: Sequence[bytes] = ()
    decided: Mapping[bytes, bool] = field(default_factory=dict)
    newest: bytes = b""
    head: bytes = b""
    before: "SentText | None" = None


@dataclass(frozen=True, slots=True)
class StoredPrompt:
    """The prompt that the provider has stored: the end of its storage (unix seconds; 0: it stores nothing), the
    prompt's tokens, how many tokens at its end are not stored, and how many of the previously stored tokens were
    read."""

    until: float = 0.0
    tokens: int = 0
    loose_tokens: int = 0
    read_tokens: int = 0


@dataclass(frozen=True, slots=True)
class SentText:
    """The text that was sent with a turn. ``tokens`` are those that it added. ``stored`` and ``head`` are of the turn's
    newest request, and ``number`` counts the conversation's requests up to it. ``lost_tokens`` are the tokens at the
    end of a stored prompt that the next request did not read although all texts stayed, because that part changes
    anyway. ``is_kept`` is the decision; None: there is none yet."""

    inset: Inset = field(repr=False)
    tokens: int = 0
    number: int = 1
    stored: StoredPrompt = StoredPrompt()
    head: bytes = b""
    lost_tokens: int = 0
    is_kept: bool | None = None


class TurnTexts:
    """Remembers the text that was ``sent`` with each turn. The least recently used one is dropped first."""

    def __init__(self, *, capacity_bytes: int, again: Again = Again.BY_PRICE) -> None:
        self._again = again
        self.sent: Bounded[bytes, SentText] = Bounded(
            capacity_bytes, lambda sent: _RECORD_BYTES + 2 * (len(sent.inset.before) + len(sent.inset.after))
        )

    def earlier(
        self,
        turns: Sequence[tuple[int, bytes]],
        head: bytes,
        profile: CacheProfile,
        now: float,
        tokens_from: Callable[[int], int],
        signed: int = -1,
    ) -> AppliedTexts:
        """The texts of the turns before the newest one. ``turns`` are the user messages' indices, each with the key of
        the conversation up to it. ``head`` is a digest of the part before the conversation. ``tokens_from`` gives the
        tokens of the conversation from a message up to the end of the prompt before. Before the message ``signed``
        each text stays, because signed thinking binds it. This changes nothing: ``commit`` does, when the exchange
        counts."""
        if not turns:
            return AppliedTexts()
        newest = turns[-1][1]
        latest = next((sent for _, key in reversed(turns) if (sent := self.sent.get(key)) is not None), None)
        if latest is None:
            return AppliedTexts(newest=newest, head=head)
        chance = _chance(latest, head, now)
        texts: dict[int, Inset] = {}
        kept: list[bytes] = []
        decided: dict[bytes, bool] = {}
        for index, key in turns[:-1]:
            sent = self.sent.get(key)
            if sent is None or not sent.inset:
                continue
            is_kept = sent.is_kept
            if is_kept is None:
                behind = max(0, tokens_from(index) - max(latest.stored.loose_tokens, latest.lost_tokens))
                is_cheaper = applies_again(sent.tokens, behind, profile, latest.number, chance)
                is_asked = is_cheaper if self._again is Again.BY_PRICE else self._again is Again.ALWAYS
                is_kept = decided[key] = is_asked or index < signed
                if not is_kept:
                    chance = 0.0  # the tokens after it are written again in any case
            if is_kept:
                texts[index] = sent.inset
                kept.append(key)
        return AppliedTexts(texts, kept, decided, newest, head, latest)

    def sent_with(self, turn: bytes) -> Inset | None:
        return sent.inset if (sent := self.sent.get(turn)) is not None else None

    def commit(self, applied: AppliedTexts, inset: Inset, tokens: int, stored: StoredPrompt, now: float) -> None:
        """The exchange counts. ``inset`` was sent with the newest turn, and added ``tokens``. A conversation that has
        never had a text takes no memory."""
        before = applied.before
        for key, is_kept in applied.decided.items():
            if (sent := self.sent.get(key)) is not None:
                self.sent.put(key, replace(sent, is_kept=is_kept))
        for key in applied.kept:
            if key in self.sent:
                self.sent.move_to_end(key)
        if applied.newest and (inset or before is not None):
            number = before.number + 1 if before is not None else 1
            lost = _lost(before, applied, stored, now) if before is not None else 0
            self.sent.put(applied.newest, SentText(inset, tokens, number, stored, applied.head, lost))


def applies_again(text_tokens: int, tokens_behind: int, profile: CacheProfile, requests: int, chance: float) -> bool:
    """Whether it is expected to be cheaper to send a text with its turn again than to write the tokens after it again.
    ``requests`` is how many requests the conversation has had, and ``chance`` is P(the prefix is still stored)."""
    later = min(max(requests, _FEWEST_REQUESTS), _MOST_REQUESTS)
    now = chance * profile.read + (1.0 - chance) * profile.write
    return text_tokens * (now + later * profile.read) <= chance * (profile.write - profile.read) * tokens_behind


def _chance(latest: SentText, head: bytes, now: float) -> float:
    """P(the prefix of the request before is still stored, and is the beginning of this one)."""
    if not latest.stored.until or head != latest.head:
        return 0.0
    return _STORED if now < latest.stored.until else _OUTLIVED


def _lost(before: SentText, applied: AppliedTexts, stored: StoredPrompt, now: float) -> int:
    """``SentText.lost_tokens`` after a request. If the request shows nothing about it, it is the value known before."""
    was = before.stored
    if now >= was.until or not stored.tokens or not all(applied.decided.values()):
        return before.lost_tokens
    return max(0, was.tokens - was.loose_tokens - stored.read_tokens)
