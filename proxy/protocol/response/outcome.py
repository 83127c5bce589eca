"""The facts that an answer states about itself: its usage and price, why it ended, the objects that it names. Sans-IO.

``cause_of`` reads a provider's own diagnostics of a cache miss. Anthropic: ``diagnostics.cache_miss_reason.type``
("Cache diagnostics", 2026-08-21). OpenAI's Responses: ``prompt_cache_diagnostics`` with ``type`` and ``reason``
("Prompt caching", 2026-09-20). Both compare requests: they know what the client changed, and do not know about entries
that expired.

``MissQuestion`` asks a provider why a prompt was not read from its cache. ``AnswerWithout`` removes from the answer
what only the proxy has asked for. Apart from white space beside it, nothing else changes.

Anthropic's Messages: ``diagnostics.previous_message_id``. It is null in the first request, so that the provider keeps
what the next request is compared with (https://platform.claude.com/docs/en/build-with-claude/cache-diagnostics,
generally available; the answer is in ``diagnostics``, and in a stream in ``message_start``). OpenAI's Responses:
``prompt_cache_options.comparison_response_id`` (https://developers.openai.com/api/docs/guides/prompt-caching,
2026-09-20; the answer is in ``prompt_cache_diagnostics``, and in a stream in the events that hold a ``response``).

``Received`` estimates how many tokens of an answer have come if its provider does not say it: the client left before
the usage came. Most bytes of a stream are framing. The share of text is measured in samples: in the first kilobytes,
and then at intervals, so that whole chunks pass without being read. The bytes of a token are measured in the sampled
text.

``Said`` is what an answer says about the objects of the provider's account that it shows or has made. Only members
whose content the provider decides are read. Other members (``metadata``, texts) return what a client has sent, and must
not give the client an object.

``AnswerFacts`` collects the facts. A JSON body and the events of a stream have them in the same members, so both are
read here.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

import msgspec
import orjson

from proxy.kit.errors import InvalidRequest
from proxy.kit.value import dataclass, field
from proxy.protocol.references import MOST_ID_CHARS
from proxy.protocol.request.tokens import estimate
from proxy.protocol.response.event_format import EventCutter, EventPart
from proxy.protocol.response.usage import (
    NOTHING_REPORTED,
    Counts,
    Reported,
    Usage,
    counts_of,
    items_of,
    mapping,
    merged,
    reported_in,
)
from proxy.protocol.wire.json_body import Members, Unreadable, members_of, parse_members, read_or_mended, splice

UNTOLD = "untold"
"""The answer has no diagnostics, or they are not ready."""
OTHER = "other"

# Causes by the providers' names. If two names mean the same, they have one cause of the proxy's own.
_CAUSES = MappingProxyType(
    {
        "model_changed": "model-changed",
        "system_changed": "system-changed",
        "instructions_changed": "system-changed",
        "tools_changed": "tools-changed",
        "messages_changed": "messages-changed",
        "input_changed": "messages-changed",
        "prompt_cache_key_changed": "key-changed",
        "previous_message_not_found": "not-comparable",
        "comparison_response_not_found": "not-comparable",
        "unavailable": "unavailable",
        "cache_hit": "hit",
    }
)
CAUSES = (UNTOLD, OTHER, *dict.fromkeys(_CAUSES.values()))
"""All causes that can occur."""
CHANGES = frozenset(cause for cause in CAUSES if cause.endswith("-changed"))
"""Causes that say that the client has changed something."""
_DIAGNOSTICS = frozenset({"diagnostics", "prompt_cache_diagnostics"})
HOLDERS = ("message", "response")
"""Members of an event that hold an answer."""


def cause_of(payload: Mapping[str, object]) -> str:
    """The cause in an answer or an event of a stream."""
    for holder in (payload, *(mapping(payload[name]) for name in HOLDERS if name in payload)):
        if _DIAGNOSTICS.isdisjoint(holder):
            continue
        anthropic = mapping(mapping(holder.get("diagnostics")).get("cache_miss_reason"))
        openai = mapping(holder.get("prompt_cache_diagnostics"))
        kind, reason = openai.get("type"), openai.get("reason")
        name = anthropic.get("type") if anthropic else reason if kind == "cache_miss" and reason else kind
        if isinstance(name, str):
            return _CAUSES.get(name, OTHER)
    return UNTOLD


_MOST_KEPT = 8 << 20
_DATA = re.compile(rb"(?<![^\r\n])(data: ?)(\{[^\r\n]*\})(?=[\r\n]|$)")


@dataclass(frozen=True, slots=True)
class MissQuestion:
    """How one API is asked. ``server`` is the provider that can be asked, and ``profile`` has the rules of its cache.
    ``field`` of the request's ``member`` is the id of an earlier answer. ``told`` is the member of the answer with the
    diagnostics. ``from_first``: the first request of a conversation also asks."""

    server: str
    profile: str
    member: str
    field: str
    told: str
    from_first: bool = False

    def changes(self, members: Members, previous: str) -> Mapping[str, bytes]:
        """The changed members that ask, for a request with these members. Empty if the client itself asks, or if there
        is nothing to compare with. ``previous`` is the id of the answer that the request continues, or empty."""
        if not previous and not self.from_first:
            return {}
        raw = bytes(members.get(self.member, b"null"))
        if raw == b"null":
            raw = b"{}"
        elif self.member == self.told:
            return {}  # the client's own question would be answered in the same place
        try:
            options = members_of(raw)
        except Unreadable:
            return {}  # the provider shall refuse it
        asked = {self.field: orjson.dumps(previous or None)}
        return {} if self.field in options else {self.member: splice(raw, options, asked)}


QUESTIONS: Mapping[str, MissQuestion] = {
    "/messages": MissQuestion(
        "anthropic", "anthropic", "diagnostics", "previous_message_id", "diagnostics", from_first=True
    ),
    "/responses": MissQuestion(
        "openai", "openai-explicit", "prompt_cache_options", "comparison_response_id", "prompt_cache_diagnostics"
    ),
}
"""The questions by the path of the request."""


class AnswerWithout:
    """Removes one member from an answer, which is a JSON body or a stream of events. A body of more than 8 MiB, and an
    event that is too long to be kept, pass as they came."""

    def __init__(self, member: str, *, is_stream: bool) -> None:
        self._member = member
        self._cutter = EventCutter() if is_stream else None
        self._body: list[bytes] = []
        self._size = 0

    def feed(self, out: bytes) -> bytes:
        """Take bytes of the answer. Returns the bytes that may pass now."""
        if self._cutter is not None:
            return self._shown(self._cutter.feed(out))
        self._body.append(out)
        self._size += len(out)
        return b"" if self._size <= _MOST_KEPT else self._taken()

    def end(self, out: bytes) -> bytes:
        """The rest of the answer, with these last bytes."""
        passed = self.feed(out)
        if self._cutter is not None:
            return passed + self._shown(self._cutter.close())
        return passed + _without(self._taken(), self._member)

    def _taken(self) -> bytes:
        text = b"".join(self._body)
        self._body.clear()
        return text

    def _shown(self, parts: Sequence[tuple[bytes, EventPart]]) -> bytes:
        def without(line: re.Match[bytes]) -> bytes:
            return line[1] + _without(line[2], self._member)

        return b"".join([_DATA.sub(without, part) if kind is EventPart.EVENT else part for part, kind in parts])


def _without(raw: bytes, member: str, holders: Sequence[str] = HOLDERS) -> bytes:
    """A JSON object without the member. The member is also removed from the ``holders`` of the answer in an event. An
    object that cannot be read is returned as it came."""
    if b'"%b"' % member.encode() not in raw:
        return raw
    try:
        members = parse_members(raw)
    except (InvalidRequest, Unreadable):
        return raw
    changes: dict[str, bytes | None] = {member: None} if member in members else {}
    for holder in holders:
        if bytes(members.get(holder, b""))[:1] == b"{":
            changes[holder] = _without(bytes(members[holder]), member, ())
    return splice(raw, members, changes)


# Up to this number of bytes, everything is sampled.
_ALL_BYTES = 8 << 10
_STEP_BYTES = 2 << 10
_MOST_SAMPLE_BYTES = 32 << 10
_MOST_TEXT_BYTES = 16 << 10

# Text, thoughts and arguments of tools, in the shapes of chats, completions, Anthropic's messages and Gemini.
_TEXT = re.compile(
    rb'"(?:content|text|reasoning|reasoning_content|thinking|refusal|arguments|partial_json|input|args|code|data|transcript)"'
    rb'\s*:\s*"([^"\\]*(?:\\.[^"\\]*)*)'
)
# The Responses API sends each piece as a delta, and at the end the whole text again.
_IS_RESPONSES = b'"response.'
_DELTA = re.compile(rb'"delta"\s*:\s*"([^"\\]*(?:\\.[^"\\]*)*)')

# The tokens of a character beyond ASCII.
_WIDE_TOKENS = 0.8
_ODD_BYTES_PER_TOKEN = 3


class Received:
    """Counts the events that pass. ``add`` takes whole events, and takes only the time of the samples."""

    def __init__(self) -> None:
        self._bytes = self._next = self._sampled = self._text = self._kept = 0
        self._texts: list[bytes] = []
        self.has_text = False
        """Whether any text was seen."""

    def add(self, events: bytes) -> None:
        """Count whole events."""
        self._bytes += len(events)
        if self._bytes < self._next:
            return
        events = events[:_MOST_SAMPLE_BYTES]
        self._sampled += len(events)
        for found in (_DELTA if _IS_RESPONSES in events else _TEXT).finditer(events):
            text = found[1]
            self._text += len(text)
            self.has_text = self._text > 0
            if self._kept < _MOST_TEXT_BYTES:
                self._texts.append(text[:_MOST_TEXT_BYTES])
                self._kept += min(len(text), _MOST_TEXT_BYTES)
        self._next = 0 if self._bytes < _ALL_BYTES else self._bytes + _STEP_BYTES

    def tokens(self) -> int:
        """About how many tokens of text came."""
        if not self._text or not self._sampled:
            return 0
        joined = b"".join(self._texts)
        try:
            text = orjson.loads(b'"' + joined + b'"')
        except orjson.JSONDecodeError:
            text = joined.decode("utf-8", "replace")
        wide = sum(not character.isascii() for character in text)
        odd = (len(text) - wide) / _ODD_BYTES_PER_TOKEN + wide * _WIDE_TOKENS
        tokens = odd if (known := estimate(text)) is None else known
        return max(1, round(self._bytes * self._text / self._sampled * tokens / max(1, self._kept)))


_MOST_MADE = 1000
# A conversation, a container, a batch's results, and the file that a finished upload has become.
_MADE = {
    "conversation": "conversations", "container": "containers", "output_file_id": "files", "error_file_id": "files",
    "file": "files",
}  # fmt: skip


@dataclass(slots=True)
class Said:
    """The objects that are known so far. In a stream, the last statement counts."""

    id: str = ""
    status: str = ""
    model: str = ""
    is_background: bool = False
    is_stored: bool = True
    ids: dict[str, str] = field(default_factory=dict)
    """Further objects that were made: the family of each, by its id."""

    def learn(self, answer: Mapping[str, object]) -> None:
        """Read an answer, or one event of a stream."""
        holder = answer.get("message" if answer.get("type") == "message_start" else "response")
        said = holder if isinstance(holder, dict) else answer
        self.id = self.id or _id(said.get("id"))
        status = said.get("status")
        self.status = status if isinstance(status, str) else self.status
        model = said.get("model")
        self.model = model if isinstance(model, str) else self.model
        self.is_background = self.is_background or said.get("background") is True
        self.is_stored = self.is_stored and said.get("store") is not False
        for name, family in _made(said):
            if len(self.ids) < _MOST_MADE:
                self.ids[name] = family


class _Item(msgspec.Struct):
    """An item of a list, with the members that distinguish it from others."""

    id: object = None
    type: object = None


_ITEMS = msgspec.json.Decoder(list[_Item])


def known_items(output: bytes | msgspec.Raw) -> list[dict[str, object]]:
    """The items of a response's output, or of another list. They come without their content, unless the list names
    containers. In texts, each half of a surrogate pair is replaced by another character."""
    raw = bytes(output)
    if b'"container_id"' not in raw:
        return [{"id": item.id, "type": item.type} for item in read_or_mended(_ITEMS.decode, raw) or ()]
    items = read_or_mended(orjson.loads, raw)
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _made(said: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for member, family in _MADE.items():
        if member not in said:
            continue
        value = said[member]
        if found := _id_in(value) or (_id(value) if family == "files" else ""):
            yield found, family
    for item in items_of(said.get("output")):
        # The item itself is an object, and so are the containers in which its tools ran.
        if found := _id(item.get("id")):
            yield found, "responses"
        notes = [note for part in items_of(item.get("content")) for note in items_of(part.get("annotations"))]
        for holder in (item, *notes):
            if found := _id(holder.get("container_id")):
                yield found, "containers"
    for choice in items_of(said.get("choices")):
        for member in ("message", "delta"):
            message = choice.get(member)
            if isinstance(message, dict) and "audio" in message and (found := _id_in(message["audio"])):
                yield found, "chat/completions"


def _id_in(value: object) -> str:
    return _id(value.get("id")) if isinstance(value, dict) else ""


def _id(value: object) -> str:
    return value if isinstance(value, str) and len(value) <= MOST_ID_CHARS else ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The facts of one answer. ``error`` is the provider's error object, from a stream that broke off."""

    usage: Usage | None = None
    reported: Reported = NOTHING_REPORTED
    saw_content: bool = False
    finish_reason: str = ""
    error: Mapping[str, object] | None = None
    events: int = 0
    tokens: int = 0
    """About how many tokens of text came, by the proxy's own count. 0 if the usage says how many."""
    is_open: bool = False
    """Whether more of the answer could follow. Then the usage so far may be only the first part of its usage."""
    cache_cause: str = UNTOLD
    said: Said | None = None
    """The answer's statements about the objects of the provider's account."""

    @property
    def is_empty(self) -> bool:
        """Whether the model said nothing, and gave no reason for that (a length limit, a filter)."""
        return not self.saw_content and self.error is None and self.finish_reason in ("", "stop", "end_turn")


