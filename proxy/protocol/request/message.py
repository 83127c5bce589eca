"""One incoming message, with its parts as a provider's cache counts them. Each distinct message is read once."""

import re
from collections.abc import Callable, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar, TypeVarTuple, cast

import orjson
from msgspec import Raw, Struct, field
from msgspec.structs import replace

from proxy.kit.lru import Bounded
from proxy.kit.value import digest
from proxy.protocol.caches import Life
from proxy.protocol.recognition import Cut, MessageKind, PieceKind, Recogniser, Recognition, recognise_text
from proxy.protocol.recognition.lines import closes_fences
from proxy.protocol.request.tokens import IMAGE_TOKENS, MESSAGE_OVERHEAD_TOKENS, THOUGHTS, TokenCounter, read_as_text
from proxy.protocol.wire.json_body import (
    PIECE_BYTES,
    Members,
    Unreadable,
    dumps,
    elements,
    members_of,
    raw_text,
    string_text,
    text_json,
    text_value,
    utf8,
    value,
)

SYSTEM_ROLES = frozenset({"system", "developer"})
RESULT_ROLES = frozenset({"tool", "function"})
"""The roles of results of calls. ``function`` is the role that OpenAI's API had first: its content is never a list."""
ANSWER_ROLES = RESULT_ROLES | {"assistant"}
"""The roles of messages that stand directly behind what they answer."""
_MARKED_ROLES = frozenset({*SYSTEM_ROLES, "user", "assistant", "tool"})


class PartKind(StrEnum):
    """The kinds of parts that a message has."""

    TEXT = "text"
    MEDIA = "media"
    THINKING = "thinking"
    CALL = "call"
    RESULT = "result"
    OTHER = "other"


class Part(Struct, frozen=True, gc=False):
    """One position of a provider's cache. ``digest`` covers role and content, never a marker.

    ``index`` is the place in the content list, or -1 for string content; for a tool call it is the place among the
    calls. ``own_mark`` is the client's marker, if the provider would honour it.
    """

    kind: PartKind
    digest: bytes
    tokens: int
    index: int
    markable: bool
    own_mark: Life | None = None


_NO_PART = Part(PartKind.OTHER, b"", 0, -1, markable=False)
_Derived = TypeVar("_Derived")
_Given = TypeVarTuple("_Given")
# Regions of a text, and places of a message, may change with each request.
_MOST_DERIVED = 16


class Message(Struct, frozen=True):
    """A message and what is known about it. ``raw`` is the client's own JSON; ``digest`` covers it without markers.
    ``turn`` is its identity as a turn, to which a reminder behind a user's prompt does not belong, and ``fixed`` its
    identity as an instruction, to which volatile lines and documents do not belong.

    ``call_ids`` are the ids of its calls, and ``answers`` those of the calls whose results it holds. ``has_results``:
    it answers calls of a message in front of it. ``is_answer``: it stands directly behind what it answers.
    ``is_asked``: a turn begins with it, because it is a user's message, and not one into which a client writes results.
    ``text`` is kept only if ``recognition`` needs it again; ``lead`` is the text's beginning. ``cut_digests`` are the
    digests of the recognised pieces. ``is_signed``: the message holds signed or encrypted thinking, which a model may
    bind to everything in front of it. ``is_plain``: the message is a role and a text and nothing else. ``media`` counts
    its images, sounds and files. ``memo`` keeps values that other modules derive from the message.
    """

    raw: bytes
    role: str
    digest: bytes
    turn: bytes
    fixed: bytes
    parts: tuple[Part, ...]
    tokens: int
    is_list: bool
    has_marks: bool
    call_ids: tuple[str, ...]
    answers: tuple[str, ...]
    has_results: bool
    is_answer: bool
    is_asked: bool
    lead: str
    text: str | None
    recognition: Recognition | None
    cut_digests: tuple[bytes, ...] = ()
    is_signed: bool = False
    is_plain: bool = False
    media: int = 0
    memo: dict[object, object] = field(default_factory=dict)

    def derived(self, make: Callable[["Message", *_Given], _Derived], *given: *_Given) -> _Derived:
        """What a function makes of the message and of the other values that are ``given``. It is made once."""
        key = (make, *given)
        if key not in self.memo:
            if len(self.memo) >= _MOST_DERIVED:
                self.memo.clear()
            self.memo[key] = make(self, *given)
        return cast(_Derived, self.memo[key])

    def has(self, sign: Callable[[bytes], bool]) -> bool:
        """Whether its JSON has a sign, which is looked for once. All messages are asked for each request."""
        found = self.memo.get(sign)
        if found is None:
            found = self.memo[sign] = sign(self.raw)
        return found is True


