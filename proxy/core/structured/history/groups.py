"""The kind of each message, its calls and results, and the places where a conversation may be cut. All of this is read
from JSON that is not trusted.

A message is read as a whole or not at all. A message of an unknown form, such as one with an old ``function_call`` or
with a call id that is no string, may belong to its neighbours in a way that is not known here. A provider accepts a
call only if its results follow directly, so a call and its results are matched within their group. Ids need not be
unique in the whole conversation: several models number the calls of each answer anew.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from types import MappingProxyType

import msgspec
from msgspec import Raw

from proxy.core.request.message import MARK_KEYS
from proxy.core.structured.messages import Turn
from proxy.core.wire.json_body import Members, Unreadable, elements, members_of, text_value


class Sort(StrEnum):
    """The kind of a message."""

    SYSTEM = "system"
    PLAIN = "plain"
    """A user's message, or an assistant's that calls no tool."""
    CALLS = "calls"
    """An assistant's message that calls tools."""
    RESULT = "result"
    """The answer to one call."""
    UNREAD = "unread"
    """A message of a form that is not known here."""


_NO_MEMBERS: Members = MappingProxyType({})


class Shape(msgspec.Struct, frozen=True, gc=False):
    """The facts about a message that the rules need. (A struct, not a dataclass: there is one for every message of a
    request.)

    ``ids`` are the ids of a message's calls in their order, each once, or the one id that a result names.
    ``has_content``: the message has some text, media or refusal. ``is_empty``: the message has no such content, no call
    or result, and no other member with a value. ``members`` are those of the message, if it is read.
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
"""Members that do not count as content of their own beside the content and the calls."""
_SAID = ("refusal", "audio")
"""Members in which a model's answer may stand in place of the content."""
_PLAIN = ("role", "content")
"""The members of most messages."""
_SPEAKERS = frozenset({"user", "assistant"})


def shape_of(turn: Turn) -> Shape:
    """Read a message. Finding its members and the types of its parts takes most of the time."""
    if turn.is_system:
        return _SYSTEM
    try:
        return _shape(turn.role, turn.members)
    except Unreadable:
        return _UNREAD


def is_given(members: Members, name: str) -> bool:
    """Whether the member is there and has a value that is not empty."""
    raw = members.get(name)
    return raw is not None and (len(raw) > len(b"null") or bytes(raw) not in _NOTHING)


def call_members(members: Members) -> list[Members]:
    """The calls of a message, as their members. Raises Unreadable."""
    return [members_of(raw) for raw in elements(members["tool_calls"])] if is_given(members, "tool_calls") else []


def text_member(members: Members, name: str) -> str:
    """A member that is a text. Raises Unreadable if it is not a text or is missing. Other values are not parsed."""
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
    results themselves, as in another dialect."""
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


MADE = -1
"""The origin of a message that the client did not send."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A message that the rules work on. ``origin`` is its index in the client's conversation, or ``MADE``."""

    origin: int
    turn: Turn
    shape: Shape


Group = list[Entry]


def entry_of(origin: int, turn: Turn) -> Entry:
    """The message with the facts about it."""
    return Entry(origin, turn, shape_of(turn))


def grouped(entries: Iterable[Entry]) -> Iterator[Group]:
    """The messages in groups, so that calls are together with their results; any other message is a group of its own. A
    message that cannot be read belongs to the group in which it stands, and system messages do not end a group."""
    group: Group = []
    last = Sort.PLAIN
    for each in entries:
        sort = each.shape.sort
        if group and (sort is Sort.PLAIN or (sort is Sort.CALLS and last is Sort.RESULT)):
            yield group
            group = []
        group.append(each)
        last = last if sort is Sort.SYSTEM else sort
        if sort is Sort.PLAIN:
            yield group
            group = []
    if group:
        yield group


def is_known(group: Group) -> bool:
    """Whether it is known which call each result of the group answers: every message can be read, and no two of its
    calls have the same id."""
    if any(each.shape.sort is Sort.UNREAD for each in group):
        return False
    ids = [call_id for each in group if each.shape.sort is Sort.CALLS for call_id in each.shape.ids]
    return len(set(ids)) == len(ids)


def cuts(turns: Sequence[Turn]) -> tuple[int, ...]:
    """The indices of the user messages in front of which the conversation may be cut, in ascending order.

    A call and its results are a group, with everything between them. A message that cannot be read may answer the call
    in front of it, and is treated as a result. Finding the messages' members takes most of the time.
    """
    sorts, ends = _group_ends(turns)
    found, reach = [], -1
    for index, turn in enumerate(turns):
        if turn.role == "user" and sorts[index] is Sort.PLAIN and reach < index:
            found.append(index)
        reach = max(reach, ends[index])
    return tuple(found)


def _group_ends(turns: Sequence[Turn]) -> tuple[list[Sort], list[int]]:
    """The kind of each message, and the index of the last result of its calls, which is -1 for a message without
    results."""
    sorts: list[Sort] = []
    ends = [-1] * len(turns)
    callers: dict[str, int] = {}
    latest = -1
    for index, turn in enumerate(turns):
        shape = shape_of(turn)
        sorts.append(shape.sort)
        if shape.sort is Sort.CALLS:
            callers.update(dict.fromkeys(shape.ids, index))
        elif shape.sort in (Sort.RESULT, Sort.UNREAD):
            caller = callers.get(shape.ids[0], latest) if shape.ids else latest
            if caller >= 0:
                ends[caller] = index
        if turn.role == "assistant":
            latest = index
    return sorts, ends
