"""One incoming message: its parts as a provider's cache counts them, read once per distinct message."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import orjson
from msgspec import Raw

from proxy.core.caches.prompt import Life
from proxy.core.digest import digest
from proxy.core.lru import Bounded
from proxy.core.recognition.pieces import Cut, MessageKind, PieceKind, Recogniser, Recognition, recognise_text
from proxy.core.recognition.text_blocks import closes_fences
from proxy.core.request.tokens import IMAGE_TOKENS, MESSAGE_OVERHEAD_TOKENS, TokenCounter
from proxy.core.wire.json_body import Members, Unreadable, elements, members_of, text_value, value
from proxy.core.wire.long_text import PIECE_BYTES, string_text, utf8
from proxy.core.wire.surrogates import raw_text

SYSTEM_ROLES = frozenset({"system", "developer"})


class PartKind(StrEnum):
    """What a part of a message is."""

    TEXT = "text"
    MEDIA = "media"
    THINKING = "thinking"
    CALL = "call"
    RESULT = "result"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Part:
    """One position of a provider's cache. ``digest`` covers role and content, never a marker.

    ``index`` is the place in the content list, -1 for string content, and for a tool call its place among the calls.
    ``own_mark`` is the client's marker where the provider would honour it.
    """

    kind: PartKind
    digest: bytes
    tokens: int
    index: int
    markable: bool
    own_mark: Life | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """A message and what is known of it. ``raw`` is the client's own JSON; ``digest`` covers it without markers.

    ``text`` is kept only where ``recognition`` needs it again; ``lead`` is the text's beginning. ``cut_digests``
    are the digests of the recognised pieces. ``memo`` keeps what others derive from the message.
    """

    raw: bytes
    role: str
    digest: bytes
    parts: tuple[Part, ...]
    tokens: int
    is_list: bool
    has_marks: bool
    call_ids: tuple[str, ...]
    answers: str | None
    lead: str
    text: str | None
    recognition: Recognition | None
    cut_digests: tuple[bytes, ...] = ()
    memo: dict[object, object] = field(default_factory=dict, compare=False, repr=False)


LEAD_CHARS = 200
_PLAIN = re.compile(rb'\{\s*"role"\s*:\s*"([a-z]+)"\s*,\s*"content"\s*:\s*"')
# What a remembered message takes besides its JSON, and each of its parts; where its text is kept, that comes on top.
_FRAME_BYTES = 900
_PART_BYTES = 280


def weight_of(message: Message) -> int:
    """About what a message takes in memory."""
    raw = len(message.raw)
    return _FRAME_BYTES + _PART_BYTES * len(message.parts) + (raw if message.text is None else 2 * raw)


# Comparing bytes is far cheaper than hashing them all: a message is looked up by its length and its two ends, then
# compared. Where two messages share a key the newer one is remembered.
_Key = tuple[int, bytes, bytes]


def _key(content: bytes) -> _Key:
    return len(content), content[:96], content[-96:]


_Content = tuple[tuple[Part, ...], str | None, Recognition | None, tuple[bytes, ...], bool]


class MessageReader:
    """Reads raw messages, remembering what it read by digest, least recently used out first.

    Memory is bounded by ``capacity_bytes``. What ``base`` knows is taken from there; it is read, never written.
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
        self._capacity = capacity_bytes
        self._known: Bounded[_Key, Message] = Bounded(capacity_bytes, weight_of)
        self._base = base

    def read(self, raw: Raw) -> Message:
        """The message. Raises Unreadable where it is not the shape of a chat message."""
        content = bytes(raw)
        key = _key(content)
        known = self._known.get(key)
        if known is not None and known.raw == content:
            self._known.move_to_end(key)
            return known
        before = self._base._known.get(key) if self._base is not None else None
        message = before if before is not None and before.raw == content else self._parse(content)
        self._known.put(key, message)
        return message

    def unread(self, raws: Sequence[Raw]) -> list[Raw]:
        """Those of the messages that were not read before."""
        return [raw for raw in raws if not self._is_known(bytes(raw))]

    def _is_known(self, content: bytes) -> bool:
        known = self._known.get(_key(content))
        return known is not None and known.raw == content

    def fork(self) -> "MessageReader":
        """A reader for another thread: it reads what this one has not; ``merge`` brings the result back."""
        counter = self._counter.fork()
        return MessageReader(counter, self._recognisers, capacity_bytes=self._capacity, base=self)

    def merge(self, other: "MessageReader") -> None:
        """Take over what another reader has read."""
        self._counter.merge(other._counter)
        for key, message in other._known.items():
            self._known.put(key, message)

    def _parse(self, raw: bytes) -> Message:
        plain = _plain(raw)
        members: Members = {} if plain is not None else members_of(raw)
        role = plain[0] if plain is not None else value(members["role"]) if "role" in members else None
        if not isinstance(role, str):
            raise Unreadable("a message without a role")
        if plain is not None:
            parts, text, recognition, cuts, is_list = self._text(role, plain[1], None)
        else:
            parts, text, recognition, cuts, is_list = self._content(role, members)
        calls, call_ids = self._calls(members)
        answers = text_value(members["tool_call_id"]) if "tool_call_id" in members else None
        body = [role.encode(), *(p.digest for p in parts), *(c.digest for c in calls)]
        rest = [k.encode() + bytes(v) for k, v in members.items() if k not in _HASHED_ELSEWHERE]
        body += rest
        positions = _with_rest((*parts, *calls), members) if rest else (*parts, *calls)
        return Message(
            raw=raw,
            role=role,
            digest=digest(*body),
            parts=positions,
            tokens=sum(p.tokens for p in positions),
            is_list=is_list,
            has_marks=plain is None and (b'"cache_control"' in raw or b'"prompt_cache_breakpoint"' in raw),
            call_ids=call_ids,
            answers=answers if isinstance(answers, str) else None,
            lead=(text or "")[:LEAD_CHARS],
            text=text if recognition is not None else None,
            recognition=recognition,
            cut_digests=cuts,
        )

    def _text(self, role: str, text: str, mark: Life | None, index: int = -1) -> _Content:
        """Content that is one text: a string, or the list's part of this ``index``."""
        known = recognise_text(self._recognisers, role, text)
        cuts = _cut_digests(text, known)
        return (self._text_part(role, text, index, mark, known, cuts),), text, known, cuts, index >= 0

    def _content(self, role: str, members: Members) -> _Content:
        """Parts; the text where the content is one text, what it was recognised as, and the digests of its pieces;
        whether it is a list."""
        content = members.get("content")
        level_mark = marker_of(members)
        if content is None or bytes(content) == b"null":
            return (), None, None, (), False
        first = bytes(memoryview(content)[:1])
        if first == b'"':
            text = text_value(content)
            if not isinstance(text, str):
                raise Unreadable("content is not text")
            return self._text(role, text, level_mark)
        if first != b"[":
            raise Unreadable("content is neither text nor a list")
        raw_parts = elements(content)
        if role == "tool":
            return (self._result_part(raw_parts, level_mark),), None, None, (), True
        if len(raw_parts) == 1 and (text := _only_text(raw_parts[0])) is not None:
            return self._text(role, text, marker_of(members_of(raw_parts[0])), 0)
        parts = tuple(self._list_part(role, raw, index) for index, raw in enumerate(raw_parts))
        if role in SYSTEM_ROLES and (known := self._texts(role, raw_parts)) is not None:
            return parts, *known, True
        return parts, None, None, (), True

    def _texts(self, role: str, raw_parts: Sequence[Raw]) -> tuple[str, Recognition, tuple[bytes, ...]] | None:
        """A system message of several texts in which something tells the time: all of it, cut where its parts end, too.
        None for any other: documents are looked for in a single text only."""
        found = [_only_text(raw) for raw in raw_parts]
        texts = [text for text in found if text is not None]
        if len(texts) < len(found):
            return None
        cuts: list[Cut] = []
        start = 0
        is_clear = True
        for number, text in enumerate(texts, 1):
            # Behind a fence that another part closes nobody who reads one part can tell code from text.
            is_clear = is_clear and (number == len(texts) or closes_fences(text))
            known = recognise_text(self._recognisers, role, text) if is_clear else None
            own = known.cuts if known is not None else ()
            fixed = "".join(text[c.start : c.end] for c in own if c.kind is not PieceKind.VOLATILE)
            if not own or not fixed.strip():
                # A part of which only blank space would stay goes as a whole.
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
        return joined, system, tuple(piece_digest(joined[c.start : c.end]) for c in cuts)

    def _text_part(
        self,
        role: str,
        text: str,
        index: int,
        mark: Life | None,
        known: Recognition | None = None,
        cuts: tuple[bytes, ...] = (),
    ) -> Part:
        kind = PartKind.RESULT if role == "tool" else PartKind.TEXT
        # A recognised text is known by its pieces: each is hashed and counted once, however often the rest changes.
        key = digest(role.encode(), b"cuts", *cuts) if cuts else text_digest(role, text)
        return Part(
            kind=kind,
            digest=key,
            tokens=self._count(key, cuts, text, known) + (MESSAGE_OVERHEAD_TOKENS if index <= 0 else 0),
            index=index,
            markable=role != "assistant" and bool(text) and not text.isspace(),
            own_mark=mark,
        )

    def _result_part(self, parts: list[Raw], mark: Life | None) -> Part:
        """A tool result is one position, however many parts it has; a single text is the same as a string."""
        texts = [_only_text(part) for part in parts]
        if len(parts) == 1 and texts[0] is not None:
            return self._text_part("tool", texts[0], -1, mark)
        keys = [
            piece_digest(text) if text is not None else digest(b"raw", _unmarked(raw))
            for text, raw in zip(texts, parts, strict=True)
        ]
        shown: list[str] = [
            text if text is not None else raw_text(bytes(raw)) for text, raw in zip(texts, parts, strict=True)
        ]
        tokens = sum(self._counter.count(key, text) for key, text in zip(keys, shown, strict=True))
        # A marker may have to stand on the last part, where a provider takes none on the message.
        markable = bool(parts) and self._list_part("tool", parts[-1], 0).markable
        return Part(PartKind.RESULT, digest(b"tool", *keys), tokens + MESSAGE_OVERHEAD_TOKENS, -1, markable, mark)

    def _count(self, key: bytes, cuts: tuple[bytes, ...], text: str, known: Recognition | None) -> int:
        if known is None or not cuts:
            return self._counter.count(key, text)
        return sum(self._counter.count(own, text[c.start : c.end]) for own, c in zip(cuts, known.cuts, strict=True))

    def _list_part(self, role: str, raw: Raw, index: int) -> Part:
        members = members_of(raw)
        kind = value(members["type"]) if "type" in members else None
        kind = kind if isinstance(kind, str) else None
        if kind == "text" and (text := _only_text(raw)) is not None:
            return self._text_part(role, text, index, marker_of(members))
        overhead = MESSAGE_OVERHEAD_TOKENS if index == 0 else 0
        key = digest(role.encode(), *(k.encode() + bytes(v) for k, v in members.items() if k not in MARK_KEYS))
        if kind in _MEDIA:
            markable = role != "assistant" and kind in _MARKABLE_MEDIA
            return Part(PartKind.MEDIA, key, IMAGE_TOKENS + overhead, index, markable, marker_of(members))
        tokens = self._counter.count(key, raw_text(bytes(raw))) + overhead
        if kind == "text":
            shown = text_value(members["text"]) if "text" in members else None
            markable = role != "assistant" and isinstance(shown, str) and bool(shown.strip())
            return Part(PartKind.TEXT, key, tokens, index, markable, marker_of(members))
        part_kind = PartKind.THINKING if kind in THINKING_TYPES else PartKind.OTHER
        return Part(part_kind, key, tokens, index, False, marker_of(members))

    def _calls(self, members: Members) -> tuple[tuple[Part, ...], tuple[str, ...]]:
        raw_calls = members.get("tool_calls")
        if raw_calls is None or bytes(raw_calls) == b"null":
            return (), ()
        parts: list[Part] = []
        ids: list[str] = []
        for index, raw in enumerate(elements(raw_calls)):
            call = members_of(raw)
            key = digest(b"call", *(k.encode() + bytes(v) for k, v in call.items() if k not in MARK_KEYS))
            tokens = self._counter.count(key, raw_text(bytes(raw)))
            parts.append(Part(PartKind.CALL, key, tokens, index, False, marker_of(call)))
            call_id = text_value(call["id"]) if "id" in call else None
            ids.append(call_id if isinstance(call_id, str) else "")
        return tuple(parts), tuple(ids)


