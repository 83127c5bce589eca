"""Writes the operator's texts into a chat request: in front of its system text, and around the client's own text in
user messages.

Some servers read ``Messages`` as ``messages``, and ``Content`` as ``content``. Such a member would replace the member
into which the operator's text was put.

The texts of earlier turns are found again by the user's turns of the conversation, each with the answer in front of it
(``user_turns``), and by the head in front of all turns.
"""

from bisect import bisect_left
from collections.abc import Container, Iterable, Mapping, Sequence

from msgspec import Raw

from proxy.core.digest import chain, digest
from proxy.core.prompts.prompt import Inset
from proxy.core.recognition import MessageKind, PieceKind
from proxy.core.request.message import SYSTEM_ROLES, answered_calls, message_json, text_part
from proxy.core.request.parsed_body import ParsedBody, parse_body
from proxy.core.request.transcript import Transcript
from proxy.core.wire.json_body import (
    Members,
    Unreadable,
    elements,
    join_members,
    members_of,
    text_json,
    text_value,
    value,
)
from proxy.core.wire.scan import behind_space, folded
from proxy.errors import InvalidRequest

_JOINT = "\n\n"
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
    if spans is None or bytes(memoryview(parsed.members.get("messages", b""))[:1]) != b"[":
        raise Unreadable("no array of messages")
    body, first = parsed.body, next(iter(parsed.raws()), None)
    position = behind_space(body, spans["messages"][0] + 1)
    if first is None:
        return parsed.edited({"messages": b"[" + message_json("system", text) + b"]"})
    joined = _joined(first, text)
    if joined is None:
        return body[:position] + message_json("system", text) + b"," + body[position:]
    return body[:position] + joined + body[position + len(first) :]


def _joined(first: Raw | bytes, text: str) -> bytes | None:
    """The client's first message with the text in front of its own text; None if it is no system message with a
    text."""
    members = members_of(first)
    role = value(members.get("role", b"null"))
    if not isinstance(role, str) or role not in SYSTEM_ROLES or not is_plainly_spelt(members):
        return None
    is_empty = bytes(members.get("content", b"")) == b'""'
    return _around(members, text if is_empty else text + _JOINT, "")


def with_inset(raw: bytes, inset: Inset) -> bytes:
    """A user message with the operator's texts in front of and behind the client's text, with a blank line between
    them. If the client's content is a list of parts, the operator's texts are parts of their own. A message without
    content, or with content that is neither a text nor a list, stays as it is. Raises Unreadable for a message that is
    no object."""
    members = members_of(raw)
    before = inset.before + _JOINT if inset.before else ""
    after = _JOINT + inset.after if inset.after else ""
    written = _around(members, before, after) if inset else None
    return raw if written is None else written


def _around(members: Members, before: str, after: str) -> bytes | None:
    """A message with these texts around its own; None if it has neither a text nor a list."""
    content = members.get("content", b"")
    match _first(content):
        case b'"':
            return join_members(members, {"content": text_json(f"{before}{text_value(content)}{after}")})
        case b"[":
            first, last = [text_part(text) if text else b"" for text in (before, after)]
            parts = filter(None, [first, *map(bytes, elements(content)), last])
            return join_members(members, {"content": b"[" + b",".join(parts) + b"]"})
    return None


def _first(content: Raw | bytes) -> bytes:
    """The first byte of a value. It is not copied whole, because it may be long."""
    return bytes(memoryview(content)[:1])


def takes_inset(parsed: ParsedBody) -> bool:
    """Whether the newest user message has a content around which texts can be put. Messages are read from the end.
    Raises Unreadable if the messages are no array."""
    newest = next((raw for raw in reversed(list(parsed.raws())) if _is_asked(raw)), None)
    if newest is None:
        return False
    members = members_of(newest)
    return _first(members.get("content", b"")) in (b'"', b"[") and is_plainly_spelt(members)


