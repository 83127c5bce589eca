"""Puts one of the operator's texts in front of the system text of a request.

Some servers read ``Messages`` as ``messages``, and ``Content`` as ``content``. Such a member would replace the member
into which the operator's text was put.
"""

from collections.abc import Iterable

from msgspec import Raw

from proxy.core.request.message import SYSTEM_ROLES
from proxy.core.request.parsed_body import ParsedBody
from proxy.core.wire.json_body import (
    Unreadable,
    behind_space,
    elements,
    join_members,
    members_of,
    splice,
    text_value,
    value,
)
from proxy.core.wire.scan import folded
from proxy.core.wire.surrogates import text_json
from proxy.errors import InvalidRequest

_MEANT = frozenset({"messages", "role", "content"})


def is_plainly_spelt(names: Iterable[str]) -> bool:
    """Whether none of the names is another spelling of a name that is edited here."""
    return all(name in _MEANT or folded(name) not in _MEANT for name in names)


def check_spelling(parsed: ParsedBody) -> None:
    """Raises InvalidRequest for a request whose messages some servers would find under another name."""
    if not is_plainly_spelt(parsed.members):
        message = "write 'messages' exactly so: servers differ in what they make of it in another form"
        raise InvalidRequest(message, param="messages", code="invalid_value")


def with_system(parsed: ParsedBody, text: str) -> bytes:
    """The request with ``text`` in front of the text of its first message, if that is a system or developer message;
    otherwise with a new system message in front. All other bytes stay as they came. Raises Unreadable if the messages
    are no array of objects."""
    spans = parsed.spans()
    raw = parsed.members.get("messages", b"")
    if spans is None or bytes(memoryview(raw)[:1]) != b"[":
        raise Unreadable("no array of messages")
    body, (start, _) = parsed.body, spans["messages"]
    first = next(iter(parsed.raws()), None)
    position = behind_space(body, start + 1)
    if first is None:
        return splice(body, parsed.members, {"messages": b"[" + _message(text) + b"]"}, parsed.span)
    joined = _joined(first, text)
    if joined is None:
        return body[:position] + _message(text) + b"," + body[position:]
    return body[:position] + joined + body[position + len(first) :]


def _message(text: str) -> bytes:
    return b'{"role":"system","content":' + text_json(text) + b"}"


def _joined(first: Raw | bytes, text: str) -> bytes | None:
    """The client's first message with the text in front of its own text; None if it is no system message with a
    text."""
    members = members_of(first)
    role, content = value(members.get("role", b"null")), members.get("content")
    if not isinstance(role, str) or role not in SYSTEM_ROLES or content is None or not is_plainly_spelt(members):
        return None
    if bytes(content).startswith(b'"'):
        own = text_value(content)
        return join_members(members, {"content": text_json(f"{text}\n\n{own}" if own else text)})
    if not bytes(content).startswith(b"["):
        return None
    parts = [b'{"type":"text","text":' + text_json(text + "\n\n") + b"}", *map(bytes, elements(content))]
    return join_members(members, {"content": b"[" + b",".join(parts) + b"]"})