def message_json(role: str, text: str) -> bytes:
    """The JSON of a message that is a role and a text."""
    return b'{"role":' + text_json(role) + b',"content":' + text_json(text) + b"}"


def text_part(text: str) -> bytes:
    """The JSON of a text in a list of parts."""
    return b'{"type":"text","text":' + text_json(text) + b"}"


LEAD_CHARS = 200
_PLAIN = re.compile(rb'\{\s*"role"\s*:\s*"([a-z]+)"\s*,\s*"content"\s*:\s*"')
# The memory that a remembered message takes besides its JSON, and the memory of each of its parts. If its text is kept,
# the text adds to that.
_FRAME_BYTES = 900
_PART_BYTES = 280


def _message_bytes(kept: tuple[bytes, Message]) -> int:
    """About how many bytes of memory a remembered message takes."""
    raw, message = len(kept[0]), kept[1]
    return _FRAME_BYTES + _PART_BYTES * len(message.parts) + (raw if message.text is None else 2 * raw)


_C = TypeVar("_C", bytes, str)
_V = TypeVar("_V")
_END = 96


class ByContent(Generic[_C, _V]):
    """Values that are made of contents (``make``), each once. Comparing contents is far cheaper than hashing all of
    them. So a content is looked up by its length and its two ends, and then compared. If two contents share a key, the
    newer one is remembered. ``weigh`` tells how many bytes a content and its value take. Values that ``base`` has are
    taken from ``base``, which is read but never written."""

    def __init__(
        self,
        make: Callable[[_C], _V],
        capacity_bytes: int,
        weigh: Callable[[tuple[_C, _V]], int],
        base: "ByContent[_C, _V] | None" = None,
    ) -> None:
        self._make: Callable[[_C], _V] = make
        self._known: Bounded[tuple[int, _C, _C], tuple[_C, _V]] = Bounded(capacity_bytes, weigh)
        self._base: ByContent[_C, _V] | None = base

    def of(self, content: _C) -> _V:
        """The value for this content. The least recently used values make room for a new one."""
        key = len(content), content[:_END], content[-_END:]
        known = self._known.get(key)
        if known is not None and known[0] == content:
            self._known.move_to_end(key)
            return known[1]
        found = self._base.known(content) if self._base is not None else None
        value = self._make(content) if found is None else found
        self._known.put(key, (content, value))
        return value

    def known(self, content: _C) -> _V | None:
        """The value for this content; None if it is not known. This does not count as a use."""
        known = self._known.get((len(content), content[:_END], content[-_END:]))
        return known[1] if known is not None and known[0] == content else None

    def merge(self, other: "ByContent[_C, _V]") -> None:
        """Remember what another one remembers."""
        for key, kept in other._known.items():
            self._known.put(key, kept)


class _Content(NamedTuple):
    """The content of a message: its parts, and how many images, sounds and files they have. If all of it is one text,
    also that text, its recognition, and the digests of its pieces."""

    parts: tuple[Part, ...]
    is_list: bool
    media: int = 0
    text: str | None = None
    recognition: Recognition | None = None
    cuts: tuple[bytes, ...] = ()


class _ListPart(NamedTuple):
    """A part of a list. ``text`` is its text, if the part has no other keys than those of a text and a marker. A part
    with more keys is never taken apart; ``read`` and ``media`` are what ``read_as_text`` finds in it."""

    raw: Raw
    members: Members
    text: str | None
    read: bytes = b""
    media: int = 0


_NO_MEMBERS: Members = MappingProxyType({})
_NULL = Raw(b"null")