def _plain(raw: bytes) -> tuple[str, str] | None:
    """Role and text of a message that is these two and nothing else, read in one go; None for any other."""
    begin = _PLAIN.match(raw)
    if begin is None:
        return None
    if len(raw) > PIECE_BYTES:
        return _plain_long(raw, begin)
    try:
        found = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    if len(found) != 2 or not isinstance(found.get("content"), str) or not isinstance(found.get("role"), str):
        return None
    return found["role"], found["content"]


def _plain_long(raw: bytes, begin: re.Match[bytes]) -> tuple[str, str] | None:
    if not raw.endswith(b'"}'):
        return None
    try:
        return begin[1].decode(), string_text(raw, begin.end(), len(raw) - len(b'"}'))
    except (ValueError, RecursionError):
        return None


def text_digest(role: str, text: str) -> bytes:
    """The digest of a text position, however its message is written (string or list of parts)."""
    return digest(role.encode(), b"text", utf8(text))


def _cut_digests(text: str | None, known: Recognition | None) -> tuple[bytes, ...]:
    """Digests of the pieces; empty where the text is one piece, or a turn: its identity is that of its whole text."""
    if text is None or known is None or known.form is MessageKind.PROMPT:
        return ()
    return tuple(piece_digest(text[c.start : c.end]) for c in known.cuts)


