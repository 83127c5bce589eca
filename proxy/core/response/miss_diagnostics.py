"""Reads a provider's own diagnostics of a cache miss from an answer, and asks for them.

Anthropic: ``diagnostics.cache_miss_reason.type`` ("Cache diagnostics", 2026-08-21). OpenAI's Responses:
``prompt_cache_diagnostics`` with ``type`` and ``reason`` ("Prompt caching", 2026-09-20). Both compare requests: they
know what the client changed, and do not know about entries that expired.

``MissQuestion`` asks a provider why a prompt was not read from its cache. ``AnswerWithout`` removes from the answer
what only the proxy has asked for. Apart from white space beside it, nothing else changes. Sans-IO.

Anthropic's Messages: ``diagnostics.previous_message_id``. It is null in the first request, so that the provider keeps
what the next request is compared with (https://platform.claude.com/docs/en/build-with-claude/cache-diagnostics,
generally available; the answer is in ``diagnostics``, and in a stream in ``message_start``). OpenAI's Responses:
``prompt_cache_options.comparison_response_id`` (https://developers.openai.com/api/docs/guides/prompt-caching,
2026-09-20; the answer is in ``prompt_cache_diagnostics``, and in a stream in the events that hold a ``response``).
"""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import orjson

from proxy.core.response.event_format import EventCutter, Part
from proxy.core.value import dataclass
from proxy.core.wire.json_body import Members, Unreadable, members_of, parse_members, splice
from proxy.errors import InvalidRequest

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
HOLDERS = ("message", "response")
"""Members of an event that hold an answer."""


def cause_of(payload: Mapping[str, object]) -> str:
    """The cause in an answer or an event of a stream."""
    for holder in (payload, *(payload.get(name) for name in HOLDERS)):
        if isinstance(holder, Mapping):
            found = _cause_in(holder.get("diagnostics"), holder.get("prompt_cache_diagnostics"))
            if found != UNTOLD:
                return found
    return UNTOLD


def _cause_in(anthropic: object, openai: object) -> str:
    """The cause in the object of one of the two providers."""
    if isinstance(anthropic, Mapping):
        reason = anthropic.get("cache_miss_reason")
        if isinstance(reason, Mapping):
            return _named(reason.get("type"))
    if isinstance(openai, Mapping):
        kind, reason = openai.get("type"), openai.get("reason")
        return _named(reason if kind == "cache_miss" and reason else kind)
    return UNTOLD


def _named(name: object) -> str:
    return _CAUSES.get(name, OTHER) if isinstance(name, str) else UNTOLD


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
            return b"".join([self._event(*part) for part in self._cutter.feed(out)])
        self._body.append(out)
        self._size += len(out)
        return b"" if self._size <= _MOST_KEPT else self._taken()

    def end(self, out: bytes) -> bytes:
        """The rest of the answer, with these last bytes."""
        passed = self.feed(out)
        if self._cutter is not None:
            return passed + b"".join([self._event(*part) for part in self._cutter.close()])
        rest = self._taken()
        return passed + (_without(rest, self._member) if self._size <= _MOST_KEPT and self._is_in(rest) else rest)

    def _taken(self) -> bytes:
        text = b"".join(self._body)
        self._body.clear()
        return text

    def _is_in(self, text: bytes) -> bool:
        return b'"%b"' % self._member.encode() in text

    def _event(self, event: bytes, kind: Part) -> bytes:
        if kind is not Part.EVENT or not self._is_in(event):
            return event
        return _DATA.sub(lambda line: line[1] + _without(line[2], self._member), event)


def _without(raw: bytes, member: str, holders: Sequence[str] = HOLDERS) -> bytes:
    """A JSON object without the member. The member is also removed from the ``holders`` of the answer in an event. An
    object that cannot be read is returned as it came."""
    try:
        members = parse_members(raw)
    except (InvalidRequest, Unreadable):
        return raw
    changes: dict[str, bytes | None] = {member: None} if member in members else {}
    for holder in holders:
        if bytes(members.get(holder, b""))[:1] == b"{":
            changes[holder] = _without(bytes(members[holder]), member, ())
    return splice(raw, members, changes)
