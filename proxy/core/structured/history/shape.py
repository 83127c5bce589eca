"""What a message is to the rules of the history, read from its JSON without trusting it.

A message is read as a whole or not at all. One that is of no known form, as an old ``function_call`` or a call's id
that is no string, may belong to the messages beside it in a way that is not known here.
"""

from enum import StrEnum
from types import MappingProxyType

import msgspec
from msgspec import Raw

from proxy.core.request.message import MARK_KEYS
from proxy.core.structured.messages.turn import Turn
from proxy.core.wire.json_body import Members, Unreadable, elements, members_of, text_value


class Sort(StrEnum):
    """What a message is."""

    SYSTEM = "system"
    PLAIN = "plain"
    """A user's message, or an assistant's that calls no tool."""
    CALLS = "calls"
    """An assistant's message that calls tools."""
    RESULT = "result"
    """The answer to one call."""
    UNREAD = "unread"
    """It is of no form that is known here."""


_NO_MEMBERS: Members = MappingProxyType({})


class Shape(msgspec.Struct, frozen=True, gc=False):
    """What the rules know of a message. (A struct, not a dataclass: there is one for every message of a request.)

    ``ids`` are those of a message's calls in their order, each once, or the one that a result names. ``has_content``:
    some text, media or refusal is in it. ``is_empty``: it has neither that, nor a call or result, nor any other member
    that says something. ``members`` are those of the message, where it is read.
    """

    sort: Sort
    ids: tuple[str, ...] = ()
    has_content: bool = True
    is_empty: bool = False
    members: Members = _NO_MEMBERS


_SYSTEM = Shape(Sort.SYSTEM)
_UNREAD = Shape(Sort.UNREAD)

_NOTHING = (b"null", b'""', b"[]", b"{}")
_FRAME = frozenset({"role", "name", "content", "tool_calls", "function_call", "tool_call_id", *MARK_KEYS})
"""Members that say nothing of their own beside the content and the calls."""
_SAID = ("refusal", "audio")
"""Members in which a model's answer may stand in place of the content."""
_PLAIN = ("role", "content")
"""The members of most messages."""
_SPEAKERS = frozenset({"user", "assistant"})


def shape_of(turn: Turn) -> Shape:
    """What the message is. The time is that of finding its members, and the types of its parts."""
    if turn.is_system:
        return _SYSTEM
    try:
        return _shape(turn.role, turn.members)
    except Unreadable:
        return _UNREAD


def is_given(members: Members, name: str) -> bool:
    """Whether the member is there and says something."""
    raw = members.get(name)
    return raw is not None and (len(raw) > len(b"null") or bytes(raw) not in _NOTHING)


def call_members(members: Members) -> list[Members]:
    """The calls of a message, as their members. Raises Unreadable."""
    return [members_of(raw) for raw in elements(members["tool_calls"])] if is_given(members, "tool_calls") else []


def text_member(members: Members, name: str) -> str:
    """A member that is a text. Raises Unreadable where it is none, or missing. What is no text is not parsed."""
    raw = members.get(name)
    found = text_value(raw) if raw is not None and is_text(raw) else None
    if not isinstance(found, str):
        raise Unreadable(f"{name} is no text")
    return found


def is_text(raw: Raw) -> bool:
    """Whether the value begins as a text does."""
    return bytes(memoryview(raw)[:1]) == b'"'


def _shape(role: str, members: Members) -> Shape:
    has_content = _has_content(members.get("content"))
    if role in _SPEAKERS and len(members) == len(_PLAIN) and "content" in members:
        return Shape(Sort.PLAIN, (), has_content, not has_content, members)
    has_content = has_content or any(is_given(members, name) for name in _SAID)
    ids = _call_ids(members)
    if is_given(members, "function_call"):
        raise Unreadable("a call of the old form")
    if role == "tool" and not ids:
        return Shape(Sort.RESULT, (text_member(members, "tool_call_id"),), has_content, False, members)
    if role not in _SPEAKERS or is_given(members, "tool_call_id"):
        raise Unreadable("no known role, or a result of another role")
    if not ids:
        others = not has_content and any(name not in _FRAME and is_given(members, name) for name in members)
        return Shape(Sort.PLAIN, (), has_content, not has_content and not others, members)
    if role != "assistant":
        raise Unreadable("calls of another role")
    return Shape(Sort.CALLS, ids, has_content, False, members)


def _call_ids(members: Members) -> tuple[str, ...]:
    ids = tuple([text_member(call, "id") for call in call_members(members)])
    if len(set(ids)) < len(ids):
        raise Unreadable("two calls of one id")
    return ids


def _has_content(raw: Raw | None) -> bool:
    """Whether there is any content. Raises Unreadable for content of no known form, and for parts that are calls or
    results themselves, as another dialect has them."""
    if raw is None:
        return False
    if is_text(raw):
        return len(raw) > len(b'""')
    first = bytes(memoryview(raw)[:1])
    if first == b"n":
        return False
    if first != b"[":
        raise Unreadable("content is neither text nor a list")
    found = False
    for each in elements(raw):
        part = members_of(each)
        kind = text_member(part, "type")
        if "tool" in kind or "function" in kind:
            raise Unreadable("a call or a result among the parts")
        found = found or kind != "text" or is_given(part, "text")
    return found