@dataclass(slots=True)
class AnswerFacts:
    """Collects what an answer states about itself, payload by payload."""

    _counts: Counts | None = None
    _reported: Reported = NOTHING_REPORTED
    _finish: str = ""
    _cause: str = UNTOLD
    _said: Said = field(default_factory=Said)

    def learn(self, payload: Mapping[str, object]) -> None:
        """Read a body, or one event of a stream."""
        self._counts = counts_of(payload, self._counts)
        if (reported := reported_in(payload)) != NOTHING_REPORTED:
            self._reported = merged(self._reported, reported)
        self._said.learn(payload)
        if (cause := cause_of(payload)) != UNTOLD:
            self._cause = cause
        for choice in items_of(payload.get("choices")):
            finish = choice.get("finish_reason")
            if isinstance(finish, str) and finish:
                self._finish = finish

    def outcome(
        self,
        *,
        saw_content: bool = False,
        error: Mapping[str, object] | None = None,
        events: int = 0,
        tokens: Callable[[], int] = int,
        is_open: bool = False,
    ) -> Outcome:
        """The outcome up to now, together with what a fold knows about the bytes. ``tokens`` counts those that came; it
        is called if the usage does not say it."""
        usage = None if self._counts is None else self._counts.usage()
        # Gemini's first events report an answer of no tokens, also if no other event follows.
        is_whole = usage is not None and usage.is_whole and (usage.output > 0 or not events)
        return Outcome(
            usage=usage,
            reported=self._reported,
            saw_content=saw_content,
            finish_reason=self._finish,
            error=error,
            events=events,
            tokens=0 if is_whole and not is_open and error is None else tokens(),
            is_open=is_open,
            cache_cause=self._cause,
            said=self._said,
        )
