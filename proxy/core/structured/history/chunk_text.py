"""A frozen part of a conversation as text.

Each record ends with a line break, and nothing else stands between two of them, as in the original: ``[role]: text`` of
a message (``[role name]: text`` where it has a name), ``tool_call name(arguments)`` of a call, and a result's text
alone. Arguments are the model's own string.
"""

from collections.abc import Iterable, Iterator

from msgspec import Raw

from proxy.core.request.message import THINKING_TYPES
from proxy.core.structured.history.groups import Entry, Group, entry_of, grouped
from proxy.core.structured.history.shape import Sort, call_members, is_given, is_text, text_member
from proxy.core.structured.messages.turn import Turn
from proxy.core.wire.json_body import Members, Unreadable, elements, members_of

_NO_ARGUMENTS = "{}"
_TEXT_JOINT = "\n"
"""Between two texts of one message."""


def chunk_text(turns: Iterable[Turn]) -> str:
    """The messages as text; system messages are not in it. What a model thought is left out, as providers leave it out
    of earlier turns. Raises Unreadable where a message says something that is no text, or cannot be read, and where a
    call and its results do not all stand in it."""
    groups = grouped([entry_of(index, turn) for index, turn in enumerate(turns) if not turn.is_system])
    return "".join([f"{record}\n" for group in groups for record in _records(group)])


def _records(group: Group) -> Iterator[str]:
    asked = {call_id for each in group if each.shape.sort is Sort.CALLS for call_id in each.shape.ids}
    answered = {call_id for each in group if each.shape.sort is Sort.RESULT for call_id in each.shape.ids}
    if asked != answered:
        raise Unreadable("calls and results that do not belong together")
    for each in group:
        yield from _message(each)


def _message(entry: Entry) -> Iterator[str]:
    sort, members = entry.shape.sort, entry.shape.members
    if sort is Sort.UNREAD or is_given(members, "audio"):
        raise Unreadable("a message that is no text")
    text = _text(members)
    if sort is Sort.RESULT:
        yield text
    elif text or sort is Sort.PLAIN:
        yield f"[{_speaker(entry)}]: {text}"
    if sort is Sort.CALLS:
        yield from map(_call, call_members(members))


def _text(members: Members) -> str:
    """The content and a refusal, as one text."""
    raw = members.get("content")
    if raw is not None and is_text(raw):
        texts = [text_member(members, "content")]
    else:
        texts = list(_parts(raw)) if raw is not None and is_given(members, "content") else []
    if is_given(members, "refusal"):
        texts.append(text_member(members, "refusal"))
    return _TEXT_JOINT.join(filter(None, texts))


def _speaker(entry: Entry) -> str:
    """The role, and the name where the message has one."""
    members = entry.shape.members
    return f"{entry.turn.role} {text_member(members, 'name')}" if is_given(members, "name") else entry.turn.role


def _parts(raw: Raw) -> Iterator[str]:
    """The texts of a list of parts."""
    for each in elements(raw):
        part = members_of(each)
        kind = text_member(part, "type")
        if kind in ("text", "refusal"):
            yield text_member(part, kind)
        elif kind not in THINKING_TYPES:
            raise Unreadable(f"a part that is no text: {kind}")


def _call(call: Members) -> str:
    form, said = ("function", "arguments") if is_given(call, "function") else ("custom", "input")
    if form not in call:
        raise Unreadable("a call of no known form")
    told = members_of(call[form])
    return (
        f"tool_call {text_member(told, 'name')}({text_member(told, said) if is_given(told, said) else _NO_ARGUMENTS})"
    )