def piece_digest(text: str) -> bytes:
    """The digest under which a piece's tokens are remembered."""
    return digest(b"piece", utf8(text))


_MEDIA = frozenset({"image_url", "image", "input_audio", "file", "document", "input_image", "input_file"})
# Anthropic, "Prompt caching": text, images and documents in user turns can be marked.
_MARKABLE_MEDIA = frozenset({"image_url", "file"})
THINKING_TYPES = frozenset({"thinking", "redacted_thinking", "reasoning"})
"""The types of parts in which stands what a model thought."""
MARK_KEYS = ("cache_control", "prompt_cache_breakpoint")
PLAIN_TEXT_KEYS = frozenset({"type", "text", *MARK_KEYS})
_HASHED_ELSEWHERE = frozenset({"role", "content", "tool_calls", *MARK_KEYS})


def _with_rest(positions: tuple[Part, ...], members: Members) -> tuple[Part, ...]:
    """A provider renders a message's name, thinking and tool_call_id, too: its first position is another with them.
    Members without a value are as good as none (SDKs write ``"refusal": null`` into what they send back)."""
    said = [
        k.encode() + bytes(v) for k, v in members.items() if k not in _HASHED_ELSEWHERE and bytes(v) not in _NOTHING
    ]
    if not said or not positions:
        return positions
    return (replace(positions[0], digest=digest(positions[0].digest, *said)), *positions[1:])


def beside(message: Message, first: Part) -> Part:
    """The first position of a message that is written with another text, and all that it says besides."""
    return _with_rest((first,), members_of(message.raw))[0]


_NOTHING = (b"null", b"[]", b'""')


def _unmarked(raw: Raw) -> bytes:
    members = members_of(raw)
    return b",".join(k.encode() + bytes(v) for k, v in members.items() if k not in MARK_KEYS)


def _only_text(raw: Raw) -> str | None:
    """The text of a part that is text and nothing else but a marker; what carries more keys is never taken apart."""
    members = members_of(raw)
    is_text = "text" in members and "type" in members and value(members["type"]) == "text"
    if not is_text or not members.keys() <= PLAIN_TEXT_KEYS:
        return None
    text = text_value(members["text"])
    if not isinstance(text, str):
        raise Unreadable("a text part without text")
    return text


def marker_of(members: Members) -> Life | None:
    """The marker that stands in an object, in either dialect."""
    raw = members.get("cache_control") or members.get("prompt_cache_breakpoint")
    if raw is None:
        return None
    control = value(raw)
    if not isinstance(control, dict):
        return None
    return "1h" if control.get("ttl") == "1h" else "5m"