class MessageReader:
    """Reads raw messages and remembers them. The least recently used ones are dropped first.

    Memory is bounded by ``capacity_bytes``. Messages that ``base`` knows are taken from ``base``, which is read but
    never written.
    """

    def __init__(
        self,
        counter: TokenCounter,
        recognisers: Sequence[Recogniser],
        *,
        capacity_bytes: int = 128 * 2**20,
        base: "MessageReader | None" = None,
    ) -> None:
        self._counter = counter
        self._recognisers = tuple(sorted(recognisers, key=lambda r: (r.priority, r.name)))
        self._known: ByContent[bytes, Message] = ByContent(
            self._parse, capacity_bytes, _message_bytes, base._known if base else None
        )
        self._pieces: ByContent[str, bytes] = ByContent(
            piece_digest, capacity_bytes // 4, lambda kept: _PART_BYTES + len(kept[0]), base._pieces if base else None
        )

    def read(self, raw: Raw) -> Message:
        """The message. Raises Unreadable if it does not have the shape of a chat message."""
        return self._known.of(bytes(raw))

    def unread(self, raws: Sequence[Raw]) -> list[Raw]:
        """Those of the messages that were not read before."""
        return [raw for raw in raws if self._known.known(bytes(raw)) is None]

    def merge(self, other: "MessageReader") -> None:
        """Remember what a reader remembers whose ``base`` is this one."""
        self._known.merge(other._known)
        self._pieces.merge(other._pieces)

    def _parse(self, raw: bytes) -> Message:
        """The message. ``members`` are empty here for a message that is a role and a text and nothing else."""
        members, calls, call_ids = _NO_MEMBERS, tuple[Part, ...](), tuple[str, ...]()
        if (plain := _plain(raw)) is not None:
            role, text = plain
            content = self._text(role, text, None)
        else:
            members = members_of(raw)
            said = value(members["role"]) if "role" in members else None
            if not isinstance(said, str):
                raise Unreadable("a message without a role")
            role, content = said, self._content(said, members)
            calls, call_ids = self._calls(members)
        # Clients write an answer that only calls tools with an empty text, with null, or without content.
        positions = (*(() if calls and content.text == "" else content.parts), *calls)
        if role not in _MARKED_ROLES:
            positions = tuple([replace(part, markable=False) for part in positions])
        rest = _rest(members) if members else []
        own = turn = fixed = digest(role.encode(), *[p.digest for p in positions], *rest)
        if content.text is not None and content.recognition is not None:
            turn, fixed = _identities(role, own, content.text, content.recognition)
        if rest:
            first = next(iter(positions), _NO_PART)
            positions = (_with_rest(first, rest, self._counter.beside(members)), *positions[1:])
        answers = answered_calls(raw, members) if members else ()
        has_results = role in RESULT_ROLES or bool(answers)
        return Message(
            raw=raw,
            role=role,
            digest=own,
            turn=turn,
            fixed=fixed,
            parts=positions,
            tokens=sum([p.tokens for p in positions]),
            is_list=content.is_list,
            has_marks=bool(members) and (b'"cache_control"' in raw or b'"prompt_cache_breakpoint"' in raw),
            call_ids=(*call_ids, *_ids_of_parts(raw, members, "tool_use", "id")) if members else (),
            answers=answers,
            has_results=has_results,
            is_answer=has_results or role == "assistant",
            is_asked=role == "user" and not answers,
            lead=(content.text or "")[:LEAD_CHARS],
            text=content.text if content.recognition is not None else None,
            recognition=content.recognition,
            cut_digests=content.cuts,
            is_signed=role == "assistant" and bool(members) and may_be_signed(raw),
            is_plain=not members or _is_plain(content, members),
            media=content.media,
        )

    def _text(self, role: str, text: str, mark: Life | None, index: int = -1) -> _Content:
        """Content that is one text: a string, or the part of a list with this ``index``."""
        known, cuts, counted = recognise_text(self._recognisers, role, text), tuple[bytes, ...](), None
        if known is not None and known.cuts and known.form is not MessageKind.PROMPT:
            # The text is identified by its pieces. Most pieces are files, of which a request changes one: the others
            # are neither hashed nor counted again. (A turn is identified by its whole text.)
            pieces = [text[c.start : c.end] for c in known.cuts]
            cuts = tuple([self._pieces.of(piece) for piece in pieces])
            counted = digest(role.encode(), b"cuts", *cuts), sum(map(self._counter.count, cuts, pieces))
        return _Content((self._text_part(role, text, index, mark, counted),), index >= 0, 0, text, known, cuts)

    def _content(self, role: str, members: Members) -> _Content:
        content, mark = members.get("content", _NULL), marker_of(members)
        first = bytes(memoryview(content)[:1])  # not copied: it may be long
        if first == b"n":
            return _Content((), is_list=False)
        if first == b'"':
            text = text_value(content)
            if not isinstance(text, str):
                raise Unreadable("content is not text")
            return self._text(role, text, mark)
        if first != b"[":
            raise Unreadable("content is neither text nor a list")
        listed = [_list_part(raw) for raw in elements(content)]
        media = sum([each.media for each in listed])
        if role == "tool":
            return _Content((self._result_part(listed, mark),), True, media)
        if len(listed) == 1 and listed[0].text is not None:
            return self._text(role, listed[0].text, marker_of(listed[0].members), 0)
        parts = tuple(self._part(role, each, index) for index, each in enumerate(listed))
        return self._texts(role, listed, parts) or _Content(parts, True, media)

    def _texts(self, role: str, listed: Sequence[_ListPart], parts: tuple[Part, ...]) -> _Content | None:
        """The whole content of a system message that has several texts and volatile lines, also cut at the ends of its
        parts. None for any other message: documents are looked for in a single text only."""
        texts = [each.text for each in listed if each.text is not None]
        if role not in SYSTEM_ROLES or len(texts) < len(listed):
            return None
        cuts: list[Cut] = []
        start = 0
        is_clear = True
        for number, text in enumerate(texts, 1):
            # If another part closes a fence, code and text cannot be told apart behind the fence by reading one part.
            is_clear = is_clear and (number == len(texts) or closes_fences(text))
            known = recognise_text(self._recognisers, role, text) if is_clear else None
            own = known.cuts if known is not None else ()
            fixed = "".join(text[c.start : c.end] for c in own if c.kind is not PieceKind.VOLATILE)
            if not own or not fixed.strip():
                # If only blank space would stay of a part, the whole part is moved.
                own = (Cut("", PieceKind.VOLATILE if own else PieceKind.SECTION, 0, len(text)),)
            for cut in own:
                kind = PieceKind.VOLATILE if cut.kind is PieceKind.VOLATILE else PieceKind.SECTION
                if cut.end > cut.start:
                    cuts.append(Cut(f"{kind}:{start + cut.start}", kind, start + cut.start, start + cut.end))
            start += len(text)
        if all(cut.kind is PieceKind.SECTION for cut in cuts):
            return None
        joined = "".join(texts)
        system = Recognition("system", MessageKind.SYSTEM, tuple(cuts))
        own_digests = tuple([self._pieces.of(joined[c.start : c.end]) for c in cuts])
        return _Content(parts, True, 0, joined, system, own_digests)

    def _text_part(
        self, role: str, text: str, index: int, mark: Life | None, counted: tuple[bytes, int] | None = None
    ) -> Part:
        """The position of a text. ``counted`` are its digest and its tokens, if they are known."""
        if counted is None:
            key = text_digest(role, text)
            counted = key, self._counter.count(key, text)
        return Part(
            kind=PartKind.RESULT if role == "tool" else PartKind.TEXT,
            digest=counted[0],
            tokens=counted[1] + (MESSAGE_OVERHEAD_TOKENS if index <= 0 else 0),
            index=index,
            markable=bool(text) and not text.isspace(),
            own_mark=mark,
        )

    def _result_part(self, listed: Sequence[_ListPart], mark: Life | None) -> Part:
        """A tool result is one position, however many parts it has. A list with a single text gives the same position
        as a string."""
        if len(listed) == 1 and listed[0].text is not None:
            return self._text_part("tool", listed[0].text, -1, mark)
        keys: list[bytes] = []
        tokens = MESSAGE_OVERHEAD_TOKENS
        for each in listed:
            raw = b",".join(sorted(unmarked(each.members)))
            keys.append(digest(b"raw", raw) if each.text is None else piece_digest(each.text))
            tokens += self._tokens(keys[-1], each)
        # If a provider takes no marker on the message, the marker has to stand on the last part.
        markable = bool(listed) and self._part("tool", listed[-1], 0).markable
        return Part(PartKind.RESULT, digest(b"tool", *keys), tokens, -1, markable, mark)

    def _part(self, role: str, part: _ListPart, index: int) -> Part:
        members, mark = part.members, marker_of(part.members)
        if part.text is not None:
            return self._text_part(role, part.text, index, mark)
        kind = _text_of(members, "type")
        overhead = MESSAGE_OVERHEAD_TOKENS if index == 0 else 0
        key = digest(role.encode(), *sorted(unmarked(members)))
        tokens = self._tokens(key, part) + overhead
        if not part.read:
            markable = role != "assistant" and kind in _MARKABLE_MEDIA
            return Part(PartKind.MEDIA, key, tokens, index, markable, mark)
        if kind == "text":
            shown = text_value(members["text"]) if "text" in members else None
            markable = isinstance(shown, str) and bool(shown.strip())
            return Part(PartKind.TEXT, key, tokens, index, markable, mark)
        part_kind = PartKind.THINKING if kind in THOUGHTS else PartKind.OTHER
        return Part(part_kind, key, tokens, index, False, mark)

    def _tokens(self, key: bytes, part: _ListPart) -> int:
        """Tokens of a part. Those of an image do not depend on its bytes."""
        text = raw_text(part.read) if part.text is None else part.text
        return IMAGE_TOKENS * part.media + (self._counter.count(key, text) if text or not part.media else 0)

    def _calls(self, members: Members) -> tuple[tuple[Part, ...], tuple[str, ...]]:
        """The calls of tools that a message makes, and their ids."""
        raw_calls = members.get("tool_calls", _NULL)
        raws = () if bytes(raw_calls) == b"null" else elements(raw_calls)
        calls = [members_of(raw) for raw in raws]
        parts: list[Part] = []
        for index, (raw, call) in enumerate(zip(raws, calls, strict=True)):
            own = call.get("function", _NULL)
            function = members_of(own) if bytes(memoryview(own)[:1]) == b"{" else _NO_MEMBERS
            outer = {name: inner for name, inner in call.items() if name != "function"} if function else call
            key = digest(b"call", *_said(outer), b"function", *_said(function))
            tokens = self._counter.count(key, raw_text(bytes(raw)))
            parts.append(Part(PartKind.CALL, key, tokens, index, False, marker_of(call)))
        return tuple(parts), tuple([_text_of(call, "id") or "" for call in calls])


