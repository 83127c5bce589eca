"""Reads a request as the planner needs it.

The client's bytes come in; messages, tools, elements with digests and token counts go out. Messages that were read with
an earlier request of the same conversation are not read again. This package never changes a byte.

``ParsedBody`` is the body of a request: its members, its messages if it is a chat, and its head.

The head is the few members that decide where a request goes and how its answer is read (``head_of``). A body is edited
by splicing: every value stays the slice of bytes that the client sent, and only values that must change are replaced.
``BodyChanges`` is the difference between a client's chat request and what is sent in its place.

The operator's texts are written in front of the system text, and around the client's own text in user messages. Some
servers read ``Messages`` as ``messages``, and ``Content`` as ``content``. Such a member would replace the member into
which the operator's text was put.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec
import orjson
from msgspec import Raw, structs

from proxy.kit.errors import InvalidRequest
from proxy.kit.value import dataclass, field
from proxy.protocol.recognition import MOST_PIECES, MessageKind
from proxy.protocol.request.demand import MEMBERS
from proxy.protocol.request.message import SYSTEM_ROLES, Message, answered_calls, message_json, text_part
from proxy.protocol.request.transcript import Transcript
from proxy.protocol.wire.json_body import (
    MOST_ELEMENTS,
    Members,
    Patch,
    Span,
    TooMany,
    Unreadable,
    behind_space,
    elements,
    folded,
    join_members,
    members_of,
    parse_members,
    read_or_mended,
    scan_members,
    splice,
    string_of,
    text_json,
    text_value,
    value,
    value_spans,
)

_NULL, _TRUE = Raw(b"null"), Raw(b"true")


def array_of(items: Iterable[bytes]) -> bytes:
    """The JSON of an array of these values."""
    return b"[" + b",".join(items) + b"]"


class Continuation(NamedTuple):
    """How a body continues a conversation that was read before: it repeats the first messages of ``base``, which begin
    at ``starts``, and ``added`` are the messages behind them."""

    base: Transcript | None = None
    added: Sequence[Raw] | None = None
    starts: Sequence[int] = ()


_NEW = Continuation()


class ParsedBody:
    """One body. The members are parsed at once. Each further step is done only once, when its result is first needed.

    ``span`` is the place of the array of messages in the body, as far as it is known. ``known`` is the number of
    messages that were read with an earlier request. ``transcript`` has all messages; None if they have not been read.
    ``model`` is known after ``head_of`` and after ``chat``.
    ``failure`` is the error of somebody who has tried to read the messages.
    """

    __slots__ = ("_added", "_base", "_starts", "body", "failure", "known", "members", "model", "span", "transcript")

    def __init__(self, body: bytes, members: Members, span: Span | None = None, continues: Continuation = _NEW) -> None:
        self.body = body
        self.members = members
        self.span = span
        self._base, self._added, self._starts = continues
        self.known = len(continues.starts)
        self.model = ""
        self.transcript: Transcript | None = None
        self.failure: Unreadable | None = None

    def spans(self) -> dict[str, Span] | None:
        """The place of each member's value; None if a name occurs twice."""
        found = value_spans(self.body, self.members, self.span)
        if found is not None:
            self.span = self.span or found.get("messages")
        return found

    def chat(self) -> "ParsedBody":
        """This body, which is a chat request. Raises InvalidRequest if it is none, and Unreadable if the proxy cannot
        read it, or could not read it ahead."""
        if self.failure is not None:
            raise self.failure
        members = self.members
        if "messages" not in members:
            raise InvalidRequest("the request has no 'messages'", param="messages", code="missing_messages")
        if bytes(memoryview(members["messages"])[:1]) != b"[":
            raise InvalidRequest("'messages' must be an array", param="messages", code="invalid_type")
        if not self.unread() and not self.known:
            raise InvalidRequest("'messages' is empty", param="messages", code="missing_messages")
        model = self.model or value(members.get("model", _NULL))
        if not isinstance(model, str) or not model:
            raise InvalidRequest("'model' must be a non-empty string", param="model", code="missing_model")
        if self.span is None:
            self.spans()
        self.model = model
        return self

    def edits(self, model: str, *, asks_usage: bool = True) -> Mapping[str, bytes | None]:
        """The edits that every mode makes in a chat request: its ``model`` gets the name that it has at the upstream,
        usage is asked for if the client lacks it, and the proxy's own section goes."""
        changes: dict[str, bytes | None] = {}
        if model and model != self.model:
            changes["model"] = orjson.dumps(model)
        if asks_usage and (options := self.usage_asked()) is not None:
            changes["stream_options"] = options
        if "stratiform" in self.members:
            changes["stratiform"] = None
        return changes

    def usage_asked(self) -> bytes | None:
        """The client's ``stream_options``, changed to ask for usage. None if the client asks for it or does not stream,
        or if they are no object."""
        options = self.members.get("stream_options", _NULL)
        if self.members.get("stream") != _TRUE:
            return None
        if options == _NULL:
            return b'{"include_usage":true}'
        own = members_of(options) if bytes(options).startswith(b"{") else None
        if own is None or own.get("include_usage") == _TRUE:
            return None
        return join_members(own, {"include_usage": b"true"})

    def edited(self, changes: Mapping[str, bytes | None], within: Sequence[Patch] = ()) -> bytes:
        """The body with top-level members removed (None) or added, and with patches ``within`` its messages,
        in their order."""
        return splice(self.body, self.members, changes, self.span, () if "messages" in changes else within)

    def rewritten(
        self, members: Mapping[str, bytes | None], raws: Sequence[bytes], changed: Mapping[int, bytes]
    ) -> bytes:
        """The body with top-level members and with those of its messages (``raws``) that are ``changed``, by
        their index."""
        if not changed:
            return self.edited(members)
        if self.span is None:
            return self.edited({**members, "messages": array_of(changed.get(i, raw) for i, raw in enumerate(raws))})
        starts = self.starts(raws)
        return self.edited(members, [(starts[i], starts[i] + len(raws[i]), new) for i, new in sorted(changed.items())])

    def has(self, sign: Callable[[bytes], bool]) -> bool:
        """Whether any part of the body has a sign: the messages of earlier requests, each of which is looked at once,
        and everything around them. A sign stands within one message, or within one other member."""
        if self._base is None:
            return sign(self.body)
        messages, starts = self._base.messages[: self.known], self._starts
        end = starts[self.known - 1] + len(messages[-1].raw)
        around = (self.body[: starts[0]], self.body[end:])
        return any(map(sign, around)) or any(message.has(sign) for message in messages)

    def unread(self) -> Sequence[Raw]:
        """The messages that no earlier request had. Raises Unreadable if the messages are no array."""
        if self._added is None:
            self._added = elements(self.members["messages"])
        if self.known + len(self._added) > MOST_ELEMENTS:
            raise TooMany("too many messages")
        return self._added

    def raws(self) -> Iterator[Raw | bytes]:
        """The JSON of each message. Raises Unreadable if the messages are no array."""
        if self._base is not None:
            yield from (message.raw for message in self._base.messages[: self.known])
        yield from self.unread()

    def read(self, reader: Callable[[Raw], Message]) -> Transcript:
        """All messages. ``reader`` reads those that no earlier request had. Raises Unreadable, and the errors of the
        reader."""
        if self.transcript is None:
            added = [reader(raw) for raw in self.unread()]
            if sum(len(message.parts) for message in added) > MOST_ELEMENTS:
                raise TooMany("too many parts")
            before = self._base.messages[: self.known] if self._base is not None else ()
            if any([message.recognition is not None for message in added]):
                added = _within_bound(before, added)
            self.transcript = Transcript((*before, *added), self._base, self.known)
        return self.transcript

    def starts(self, raws: Sequence[bytes]) -> Sequence[int]:
        """The place of each message in the body. The ``span`` must be known, and ``raws`` must be all messages."""
        assert self.span is not None
        if len(self._starts) < len(raws):
            starts = list(self._starts)
            place = starts[-1] + len(raws[len(starts) - 1]) + 1 if starts else self.span[0] + 1
            for raw in raws[len(starts) :]:
                place = self.body.index(raw[:1], place)
                starts.append(place)
                place += len(raw) + 1
            self._starts = starts
        return self._starts


