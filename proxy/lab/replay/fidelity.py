"""A small independent check that the forwarded request still says what the client said.

It reads the two requests as JSON and shares nothing with the renderer but the documented words. Every text of the
client's messages must be in the sent request exactly once. Turns keep their order and role, and the last exchange stays
last. There are at most so many markers, and tools and parameters are equal. The recognisers say which messages are
context, and may therefore be moved or taken apart.

Each context message must be there once, whole or in parts; if it is in parts, the opening is with the last part
(``Contexts``). Several messages of a client may have the same opening and hold the same files, so they are judged
together. The sent request must have as many openings of each kind as the client sent. Under each claim it must have the
same pieces, each as often as the client sent it.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
import orjson
from msgspec import Raw

from proxy.kit.value import dataclass, field
from proxy.protocol.recognition import (
    CLAIM_HEADERS,
    PART_ACKNOWLEDGEMENT,
    TAG_CLOSE,
    TAG_OPEN,
    MessageKind,
    PieceKind,
    Recogniser,
    recognise_text,
)


@dataclass(frozen=True, slots=True)
class SaidMessage:
    """One message without its markers. ``text`` joins its parts if all of them are plain text; else it is None."""

    role: str
    text: str | None
    parts: tuple[str, ...]
    rest: str

    @property
    def has_results(self) -> bool:
        """Whether it answers calls. Some clients write results into a user message."""
        return self.role in ("tool", "function") or (
            self.text is None and any('"type":"tool_result"' in part for part in self.parts)
        )

    @property
    def is_asked(self) -> bool:
        """Whether it is a user's message without results."""
        return self.role == "user" and not self.has_results

    def same(self, other: "SaidMessage") -> bool:
        """Whether the messages are equal, wherever their text is cut into parts."""
        is_text = self.text is not None and (self.role, self.text, self.rest) == (other.role, other.text, other.rest)
        return is_text or self == other


@dataclass(frozen=True, slots=True)
class FileContext:
    """A context message of the client with its acknowledgement. It may be taken apart into ``pieces``, under
    ``header``."""

    message: SaidMessage
    ack: SaidMessage
    opening: str
    header: str
    pieces: tuple[str, ...]

    @property
    def kind(self) -> tuple[str | None, ...]:
        """Everything that is sent with the last part. It may be the same for several messages."""
        return self.opening, self.header, self.message.rest, self.ack.text, self.ack.rest

    def ends(self, said: SaidMessage) -> bool:
        """Whether ``said`` is the opening of this context message with one of its pieces."""
        text, rest = said.text or "", said.rest
        return text.startswith(self.opening) and text[len(self.opening) :] in self.pieces and self.message.rest == rest


@dataclass(slots=True)
class Contexts:
    """All context messages of a request, and the parts of them that were found: the pieces by their header, and the
    positions of openings and parts."""

    known: Sequence[FileContext]
    _openings: Counter[tuple[str | None, ...]] = field(default_factory=Counter)
    _pieces: Counter[tuple[str, str]] = field(default_factory=Counter)
    _last_opening: dict[tuple[str, str], int] = field(default_factory=dict)
    _last_part: dict[tuple[str, str], int] = field(default_factory=dict)

    def take(self, at: int, said: SaidMessage, following: SaidMessage | None) -> bool:
        """Whether this message and the next one are a context message, or a part of one."""
        if said.role != "user" or said.text is None or following is None:
            return False
        found = [one for one in self.known if one.ack.same(following) and (one.message.same(said) or one.ends(said))]
        if found:
            context = found[0]
            pieces = context.pieces if context.message.same(said) else (said.text.removeprefix(context.opening),)
            self._openings[context.kind] += 1
            self._pieces.update((context.header, piece) for piece in pieces)
            # If it may be the opening of several messages, it counts for each of them.
            self._last_opening.update({(one.header, piece): at for one in found for piece in one.pieces})
            return True
        header = next((words for words in CLAIM_HEADERS.values() if said.text.startswith(words)), None)
        is_acknowledged = following.role == "assistant" and following.text == PART_ACKNOWLEDGEMENT
        if header is None or said.rest != "{}" or not is_acknowledged:
            return False
        piece = said.text.removeprefix(header)
        if not any(context.header == header and piece in context.pieces for context in self.known):
            return False
        self._pieces[header, piece] += 1
        self._last_part[header, piece] = at
        return True

    def faults(self) -> Iterator[str]:
        """The faults, after all messages were taken."""
        if self._openings != Counter(context.kind for context in self.known):
            yield "a context message is missing, or its opening, or stands there twice"
        if self._pieces != Counter((context.header, piece) for context in self.known for piece in context.pieces):
            yield "the parts of a context message are not its text"
        if any(at > self._last_opening.get(part, -1) for part, at in self._last_part.items()):
            yield "a part of a context message behind its opening"