def placed(asked: Sequence[bool], inset: Inset, earlier: Mapping[int, Inset]) -> Mapping[int, Inset]:
    """The texts that each message gets, by its index. ``asked`` says of each message whether it is a user's. The newest
    of these gets the ``inset``; those in front of it get the texts that they had ``earlier``."""
    last = next((i for i in range(len(asked) - 1, -1, -1) if asked[i]), -1)
    found = {i: texts for i, texts in sorted(earlier.items()) if 0 <= i < last and texts and asked[i]}
    if inset and last >= 0:
        found[last] = inset
    return found


def inset_body(body: bytes, inset: Inset, earlier: Mapping[int, Inset] | None = None) -> bytes:
    """A chat request with the operator's texts and every other byte as it came; for requests that are sent without a
    plan. The messages are split but not read. Raises Unreadable if they cannot be found, and InvalidRequest if the body
    is no JSON object."""
    if not (inset or earlier):
        return body
    parsed = parse_body(body)
    raws = [bytes(raw) for raw in parsed.raws()] if "messages" in parsed.members else []
    texts = placed([_is_asked(raw) for raw in raws], inset, earlier or {})
    if not texts:
        return body
    changed = {index: with_inset(raws[index], text) for index, text in texts.items()}
    parsed.spans()
    return parsed.rewritten({}, raws, changed)


def _is_asked(raw: Raw | bytes) -> bool:
    """Whether it is a user's message, and not one into which a client writes the results of calls."""
    try:
        members = members_of(raw)
        return "role" in members and value(members["role"]) == "user" and not answered_calls(bytes(raw), members)
    except Unreadable:
        return False


def user_turns(start: bytes, transcript: Transcript, without: Container[int] = ()) -> list[tuple[int, bytes]]:
    """For each user message of the conversation, its index and a digest. The digest covers ``start``, the user's turns
    up to this message, and the answer in front of each. Instructions, context, and the messages ``without`` are left
    out."""
    pairs = _pairs(transcript, without) if without else transcript.pairs
    found: list[tuple[int, bytes]] = []
    key = start
    for index, pair in pairs:
        key = chain(key, pair)
        found.append((index, key))
    return found


def tokens_from(
    transcript: Transcript,
    turns: Sequence[tuple[int, bytes]],
    without: Container[int],
    message: int,
    *,
    caches_output: bool,
) -> int:
    """The conversation's tokens from a message up to the end of the previous request. Context and the messages
    ``without`` do not count: they change their places from one request to the next. The answer to the previous request
    counts only if the provider stores answers, too."""
    messages, end = transcript.messages, turns[-1][0]
    if not caches_output and end > message and messages[end - 1].role == "assistant":
        end -= 1
    context = {
        near
        for index in transcript.recognised[bisect_left(transcript.recognised, message) :]
        if (known := messages[index].recognition) is not None and known.form is not MessageKind.PROMPT
        for near in (index, index + 1)
    }
    return sum(messages[i].tokens for i in range(message, end) if i not in context and i not in without)


def head_digest(transcript: Transcript, tools: Raw | bytes | None) -> bytes:
    """A digest of the tools and the system messages in front of the conversation. Volatile lines are left out: they are
    mostly moved to the end."""
    system: list[bytes] = []
    for message in transcript.messages[: transcript.preamble]:
        known = message.recognition
        cuts = zip(known.cuts, message.cut_digests, strict=True) if known is not None and message.cut_digests else ()
        kept = [own for cut, own in cuts if cut.kind is not PieceKind.VOLATILE]
        system.append(digest(*kept) if message.cut_digests else message.digest)
    return digest(bytes(tools) if tools is not None else b"", *system)


def _pairs(transcript: Transcript, without: Container[int]) -> list[tuple[int, bytes]]:
    pairs: list[tuple[int, bytes]] = []
    last = before = b""
    for index in range(transcript.preamble, len(transcript.messages)):
        if index in without:
            continue
        own = transcript.turns[index]
        if transcript.messages[index].is_asked:
            pairs.append((index, digest(last, own)))
        elif transcript.messages[index].role not in SYSTEM_ROLES:
            last = digest(before, own)
        before = own
    return pairs
