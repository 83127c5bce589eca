"""Writes the operator's texts around the client's own text of user messages."""

from collections.abc import Mapping, Sequence

from msgspec import Raw

from proxy.core.prompts.composition import Inset
from proxy.core.request.message import answered_calls
from proxy.core.request.parsed_body import ParsedBody
from proxy.core.request.system_text import is_plainly_spelt
from proxy.core.wire.json_body import (
    Members,
    Patch,
    Span,
    Unreadable,
    elements,
    join_members,
    members_of,
    parse_members,
    splice,
    text_value,
    value,
    value_spans,
)
from proxy.core.wire.surrogates import text_json

_JOINT = "\n\n"
_NOTHING_EARLIER: Mapping[int, Inset] = {}


def with_inset(raw: bytes, inset: Inset) -> bytes:
    """A user message with the operator's texts in front of and behind the client's text, with a blank line between
    them. If the client's content is a list of parts, the operator's texts are parts of their own. A message without
    content, or with content that is neither a text nor a list, stays as it is. Raises Unreadable for a message that is
    no object."""
    members = members_of(raw)
    content = members.get("content")
    first = bytes(memoryview(content)[:1]) if content is not None else b""
    if not inset or content is None or first not in (b'"', b"["):
        return raw
    before = inset.before + _JOINT if inset.before else ""
    after = _JOINT + inset.after if inset.after else ""
    if first == b'"':
        return join_members(members, {"content": text_json(f"{before}{text_value(content)}{after}")})
    parts = [_part(before), *(bytes(part) for part in elements(content)), _part(after)]
    return join_members(members, {"content": b"[" + b",".join(filter(None, parts)) + b"]"})


def takes_inset(parsed: ParsedBody) -> bool:
    """Whether the newest user message has a content around which texts can be put. Messages are read from the end.
    Raises Unreadable if the messages are no array."""
    newest = next((raw for raw in reversed(list(parsed.raws())) if _is_asked(raw)), None)
    if newest is None:
        return False
    members = members_of(newest)
    content = members.get("content")
    return content is not None and bytes(memoryview(content)[:1]) in (b'"', b"[") and is_plainly_spelt(members)


def _part(text: str) -> bytes:
    return b'{"type":"text","text":' + text_json(text) + b"}" if text else b""


def placed(asked: Sequence[bool], inset: Inset, earlier: Mapping[int, Inset]) -> Mapping[int, Inset]:
    """The texts that each message gets, by its index. ``asked`` says of each message whether it is a user's. The newest
    of these gets the ``inset``; those in front of it get the texts that they had ``earlier``."""
    last = next((i for i in range(len(asked) - 1, -1, -1) if asked[i]), -1)
    found = {i: texts for i, texts in sorted(earlier.items()) if 0 <= i < last and texts and asked[i]}
    if inset and last >= 0:
        found[last] = inset
    return found


def inset_body(body: bytes, inset: Inset, earlier: Mapping[int, Inset] = _NOTHING_EARLIER) -> bytes:
    """A chat request with the operator's texts and every other byte as it came; for requests that are sent without a
    plan. The messages are split but not read. Raises Unreadable if they cannot be found, and InvalidRequest if the body
    is no JSON object."""
    if not (inset or earlier):
        return body
    members = parse_members(body)
    raws = elements(members["messages"]) if "messages" in members else []
    changed = {
        i: with_inset(bytes(raws[i]), texts)
        for i, texts in placed([_is_asked(raw) for raw in raws], inset, earlier).items()
    }
    if not changed:
        return body
    spans = value_spans(body, members)
    if spans is None:
        written = b",".join(changed.get(i, bytes(raw)) for i, raw in enumerate(raws))
        return join_members(members, {"messages": b"[" + written + b"]"})
    return splice(body, members, {}, spans["messages"], _patches(body, spans["messages"], raws, changed))


def _is_asked(raw: Raw | bytes) -> bool:
    """Whether it is a user's message, and not one into which a client writes the results of calls."""
    try:
        members: Members = members_of(raw)
        return "role" in members and value(members["role"]) == "user" and not answered_calls(bytes(raw), members)
    except Unreadable:
        return False


def _patches(body: bytes, span: Span, raws: Sequence[Raw], changed: Mapping[int, bytes]) -> list[Patch]:
    found: list[Patch] = []
    place = span[0] + 1
    for index, raw in enumerate(raws):
        start = body.index(bytes(memoryview(raw)[:1]), place)
        place = start + len(raw)
        if index in changed:
            found.append((start, place, changed[index]))
    return found
