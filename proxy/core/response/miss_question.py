"""Asks a provider why a prompt was not read from its cache, and takes what only the proxy has asked for out of the
answer. Nothing else changes but white space beside it. Sans-IO.

Anthropic's Messages: ``diagnostics.previous_message_id``, null in the first request, so that the provider keeps what
the next one is compared with (https://platform.claude.com/docs/en/build-with-claude/cache-diagnostics, generally
available; the answer tells in ``diagnostics``, of a stream in ``message_start``). OpenAI's Responses:
``prompt_cache_options.comparison_response_id`` (https://developers.openai.com/api/docs/guides/prompt-caching,
2026-09-20; the answer tells in ``prompt_cache_diagnostics``, of a stream in the events that hold a ``response``).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson

from proxy.core.response.miss_diagnostics import HOLDERS
from proxy.core.wire.json_body import Members, Unreadable, members_of, parse_members, splice
from proxy.errors import InvalidRequest

_MOST_KEPT = 8 << 20
_EDGE_BYTES = 3
_EVENT_END = re.compile(rb"\r?\n\r?\n")
_DATA = re.compile(rb"^(data: ?)(\{.*\})(?=\r?$)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class MissQuestion:
    """How one API is asked. ``server`` is the provider that can be asked, ``profile`` the rules of its cache. ``field``
    of the request's ``member`` is the id of an earlier answer, and ``told`` the member of the answer; ``from_first``:
    the first request of a conversation asks, too."""

    server: str
    profile: str
    member: str
    field: str
    told: str
    from_first: bool = False

    def changes(self, members: Members, previous: str) -> Mapping[str, bytes]:
        """What asks in a request with these members; nothing where the client asks itself, or where there is nothing to
        compare with. ``previous`` is the id of the answer that the request goes on from, or empty."""
        if not previous and not self.from_first:
            return {}
        raw = bytes(members.get(self.member, b"null"))
        if raw == b"null":
            raw = b"{}"
        elif self.member == self.told:
            return {}  # what the client asks is answered in the same place
        try:
            options = members_of(raw)
        except Unreadable:
            return {}  # for the provider to refuse
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
"""By the path of the request."""


class AnswerWithout:
    """An answer without one member: a JSON body, or a stream of events. A body, or an event, that is longer than 8 MiB
    passes as it came."""

    def __init__(self, member: str, *, is_stream: bool) -> None:
        self._member, self._is_stream = member, is_stream
        self._kept: list[bytes] = []
        self._size, self._is_long = 0, False

    def feed(self, out: bytes) -> bytes:
        """What may pass of these bytes now."""
        whole = 0
        if self._is_stream:
            edge = b"".join(self._kept[-_EDGE_BYTES:])[-_EDGE_BYTES:]
            whole = max((found.end() for found in _EVENT_END.finditer(edge + out)), default=0) - len(edge)
        if whole > 0:
            passed, rest = self.end(out[:whole]), out[whole:]
        else:
            passed, rest = b"", out
        if rest:
            self._kept.append(rest)
        self._size += len(rest)
        if self._size <= _MOST_KEPT and not self._is_long:
            return passed
        self._is_long = True
        return passed + self._taken()

    def end(self, out: bytes) -> bytes:
        """The rest, with these last bytes."""
        text = self._taken() + out
        if self._is_long:
            self._is_long = False
            return text
        return self._cut(text)

    def _taken(self) -> bytes:
        text = b"".join(self._kept)
        self._kept.clear()
        self._size = 0
        return text

    def _cut(self, text: bytes) -> bytes:
        if b'"%b"' % self._member.encode() not in text:
            return text
        if self._is_stream:
            return _DATA.sub(lambda line: line[1] + _without(line[2], self._member), text)
        return _without(text, self._member)


def _without(raw: bytes, member: str, holders: Sequence[str] = HOLDERS) -> bytes:
    """A JSON object without the member, also within what holds the answer in an event; as it came where it cannot be
    read."""
    try:
        members = parse_members(raw)
    except (InvalidRequest, Unreadable):
        return raw
    changes: dict[str, bytes | None] = {member: None} if member in members else {}
    for holder in holders:
        if bytes(members.get(holder, b""))[:1] == b"{":
            changes[holder] = _without(bytes(members[holder]), member, ())
    return splice(raw, members, changes)