def _within_bound(before: Sequence[Message], added: Sequence[Message]) -> list[Message]:
    """The ``added`` messages of a conversation that has those ``before``. A message stays whole if its pieces of
    context would be too many, together with those of all messages in front of it: planning takes time for each."""
    room = MOST_PIECES - sum(map(_context_pieces, before))
    found: list[Message] = []
    for message in added:
        pieces, own = _context_pieces(message), message.digest
        if pieces > room:
            pieces = 0
            message = structs.replace(
                message, turn=own, fixed=own, text=None, recognition=None, cut_digests=(), memo={}
            )
        room -= pieces
        found.append(message)
    return found


def _context_pieces(message: Message) -> int:
    known = message.recognition
    return len(known.cuts) if known is not None and known.form in (MessageKind.CONTEXT, MessageKind.CANDIDATE) else 0


def parse_body(body: bytes) -> ParsedBody:
    """The body's members. Raises InvalidRequest for a body that is no JSON object, and Unreadable for odd Unicode."""
    return ParsedBody(body, parse_members(body))


@dataclass(frozen=True, slots=True)
class BodyChanges:
    """The changes of a body whose messages have been read. ``members`` are top-level members with their new values;
    None leaves a member out. ``messages`` are all messages that are sent, in their order; those that are sent as they
    came are the same objects as in ``came``. None: the client's messages are sent in the client's order, and
    ``changed`` are those that are written anew, by their index."""

    parsed: ParsedBody
    members: Mapping[str, bytes | None]
    changed: Mapping[int, bytes] = field(default_factory=dict)
    messages: Sequence[bytes] | None = None

    @property
    def came(self) -> Sequence[Message]:
        """The messages as the client sent them."""
        assert self.parsed.transcript is not None
        return self.parsed.transcript.messages

    def body(self) -> bytes:
        """The body with these changes. Everything else stays as the client sent it."""
        if self.messages is not None:
            return self.parsed.edited({**self.members, "messages": array_of(self.messages)})
        raws = [message.raw for message in self.came] if self.changed else ()
        return self.parsed.rewritten(self.members, raws, self.changed)


