"""Markers on single messages of an assembly: where one may stand is decided as it is for any other request."""

import re

import orjson
from msgspec import Raw

from proxy.core.layout.render import mark_json, write_message
from proxy.core.providers import Dialect
from proxy.core.request.message import MARK_KEYS, SYSTEM_ROLES, MessageReader
from proxy.core.request.tokens import TokenCounter
from proxy.core.wire.json_body import Members, Unreadable, elements, join_members, members_of

_NAMES = tuple(f'"{key}"'.encode() for key in MARK_KEYS)
_SYSTEM = frozenset(f'"{role}"'.encode() for role in SYSTEM_ROLES)
_PLAIN = _SYSTEM | {b'"user"'}
"""Roles of messages whose text becomes a part where it is marked."""
_VISIBLE = re.compile(rb'"(?: |\\[nrt])*+[!#-\[\]-~]')
"""The beginning of a string that is not blank, however long it is."""


def unmarked(raw: bytes) -> bytes:
    """The message without markers of the client's, or as it came where it cannot be read."""
    if not any(name in raw for name in _NAMES):
        return raw
    try:
        return write_message(_reader().read(Raw(raw)), {}, Dialect.NONE)
    except Unreadable:
        return raw


def marked(raw: bytes, dialect: Dialect, *, is_head: bool = False) -> bytes | None:
    """The message with a marker on its last part that may carry one; None where none may. A system message carries one
    at the head of the request only (``is_head``)."""
    if dialect is Dialect.NONE:
        return None
    try:
        members = members_of(raw)
        role = bytes(members.get("role", b""))
        if role == b'"assistant"' or (role in _SYSTEM and not is_head):
            return None
        if role in _PLAIN and _VISIBLE.match(memoryview(members.get("content", b""))):
            return _with_marked_string(members, dialect)
        message = _reader().read(Raw(raw))
    except Unreadable:
        return None
    places = [part.index for part in message.parts if part.markable]
    return write_message(message, {places[-1]: "5m"}, dialect) if places else None


def marks_beside_messages(members: Members) -> int:
    """How many markers a request has outside of its messages: on the whole body, and on its tools. They count among
    those that a provider takes. What cannot be read has none."""
    own = sum(1 for key in MARK_KEYS if bytes(members.get(key, b"null")) != b"null")
    raw = members.get("tools")
    if raw is None or not any(name in bytes(raw) for name in _NAMES):
        return own
    try:
        return own + sum(_marks_of_tool(members_of(tool)) for tool in elements(raw))
    except Unreadable:
        return own


def _marks_of_tool(tool: Members) -> int:
    """A marker stands on the tool, or on its function: both are read."""
    places = [tool, members_of(tool["function"])] if bytes(tool.get("function", b"")).startswith(b"{") else [tool]
    return sum(1 for place in places for key in MARK_KEYS if bytes(place.get(key, b"null")) != b"null")


def _with_marked_string(members: Members, dialect: Dialect) -> bytes:
    """The string becomes the one text part of a list: its bytes stay as they are."""
    key, mark = mark_json(dialect, "5m")
    part = (b'[{"type":"text","text":', memoryview(members["content"]), b",", orjson.dumps(key), b":", mark, b"}]")
    changes: dict[str, bytes | None] = {name: None for name in MARK_KEYS if name in members}
    return join_members(members, {**changes, "content": b"".join(part)})


def _reader() -> MessageReader:
    return MessageReader(TokenCounter(capacity=1), ())