def _is_plain(content: _Content, members: Members) -> bool:
    """Whether a message that is not written in the usual way is a role and a text and nothing else."""
    is_text = content.text is not None and not content.is_list
    return is_text and list(members) == ["role", "content"] and b"\\" not in bytes(members["role"])


def may_be_signed(body: bytes) -> bool:
    """Whether any message of a body that has not been read may hold signed thinking."""
    return _SEAL.search(body) is not None


def answered_calls(raw: bytes, members: Members) -> tuple[str, ...]:
    """The ids of the calls whose results a message holds. It is the result of one call, or results are parts of its
    content, because some clients write them into a user message. Raises Unreadable."""
    own = _text_of(members, "tool_call_id")
    return (own,) if own is not None else _ids_of_parts(raw, members, "tool_result", "tool_use_id")


def _ids_of_parts(raw: bytes, members: Members, kind: str, name: str) -> tuple[str, ...]:
    """The ids in the parts of this type; "" for a part without one."""
    content = members.get("content")
    if content is None or f'"{kind}"'.encode() not in raw or not bytes(content).startswith(b"["):
        return ()
    parts = [members_of(part) for part in elements(content)]
    return tuple([_text_of(part, name) or "" for part in parts if _text_of(part, "type") == kind])


def _text_of(members: Members, name: str) -> str | None:
    """A member that is a text; None if the member is missing or is no text."""
    found = text_value(members[name]) if name in members else None
    return found if isinstance(found, str) else None