_OWN_NAMES = ("model", "stream", "stream_options", "user")
HEAD_NAMES = (*_OWN_NAMES, *MEMBERS)
"""The members that decide where a request goes and what it may cost."""
NO_UTF8 = "invalid_encoding"
TOO_DEEP = "too_deep"
_MOST_BYTES = 16 << 10
UTF8_MARK = b"\xef\xbb\xbf"
# Blanks, the zero bytes of wider characters, and either byte order mark.
_BEFORE_AN_OBJECT = b"\x00 \t\r\n\xff\xfe"

_FEW = msgspec.json.Decoder(msgspec.defstruct("Few", [(name, Raw, _NULL) for name in HEAD_NAMES]))


@dataclass(frozen=True, slots=True)
class RequestFields:
    """The head of a ``body``. ``parsed`` is None if the body is valid JSON that the proxy cannot parse into members.
    ``members`` are its members by name even so, as far as they are known for sure (``proxy.protocol.access``).
    ``asked`` are the members that say what the request may cost (``proxy.protocol.request.demand``); None if they were
    not read. ``user`` is the end user that the client names in the request."""

    model: str
    body: bytes = b""
    stream: bool = False
    wants_usage: bool = False
    parsed: ParsedBody | None = None
    members: Mapping[str, Raw | bytes] | None = None
    asked: Mapping[str, Raw | bytes] | None = None
    user: str = ""

    def edited(self, changes: Mapping[str, bytes | None]) -> bytes:
        """The body with these members in place of its own. In a body that was not parsed into members, only the model
        is changed."""
        if self.parsed is not None:
            return self.parsed.edited(changes)
        model, body = changes.get("model"), self.body
        scanned = scan_members(body) if model is not None else None
        own = [member for member in scanned or () if member.name == "model"]
        if model is None or len(own) != 1:
            return body
        return body[: own[0].at] + model + body[own[0].at + len(own[0].value) :]