_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_ARRAY = msgspec.json.Decoder(list[Raw])
_MARKERS = ("cache_control", "prompt_cache_breakpoint")
_SYSTEM = ("system", "developer")
_ROUTING_KEY = re.compile(rb'"st-[0-9a-f]{32}"')
_ADDED = MappingProxyType(
    {
        "prompt_cache_key": _ROUTING_KEY,
        "session_id": _ROUTING_KEY,
        "prompt_cache_options": re.compile(rb'\{"mode":"explicit"\}'),
    }
)
_OWN_EDITS = ("messages", "tools", "stream_options", "stratiform")


def violations(
    original: bytes,
    sent: bytes,
    recognisers: Sequence[Recogniser],
    max_marks: int,
    earlier: Sequence[bytes] = (),
) -> list[str]:
    """The faults of the sent request. A request that was sent as it came has none.

    ``earlier`` are the forms of its tools that the client has sent before (``tools_of``).
    """
    if sent == original:
        return []
    before, after = _OBJECT.decode(original), _OBJECT.decode(sent)
    found = list(_parameters(before, after, earlier))
    raw = [[bytes(r) for r in _ARRAY.decode(members["messages"])] for members in (before, after)]
    count = sum(map(_marks_in, raw[1])) + _marks_in(_member(after, "tools"))
    if count > max_marks:
        found.append(f"{count} markers, {max_marks} are allowed")
    if not _same_in_place(*raw):
        known = {r: _said(r) for r in dict.fromkeys([*raw[0], *raw[1]])}
        found += _Comparison([known[r] for r in raw[0]], [known[r] for r in raw[1]], recognisers).run()
    return found


def _same_in_place(before: Sequence[bytes], after: Sequence[bytes]) -> bool:
    """Whether every message is still at its place. For most requests this quick answer is enough."""
    both = zip(before, after, strict=False)
    return len(before) == len(after) and all(one == other or _said(one).same(_said(other)) for one, other in both)


def tools_of(body: bytes) -> bytes:
    """The bytes of a request's tools. Empty if it has none."""
    try:
        members = _OBJECT.decode(body)
    except msgspec.DecodeError:
        return b""
    return bytes(members["tools"]) if "tools" in members else b""


def _parameters(before: Mapping[str, Raw], after: Mapping[str, Raw], earlier: Sequence[bytes]) -> Iterable[str]:
    for key in dict.fromkeys([*before, *after]):
        if key not in _OWN_EDITS and _member(before, key) != _member(after, key) and not _is_ours(key, before, after):
            yield f"parameter {key!r} was changed"
    old, new = (orjson.loads(_member(members, "stream_options")) or {} for members in (before, after))
    if old != new and {**old, "include_usage": True} != new:
        yield "parameter 'stream_options' was changed"
    tools = [_member(members, "tools") for members in (before, after)]
    if tools[0] != tools[1] and not _same_tools(tools[0], tools[1], earlier):
        yield "the tools were changed"


def _same_tools(before: bytes, after: bytes, earlier: Sequence[bytes]) -> bool:
    """Whether the definitions are the same, in an order and form in which the client sends them now or has sent them
    before."""
    both = (orjson.loads(before), orjson.loads(after))
    if not all(isinstance(tools, list) for tools in both):
        return False
    if _canonical(both[1]) not in (_canonical(both[0]), *(_canonical(orjson.loads(each)) for each in earlier)):
        return False
    one, other = (sorted(orjson.dumps(_unmarked(t), option=orjson.OPT_SORT_KEYS) for t in tools) for tools in both)
    return one == other


def _is_ours(key: str, before: Mapping[str, Raw], after: Mapping[str, Raw]) -> bool:
    """Whether we added a parameter that the client did not set: a routing key, or the wish of a one-shot request for no
    cache."""
    form = _ADDED.get(key)
    return key not in before and form is not None and form.fullmatch(_member(after, key)) is not None


def _member(members: Mapping[str, Raw], key: str) -> bytes:
    return bytes(members[key]) if key in members else b"null"


def _canonical(value: object) -> str:
    return orjson.dumps(_unmarked(value)).decode()