def _plain(raw: bytes) -> tuple[str, str] | None:
    """Role and text of a message that has only these two, read in one step; None for any other message."""
    begin, is_long = _PLAIN.match(raw), len(raw) > PIECE_BYTES
    if begin is None or (is_long and not raw.endswith(b'"}')):
        return None
    try:
        if is_long:
            return begin[1].decode(), string_text(raw, begin.end(), len(raw) - len(b'"}'))
        found = orjson.loads(raw)
    except (ValueError, RecursionError):
        return None
    if len(found) != 2 or not isinstance(found.get("content"), str) or not isinstance(found.get("role"), str):
        return None
    return found["role"], found["content"]


def _identities(role: str, own: bytes, text: str, known: Recognition) -> tuple[bytes, bytes]:
    """The identities of a recognised message with the digest ``own``: as a turn, and as an instruction."""
    if known.form is MessageKind.PROMPT:
        prompt = "".join(text[c.start : c.end] for c in known.cuts if c.kind is PieceKind.PROMPT)
        # This is the form that the message will have in the next request, when it is no longer the newest.
        return digest(role.encode(), text_digest(role, prompt)), own
    return own, sections_digest(text, known.cuts) if known.form is MessageKind.SYSTEM else own


def sections_digest(text: str, cuts: Sequence[Cut]) -> bytes:
    """The digest of a system text without its volatile lines and documents."""
    return digest(b"system", *[utf8(text[c.start : c.end]) for c in cuts if c.kind is PieceKind.SECTION])