def head_of(body: bytes, parse: Callable[[bytes], ParsedBody] = parse_body) -> RequestFields:
    """Read the head of a JSON request. Raises InvalidRequest if the body is no JSON object. If other parsers may accept
    the body and only the proxy cannot, the ``code`` of the error is NO_UTF8 or TOO_DEEP."""
    parsed: ParsedBody | None = None
    found: Mapping[str, object]
    asked: Mapping[str, Raw | bytes]
    try:
        read = parse(body)
        members = read.members
        found = {name: _small(name, members[name]) for name in _OWN_NAMES if name in members}
        parsed, asked = read, {name: members[name] for name in MEMBERS if name in members}
    except Unreadable:
        _check_encoding(body)
        found, asked = _slow(body)
    except InvalidRequest:
        _check_encoding(body)
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            try:
                _FEW.decode(body)
            except RecursionError as error:
                raise InvalidRequest("the body is JSON that is nested too deeply", code=TOO_DEEP) from error
        raise
    options, model, user = found.get("stream_options"), found.get("model"), found.get("user")
    # Half of a character (a lone surrogate) cannot be sent on.
    if not isinstance(model, str) or (not model.isascii() and any("\ud800" <= c <= "\udfff" for c in model)):
        model = ""
    if parsed is not None:
        parsed.model = model
    return RequestFields(
        model,
        body,
        found.get("stream") is True,
        isinstance(options, dict) and options.get("include_usage") is True,
        parsed,
        parsed.members if parsed is not None else None,
        asked,
        user if isinstance(user, str) else "",
    )


def untouched(head: RequestFields, model: str, *, asks_usage: bool = True) -> bytes:
    """The request with only those edits that every mode makes. They are made from the head alone: the messages stay
    unread."""
    if head.parsed is None:
        return head.edited({"model": orjson.dumps(model)} if head.model and model != head.model else {})
    return head.parsed.edited(head.parsed.edits(model, asks_usage=asks_usage))


def _check_encoding(body: bytes) -> None:
    """Raises InvalidRequest for JSON in UTF-16 or UTF-32. Python's own JSON reads them, and so do servers, but the
    proxy cannot edit such bytes. Other bytes (a film begins with zeros) are no JSON for any parser."""
    encoding = json.detect_encoding(body)
    if not encoding.startswith("utf-8") and body.lstrip(_BEFORE_AN_OBJECT).startswith(b"{"):
        message = (
            f"the body is not UTF-8 but looks like {encoding.upper()}; JSON is sent as UTF-8 (RFC 8259 section 8.1)"
        )
        raise InvalidRequest(message, code=NO_UTF8)


def _slow(body: bytes) -> tuple[Mapping[str, object], Mapping[str, Raw | bytes]]:
    """The same members, read from a body that is not parsed into members. All other members are skipped and not
    decoded."""
    found = read_or_mended(_FEW.decode, body)
    if found is not None:
        own: dict[str, object] = {}
        for name in _OWN_NAMES:
            with suppress(Unreadable):
                own[name] = _small(name, getattr(found, name))
        return own, {name: getattr(found, name) for name in MEMBERS if getattr(found, name) is not _NULL}
    try:
        # Python's own JSON has NaN, too. Large bodies were refused before.
        parsed = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest("the body is not a JSON object", code="invalid_json") from error
    if not isinstance(parsed, dict):
        return {}, {}
    return parsed, {name: json.dumps(parsed[name]).encode() for name in MEMBERS if name in parsed}


def _small(name: str, raw: Raw) -> object:
    """A member of the head, which is a name, a number or a few options. Raises InvalidRequest, Unreadable."""
    if len(raw) > _MOST_BYTES:
        raise InvalidRequest(f"'{name}' is longer than {_MOST_BYTES} bytes; shorten it", param=name)
    return value(raw)


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


@dataclass(frozen=True, slots=True)
class Inset:
    """Texts of the operator around the client's own text in one user message; "" adds nothing. There is a blank line
    between each of them and the client's text."""

    before: str = ""
    after: str = ""

    def __bool__(self) -> bool:
        return bool(self.before or self.after)

    def followed_by(self, text: str) -> "Inset":
        """The same with a further text at the very end."""
        return Inset(self.before, "\n\n".join(part for part in (self.after, text) if part))


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


def parts_of(members: Members) -> Iterator[tuple[str, str | None]]:
    """The parts of a message's content as pairs of a type and a text, which is None if the part has no text. A content
    that is a string is one text. Any other content that is not a list has no parts. Raises Unreadable."""
    raw = members.get("content", b"")
    first = bytes(memoryview(raw)[:1])
    if first == b'"':
        yield "text", string_of(raw)
    for each in elements(raw) if first == b"[" else ():
        part = members_of(each)
        kind = string_of(part.get("type", b"")) or ""
        yield kind, string_of(part.get("refusal" if kind == "refusal" else "text", b""))


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