def _unmarked(value: object) -> object:
    """The value without markers on messages, parts, calls, tools and their functions. Arguments stay as they are."""
    if isinstance(value, list):
        return [_unmarked(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {key: item for key, item in value.items() if key not in _MARKERS}
    for key in ("content", "tool_calls", "function"):
        if isinstance(kept.get(key), dict | list):
            kept[key] = _unmarked(kept[key])
    return kept


def _marks_in(raw: bytes) -> int:
    return _count_marks(orjson.loads(raw)) if any(marker.encode() in raw for marker in _MARKERS) else 0


def _count_marks(value: object) -> int:
    if isinstance(value, list):
        return sum(map(_count_marks, value))
    if not isinstance(value, dict):
        return 0
    own = sum(value.get(marker) is not None for marker in _MARKERS)
    return own + sum(_count_marks(value.get(key)) for key in ("content", "tool_calls", "function"))


def _said(raw: bytes) -> SaidMessage:
    message: Any = _unmarked(orjson.loads(raw))
    content = message.pop("content", None)
    role = str(message.pop("role", ""))
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    rest = orjson.dumps(message, option=orjson.OPT_SORT_KEYS).decode()
    if isinstance(parts, list) and parts and all(_is_text(part) for part in parts):
        texts = tuple(part["text"] for part in parts)
        return SaidMessage(role, "".join(texts), texts, rest)
    shown = tuple(orjson.dumps(part).decode() for part in parts) if isinstance(parts, list) else (str(parts),)
    return SaidMessage(role, None, shown, rest)


def _is_text(part: object) -> bool:
    return isinstance(part, dict) and part.keys() == {"type", "text"} and isinstance(part["text"], str)


class _Comparison:
    """Walks through the sent messages. Messages that are not context must come in the client's order."""

    def __init__(
        self, before: Sequence[SaidMessage], after: Sequence[SaidMessage], recognisers: Sequence[Recogniser]
    ) -> None:
        self._before, self._after = before, after
        self._fixed: list[SaidMessage] = []
        self._homes: set[int] = set()
        self._pivot = len(before)
        self._next = 0
        self._found: list[str] = []
        self._contexts = Contexts(tuple(self._sorted(recognisers)))
        client = {part for said in before for part in said.parts}
        tags = [part for said in after for part in said.parts if _is_tag(part) and part not in client]
        self._tag = [line for tag in tags for line in tag[len(TAG_OPEN) : -len(TAG_CLOSE)].split("\n")]

    def run(self) -> list[str]:
        """The faults."""
        at = 0
        while at < len(self._after):
            at += self._step(at, self._after[at], self._after[at + 1] if at + 1 < len(self._after) else None)
        if self._next < len(self._fixed):
            missing, first = len(self._fixed) - self._next, self._fixed[self._next].role
            self._found.append(f"{missing} messages are missing, the first a {first} message")
        self._found += self._contexts.faults()
        if self._tag:
            self._found.append("the tag holds lines that no system message lost")
        return self._found

    def _sorted(self, recognisers: Sequence[Recogniser]) -> Iterator[FileContext]:
        """The context messages. All other messages must come in the client's order."""
        messages = self._before
        last_user = max((i for i, said in enumerate(messages) if said.is_asked), default=len(messages))
        is_acknowledgement = False
        for index, said in enumerate(messages):
            if is_acknowledgement:
                is_acknowledgement = False
                continue
            if index == last_user:
                self._pivot = len(self._fixed)
            context = _context(said, messages[index + 1] if index + 1 < last_user else None, recognisers)
            if context is None:
                self._fixed.append(said)
            else:
                yield context
                self._homes.add(len(self._fixed))
                is_acknowledgement = True

    def _step(self, at: int, said: SaidMessage, following: SaidMessage | None) -> int:
        """Look at the next message. Returns how many messages were understood."""
        while self._next < len(self._fixed):
            wanted = self._fixed[self._next]
            if self._is_next(wanted, said):
                self._next += 1
                return 1
            # A system message may be in the tag as a whole.
            is_movable = wanted.role in _SYSTEM and wanted.rest == "{}" and bool(wanted.text)
            if not is_movable or not self._has_parts(wanted.parts, ()):
                break
            self._next += 1
        if said.role == "user" and said.rest == "{}" and said.text is not None and _is_tag(said.text):
            is_last = at == len(self._after) - 1 and self._before[-1].has_results
            if self._next != self._pivot and not is_last:
                self._found.append("the tag stands in a wrong place")
            return 1
        if self._contexts.take(at, said, following):
            self._check_place()
            return 2
        self._found.append(f"a {said.role} message that the client did not send here")
        # If each list has a message that the other lacks, the message was altered: go on behind both.
        if self._next < len(self._fixed) and not any(self._fixed[self._next].same(s) for s in self._after[at:]):
            self._next += 1
        return 1

    def _is_next(self, wanted: SaidMessage, said: SaidMessage) -> bool:
        if wanted.same(said):
            return True
        if (wanted.role, wanted.rest) != (said.role, said.rest) or wanted.text is None or said.text is None:
            return False
        if wanted.role in _SYSTEM and len(wanted.parts) > 1:
            return self._has_parts(wanted.parts, said.parts)
        if wanted.role in _SYSTEM:
            left = wanted.text
            # Its documents may follow as parts behind the rest.
            for part in sorted(said.parts[1:], key=len, reverse=True):
                if part not in left:
                    return False
                left = left.replace(part, "", 1)
            return self._has_parts([left], said.parts[:1])
        tags = [part for part in (*said.parts[:1], *said.parts[1:][-1:]) if _is_tag(part)]
        return wanted.role == "user" and bool(tags) and said.text.replace(tags[0], "", 1) == wanted.text

    def _has_parts(self, wanted: Sequence[str], said: Sequence[str]) -> bool:
        """Whether these are the wanted parts of a system message in the same order, without the lines that are in the
        tag. A part that is in the tag as a whole is gone.

        Every way to read the parts is followed: if two parts are equal, either may be the one that is gone.
        """
        ways = {(0, 0)}
        for part in wanted:
            ways = {way for at, used in ways for way in self._ways_on(part, said, at, used)}
        whole = [used for at, used in ways if at == len(said)]
        if whole:
            self._tag = self._tag[max(whole) :]
        return bool(whole)

    def _ways_on(self, part: str, said: Sequence[str], at: int, used: int) -> Iterable[tuple[int, int]]:
        """The numbers of sent parts and of tag lines that are used up after this part. The part may be there, or it may
        be gone."""
        tag, own = self._tag[used:], part.removesuffix("\n").split("\n")
        taken = _taken_out(part, said[at], tag) if at < len(said) else None
        if taken is not None:
            yield at + 1, used + taken
        if tag[: len(own)] == own:
            yield at, used + len(own)

    def _check_place(self) -> None:
        if self._next > self._pivot:
            self._found.append("context behind the last user message")
        elif 0 < self._next < len(self._fixed) and self._next not in self._homes:
            before, behind = self._fixed[self._next - 1].role, self._fixed[self._next].role
            if self._fixed[self._next].has_results or (before == "user" and behind == "assistant"):
                self._found.append(f"context between a {before} message and the {behind} message that belongs to it")


def _context(said: SaidMessage, following: SaidMessage | None, recognisers: Sequence[Recogniser]) -> FileContext | None:
    """A context message and its acknowledgement; None if the message is not context."""
    is_acknowledged = following is not None and following.role == "assistant" and "tool_calls" not in following.rest
    if said.role != "user" or said.text is None or following is None or not is_acknowledged:
        return None
    known = recognise_text(recognisers, said.role, said.text)
    if known is None or known.form not in (MessageKind.CONTEXT, MessageKind.CANDIDATE):
        return None
    cuts = [(cut.kind is PieceKind.OPENING, said.text[cut.start : cut.end]) for cut in known.cuts]
    opening, pieces = "".join(text for first, text in cuts if first), tuple(text for first, text in cuts if not first)
    return FileContext(said, following, opening, CLAIM_HEADERS[known.claim], pieces)


def _taken_out(text: str, fixed: str, lines: Sequence[str]) -> int | None:
    """How many of the lines, from the first one on, must be taken out of a text to get ``fixed``. None if that is
    impossible."""
    if text == fixed:
        return 0
    if not lines:
        return None
    for span in filter(None, (lines[0] + "\n", "\n" + lines[0], lines[0])):
        at = text.find(span)
        while at >= 0 and text[:at] == fixed[:at]:
            used = _taken_out(text[at + len(span) :], fixed[at:], lines[1:])
            if used is not None:
                return used + 1
            at = text.find(span, at + 1)
    return None


def _is_tag(text: str) -> bool:
    return text.startswith(TAG_OPEN) and text.endswith(TAG_CLOSE)