def text_digest(role: str, text: str) -> bytes:
    """The digest of a text position, however its message is written (string or list of parts)."""
    return digest(role.encode(), b"text", utf8(text))


def piece_digest(text: str) -> bytes:
    """The digest under which a piece's tokens are remembered."""
    return digest(b"piece", utf8(text))


# Anthropic, "Prompt caching": text, images and documents in user turns can be marked.
_MARKABLE_MEDIA = frozenset({"image_url", "file"})
# It begins with one character of which a text has few, so a long text is searched fast.
_SEAL = re.compile(rb'"(?:(?:signature|encrypted_content)"\s*:\s*"[^"]|(?:redacted_thinking|reasoning\.encrypted)")')
MARK_KEYS = ("cache_control", "prompt_cache_breakpoint")
PLAIN_TEXT_KEYS = frozenset({"type", "text", *MARK_KEYS})
_HASHED_ELSEWHERE = frozenset({"role", "content", "tool_calls", *MARK_KEYS})


def _rest(members: Members) -> list[bytes]:
    """The members of a message that a provider also renders: its name, thinking, tool_call_id. Their order says
    nothing. Members without a value count as missing: SDKs write ``"refusal": null`` into an answer that they send
    back, and a client that has stored the answer may leave it out."""
    return _said({k: v for k, v in members.items() if k not in _HASHED_ELSEWHERE and bytes(v) not in _NOTHING})


def _with_rest(first: Part, rest: Sequence[bytes], tokens: int = 0) -> Part:
    """The first position of a message whose other members change its digest, and have these tokens."""
    return replace(first, digest=digest(first.digest, *rest), tokens=first.tokens + tokens)


def beside(message: Message, first: Part) -> Part:
    """The first position of a message that is written with another text: ``first``, combined with the other members of
    the message."""
    rest = _rest(members_of(message.raw))
    return _with_rest(first, rest) if rest else first


_NOTHING = (b"null", b"[]", b'""')


def named(name: str, raw: Raw | bytes) -> bytes:
    """A member as a digest covers it. No JSON has the separator in it."""
    return name.encode() + b"\0" + bytes(raw)


def unmarked(members: Members) -> list[bytes]:
    """The members without the markers, each with its name."""
    return [named(name, raw) for name, raw in members.items() if name not in MARK_KEYS]


def _said(members: Members) -> list[bytes]:
    """The members without the markers, for a digest that does not depend on how a client writes JSON: on the order of
    the members, on blanks, on escapes."""
    return sorted([named(k, _canonical(v)) for k, v in members.items() if k not in MARK_KEYS])


def _canonical(raw: Raw | bytes) -> bytes:
    """A value without blanks between its tokens and with the usual escapes. The order of members within the value
    stays, since a model reads it: https://platform.claude.com/docs/en/build-with-claude/prompt-caching names changed
    orders of keys within ``input`` as a cause of cache misses. A value that cannot be read here stays as it is."""
    own = bytes(raw)
    if own[:1] not in (b'"', b"{", b"[") or (own[:1] == b'"' and b"\\" not in own):
        return own
    try:
        return dumps(value(own))
    except (Unreadable, RecursionError):
        return own


def _list_part(raw: Raw) -> _ListPart:
    members = members_of(raw)
    is_text = "text" in members and "type" in members and value(members["type"]) == "text"
    is_plain = is_text and members.keys() <= PLAIN_TEXT_KEYS
    text = text_value(members["text"]) if is_plain else None
    if is_plain and not isinstance(text, str):
        raise Unreadable("a text part without text")
    if isinstance(text, str):
        return _ListPart(raw, members, text)
    return _ListPart(raw, members, None, *read_as_text(raw, members))


def marker_of(members: Members) -> Life | None:
    """The marker that stands in an object, in either dialect."""
    raw = members.get("cache_control") or members.get("prompt_cache_breakpoint")
    control = value(raw) if raw is not None else None
    if not isinstance(control, dict):
        return None
    return "1h" if control.get("ttl") == "1h" else "5m"
