"""The prompt of a request as a record: the pieces in the order in which a provider renders them, as digests and sizes.

No text is kept. A record is made from pieces of any wire format (``wire_record``), from the planner's layout
(``sent_prompt``), or read from a file of fingerprints. A ``Break`` says what broke the cache: its kind, the culprit,
and the price.

A line of a file of fingerprints is one JSON object with keyed digests and sizes, the provider's report, and no text.
``record`` in it is a ``PromptRecord`` as an array in the order of its fields, bytes in base64. All digests and the
hashes of lines are keyed. So nobody without the key can find out whether a guessed text was sent. Digests with the same
key can be compared. The keys of pieces (names of tools and files) are not hashed.

The pieces that a layout shares with the previous one are taken over, so that a request that appends only costs time for
its new pieces. Bodies may be those of chat completions, of Anthropic's messages and of OpenAI's Responses: parsed JSON
of any shape. A value that is not understood is one opaque piece. Cache markers are no part of a piece. Each part of a
message is a piece, as a provider's cache counts it.
"""

import sys
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from hashlib import blake2b
from itertools import accumulate, chain, pairwise
from typing import Final
from zlib import crc32

import orjson
from msgspec import DecodeError, Raw, Struct, field, json
from msgspec.structs import replace

from proxy.kit.value import DIGEST_BYTES, dataclass, digest, in_common
from proxy.planner.layout import Layout, PrefixSettings
from proxy.planner.shadow import LOST, Deviation
from proxy.protocol.caches import Life
from proxy.protocol.providers import DEFAULTS, CacheProfile, Family
from proxy.protocol.recognition import MessageKind, PieceKind
from proxy.protocol.request.element import Element, ElementKind
from proxy.protocol.request.message import MARK_KEYS, SYSTEM_ROLES, Message
from proxy.protocol.request.tokens import IMAGE_TOKENS, MESSAGE_OVERHEAD_TOKENS, Encode, read_as_text
from proxy.protocol.request.transcript import texts_of
from proxy.protocol.response.usage import Usage
from proxy.protocol.wire.json_body import TooMany, Unreadable, members_of

TOOL: Final = "tool"
SYSTEM: Final = "system"
TURN: Final = "turn"
"""Kinds of pieces, besides those of ``proxy.protocol.recognition.PieceKind``."""

LineSizes = tuple[tuple[int, int], ...]
"""The lines of a text, each as a hash and a length in characters."""

# The type code with which ``array`` writes numbers of 32 bits, in the machine's byte order.
_NUMBER: Final = "i"
_ROW: Final = 3
_HASHES: Final = 1 << 32
# A text with more lines is compared as a whole.
_MOST_LINES = 2_000
# Longer keys are cut: a client may give a tool a name of any length.
_KEY_CHARS = 200
_HEADS = (TOOL, SYSTEM)


class PromptPiece(Struct, frozen=True):
    """One piece of a prompt. ``key`` identifies it over time ("read_file", "system", "user", "file:src/app.py").

    ``place`` is its index in its list on the wire (tools, system blocks, messages; -1: not known). ``lines`` are the
    lines of a system text; empty if its lines are not compared. ``mark`` is the life of the client's cache marker on
    the piece.
    """

    key: str
    kind: str
    digest: bytes
    tokens: int
    place: int = -1
    lines: LineSizes = ()
    mark: Life | None = None


class PromptRecord(Struct, frozen=True, array_like=True):
    """One request's prompt, packed in columns, so that a long conversation is copied, compared and shared quickly.

    ``digests`` are the digests of the pieces, 16 bytes each. ``rows`` holds three numbers of 32 bits for each piece:
    its end in tokens from the beginning, its place on the wire, and the index of its kind and key in ``names``. ``at``
    is in seconds. ``parameters`` are digests of the request's other members, by their names. ``lines`` are the lines of
    system texts, by the index of the piece. ``stops`` are the ends, in tokens and ascending, up to which a provider
    that keeps prompts only at markers keeps this one; up to ``long`` it does so for its longer life, because markers of
    the longer life stand in front of others. ``stored`` is the number of tokens of the prompt that the provider holds
    (-1: unknown; then the cache's rules give it). ``scale`` is how many tokens the provider counts for one of these (0:
    unknown).
    """

    at: float = 0.0
    model: str = ""
    route: str = ""
    digests: bytes = b""
    rows: bytes = b""
    names: tuple[tuple[str, str], ...] = ()
    parameters: Mapping[str, bytes] = {}
    lines: Mapping[int, LineSizes] = {}
    stops: Sequence[int] = ()
    long: int = 0
    stored: int = -1
    scale: float = 0.0

    @property
    def count(self) -> int:
        """How many pieces there are."""
        return len(self.digests) // DIGEST_BYTES

    @property
    def about_bytes(self) -> int:
        """About how many bytes of memory the record takes."""
        lines = sum(map(len, self.lines.values()))
        return 1_000 + 2 * len(self.digests) + 450 * len(self.names) + 100 * len(self.parameters) + 120 * lines

    @property
    def ends(self) -> Sequence[int]:
        """The ends of the pieces, in tokens."""
        return self._column(0)

    @property
    def places(self) -> Sequence[int]:
        """The places of the pieces on the wire."""
        return self._column(1)

    @property
    def total(self) -> int:
        """The prompt's tokens."""
        return int.from_bytes(self.rows[-4 * _ROW :][:4], sys.byteorder, signed=True)

    @property
    def is_sound(self) -> bool:
        """Whether the columns fit together. They may not, because a record may come from another process."""
        fits = len(self.digests) == DIGEST_BYTES * self.count and len(self.rows) == 4 * _ROW * self.count
        lines = [line for text in self.lines.values() for line in text]
        are_lines = all(0 <= number < _HASHES and length >= 0 for number, length in lines)
        return fits and are_lines and set(self._column(2)) <= set(range(len(self.names)))

    def _column(self, number: int) -> Sequence[int]:
        return memoryview(self.rows).cast(_NUMBER)[number::_ROW]

    def end(self, count: int) -> int:
        """How many tokens the first ``count`` pieces have."""
        start = 4 * _ROW * (count - 1)
        return int.from_bytes(self.rows[start : start + 4], sys.byteorder, signed=True) if count else 0

    def each(self, first: int = 0) -> list[bytes]:
        """The digests of the pieces from an index on."""
        digests = self.digests
        return [digests[at : at + DIGEST_BYTES] for at in range(first * DIGEST_BYTES, len(digests), DIGEST_BYTES)]

    def named(self, first: int = 0) -> Iterator[tuple[str, str]]:
        """Kind and key of the pieces from an index on."""
        return (self.names[index] for index in self._column(2)[first:])

    def pieces(self, first: int = 0) -> list[PromptPiece]:
        """The pieces from an index on."""
        found, before, stops = [], self.end(first), set(self.stops)
        rest = zip(self.named(first), self.each(first), self.ends[first:], self.places[first:], strict=True)
        for index, ((kind, key), own, end, place) in enumerate(rest, first):
            life: Life = "1h" if end <= self.long else "5m"
            lines, mark = self.lines.get(index, ()), life if end in stops else None
            found.append(PromptPiece(key, kind, own, end - before, place, lines, mark))
            before = end
        return found

    def holding(
        self, pieces: Sequence[PromptPiece], front: "PromptRecord | None" = None, shared: int = 0
    ) -> "PromptRecord":
        """This request with these pieces behind the first ``shared`` pieces of the record ``front``, in the order in
        which the provider renders them. Digests have 16 bytes."""
        front = self if front is None else front
        is_whole = shared == front.count
        used = len(front.names) if is_whole else max(front._column(2)[:shared], default=-1) + 1
        numbers = dict(zip(front.names, range(used), strict=False))
        rows, end, stops = array(_NUMBER), front.total if is_whole else front.end(shared), [*self.stops]
        lines = front.lines if is_whole else {index: text for index, text in front.lines.items() if index < shared}
        own_lines: dict[int, LineSizes] = {}
        long = self.long
        for index, piece in enumerate(pieces, shared):
            end += piece.tokens
            name = piece.kind, piece.key[:_KEY_CHARS]
            rows.extend((end, piece.place, numbers.setdefault(name, len(numbers))))
            if piece.mark:
                stops.append(end)
                long = end if piece.mark == "1h" else long
            if piece.lines:
                own_lines[index] = piece.lines
        return replace(
            self,
            digests=front.digests[: shared * DIGEST_BYTES] + b"".join([piece.digest for piece in pieces]),
            rows=front.rows[: 4 * _ROW * shared] + rows.tobytes(),
            names=tuple(numbers),
            lines={**lines, **own_lines} if own_lines else lines,
            stops=stops,
            long=long,
        )

    def continuing(self, front: "PromptRecord") -> "PromptRecord":
        """The whole prompt of a request that continues the conversation ``front``, which the provider keeps. Such a
        request need not send tools and instructions again."""
        known, sent = front.pieces(), self.pieces()
        kinds = {piece.kind for piece in sent}
        heads = [piece for kind in _HEADS for piece in (sent if kind in kinds else known) if piece.kind == kind]
        turns = [piece for piece in (*known, *sent) if piece.kind not in _HEADS]
        return replace(self, stops=()).holding([*heads, *turns])

    def answered(self, usage: Usage | None, profile: CacheProfile) -> "PromptRecord":
        """The record with what the provider's report says of it."""
        if usage is None or usage.estimated or usage.prompt <= 0 or not self.total:
            return self
        scale = usage.prompt / self.total
        stored = round((usage.read + usage.write) / scale) if profile.family is Family.MARKER else self.stored
        return replace(self, stored=stored, scale=scale)


def shared_front(old: PromptRecord, new: PromptRecord) -> int:
    """How many pieces at the beginning are the same in both prompts."""
    one, other = old.digests, new.digests
    ends = range(DIGEST_BYTES, min(len(one), len(other)) + 1, DIGEST_BYTES)
    return bisect_left(ends, True, key=lambda end: one[:end] != other[:end])


def spread(tokens: int, lengths: Iterable[int]) -> list[int]:
    """The tokens of a text, divided among its parts by their lengths."""
    passed = [0, *accumulate(lengths)]
    ends = [tokens * one // max(1, passed[-1]) for one in passed]
    return [end - before for before, end in pairwise(ends)]


def lines_of(text: str) -> LineSizes:
    """The lines of a text; empty if it has only one line, or too many to compare."""
    if not 0 < text.count("\n") < _MOST_LINES:
        return ()
    return tuple((crc32(line.encode("utf-8", "surrogatepass")), len(line)) for line in text.split("\n"))


class BreakKind(StrEnum):
    """How the request differs from the one that it continues. A cache miss without such a difference is a ``Deviation``
    of the provider: expired, evicted, partitioned, out of reach and others."""

    CHANGED = "changed"
    APPEARED = "appeared"
    DISAPPEARED = "disappeared"
    REORDERED = "reordered"
    TOOLS = "tools"
    PARAMETERS = "parameters"
    MODEL_SWITCHED = "model-switched"
    ROUTE_SWITCHED = "route-switched"
    COMPACTED = "compacted"
    """Turns were replaced by a shorter text: a summary, or a note that they were cleared."""
    BELOW_MINIMUM = "below-minimum"
    """Nothing is stored, because the prompt is shorter than the shortest one that the provider stores."""


KINDS: tuple[str, ...] = (*BreakKind, *sorted(LOST))
"""All kinds that a break can have."""

# The names that providers give to a difference in a piece of this kind (``proxy.protocol.response.outcome``).
_CAUSES: Mapping[str, str] = {TOOL: "tools-changed", SYSTEM: "system-changed"}


@dataclass(frozen=True, slots=True)
class Break:
    """One request whose prompt was read less than it could have been.

    ``culprit`` is the key of the first piece that differs and ``culprit_kind`` its kind; both are empty if no piece
    differs. ``place`` is its index on the wire (-1: none), and ``line`` the number of the first line that differs,
    counted from 1 (0: not known). ``before``, ``tokens`` and ``behind`` are the tokens of this request in front of the
    culprit, in it, and behind it. ``lost`` are the tokens that would have been read in addition if nothing had
    differed, and ``usd`` is the cost of that. The whole loss of a request belongs to its first culprit. ``is_waste``:
    the client could have sent the same content without the loss.
    """

    kind: BreakKind | Deviation
    culprit: str = ""
    culprit_kind: str = ""
    place: int = -1
    line: int = 0
    before: int = 0
    tokens: int = 0
    behind: int = 0
    lost: int = 0
    usd: float = 0.0
    is_waste: bool = False

    @property
    def expected_cause(self) -> str:
        """The cause that a provider which compares requests would report; empty if it would report none."""
        if self.kind is BreakKind.MODEL_SWITCHED:
            return "model-changed"
        if not self.culprit_kind:
            return ""
        return _CAUSES.get(self.culprit_kind, "messages-changed")


VERSION: Final = 1
_HASH_BYTES: Final = 4


class Fingerprint(Struct, frozen=True, omit_defaults=True):
    """One request. ``session`` is the conversation's name at the proxy, ``client`` the recogniser that knows its
    client, and ``profile`` the name of the cache's rules. ``tokens`` are the reported ones: prompt, output, cache read,
    and cache write at the shorter and at the longer life; None if the provider reported nothing. ``cost_usd`` is the
    cost of prompt and answer, None if the price is not known."""

    v: int
    session: str
    model: str
    record: PromptRecord
    client: str = ""
    profile: str = ""
    tokens: tuple[int, int, int, int, int] | None = None
    cost_usd: float | None = None

    @property
    def usage(self) -> Usage | None:
        """The provider's report."""
        return None if self.tokens is None else Usage(*self.tokens)


_decoder: Final = json.Decoder(Fingerprint)


def line_of(fingerprint: Fingerprint, key: bytes) -> bytes:
    """The line of a request whose record is not keyed yet. ``key`` has at most 64 bytes."""
    record = fingerprint.record
    keyed = replace(
        record,
        digests=b"".join([_hash(digest, key) for digest in record.each()]),
        lines={
            index: tuple(
                (int.from_bytes(_hash(number.to_bytes(_HASH_BYTES), key, _HASH_BYTES)), size) for number, size in text
            )
            for index, text in record.lines.items()
        },
        parameters={name: _hash(value, key) for name, value in record.parameters.items()},
    )
    return json.encode(replace(fingerprint, record=keyed)) + b"\n"


def read_line(line: bytes) -> Fingerprint:
    """The request of a line. Raises Unreadable if the line is no fingerprint of this version."""
    try:
        found = _decoder.decode(line)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable("no fingerprint") from error
    if found.v != VERSION or not found.record.is_sound:
        raise Unreadable("a fingerprint of another version, or a damaged one")
    return found


def _hash(value: bytes, key: bytes, size: int = DIGEST_BYTES) -> bytes:
    return blake2b(value, key=key, digest_size=size).digest()


_CONTEXT = (MessageKind.CONTEXT, MessageKind.CANDIDATE)


class SentPrompt(Struct, frozen=True):
    """A record, and the layout from which it was made: the settings of its prefix, the digests of its elements, and the
    number of pieces up to the end of each element."""

    record: PromptRecord = field(default_factory=PromptRecord)
    seed: PrefixSettings | None = None
    digests: list[bytes] = field(default_factory=list)
    counts: "array[int]" = field(default_factory=lambda: array("I"))


NOTHING_SENT: Final = SentPrompt()


def sent_prompt(layout: Layout, messages: Sequence[Message], head: PromptRecord, before: SentPrompt) -> SentPrompt:
    """The record of a layout of these messages. ``head`` holds everything except the pieces, and ``before`` is the
    session's last record."""
    shared = in_common(before.digests, layout.digests)
    pieces: list[PromptPiece] = []
    counts = before.counts[:shared]
    count = counts[-1] if counts else 0
    for element in layout.elements[shared:]:
        pieces += _pieces(element, messages)
        counts.append(count + len(pieces))
    return SentPrompt(head.holding(pieces, before.record, count), layout.seed, layout.digests, counts)


def _pieces(element: Element, messages: Sequence[Message]) -> Iterator[PromptPiece]:
    """The pieces of an element: each tool is one, and each file of a context message."""
    if element.kind is ElementKind.TOOLS:
        names = element.lead.split("\n")
        for part, name in zip(element.parts, names, strict=True):
            yield PromptPiece(name, TOOL, part.digest, part.tokens, part.index)
        return
    place, item, message = element.message, element.item, messages[element.message]
    key, kind, lines = element.role, TURN, LineSizes()
    if element.kind is ElementKind.TAG:
        key, kind = element.key, PieceKind.VOLATILE
    elif item is not None:
        key, kind = item.key, item.kind
    elif element.role in SYSTEM_ROLES:
        key, kind = SYSTEM, SYSTEM if element.key == SYSTEM else TURN
        lines = lines_of("\n".join(texts_of(message) or ())) if element.kind is ElementKind.MESSAGE else ()
    elif message.recognition is not None and message.recognition.form in _CONTEXT and message.cut_digests:
        # The tokens of a recognised message are divided by the lengths of its texts.
        cuts, before = message.recognition.cuts, 0
        for cut, own in zip(cuts, message.cut_digests, strict=True):
            end = message.tokens * cut.end // max(1, cuts[-1].end)
            yield PromptPiece(cut.key, cut.kind, own, end - before, place)
            before = end
        if element.kind is ElementKind.WHOLE:
            ack = messages[element.ack]
            yield PromptPiece(ack.role, TURN, ack.digest, ack.tokens, element.ack)
        return
    yield PromptPiece(key, kind, element.digest, element.tokens, place, lines)


_CONTENT: Final = frozenset({"messages", "tools", "system", "input", "instructions", "model", "stream"})
_PARENTS: Final = ("previous_response_id", "thread")
# The role of the speaker of an item that has no role itself, by its type.
_ROLES: Final[Mapping[str, str]] = {
    "tool_result": "tool",
    "function_call_output": "tool",
    "custom_tool_call_output": "tool",
    "local_shell_call_output": "tool",
    "tool_use": "assistant",
    "reasoning": "assistant",
    "function_call": "assistant",
    "custom_tool_call": "assistant",
}
_BESIDE: Final = frozenset({"content", "role", *MARK_KEYS})
# These are no set: the type of a part may be any JSON value, and not each of those can be in a set.
_TEXTS: Final = ("text", "input_text", "output_text")


# The name of a parameter that no request has: some providers count it as a setting whether any image is shown.
IMAGES: Final = "images"
IMAGE_SHOWN: Final = digest(b"image")
_IMAGE_PARTS: Final = ("image", "image_url", "input_image")

Told = tuple[PromptPiece, str]
"""A piece and its text; the text is empty if the piece is no text."""


def wire_record(
    body: Mapping[str, object],
    count: Encode,
    *,
    at: float,
    route: str = "",
    on_text: Callable[[PromptPiece, str], None] | None = None,
    most: int | None = None,
) -> PromptRecord:
    """The record of a request body. ``count`` counts tokens, ``at`` is in seconds. ``on_text`` is called with each
    piece that is a text, and with the text. If the provider keeps the conversation (``is_continuation``), the record
    holds only the pieces that are sent (``PromptRecord.continuing``). Raises TooMany if there are more than ``most``
    pieces."""
    found: list[PromptPiece] = []
    # Instructions may stand beside the messages.
    instructions = (
        _piece(part, SYSTEM, SYSTEM, place, count)
        for name in ("system", "instructions")
        for place, part in enumerate(_parts(body.get(name)))
    )
    for piece, text in chain(_tools(body.get("tools"), count), instructions, _turns(body, count)):
        if len(found) == most:
            raise TooMany
        found.append(piece)
        if text and on_text is not None:
            on_text(piece, text)
    if body.get("cache_control") and found:
        # Anthropic's automatic marker stands for one on the last block.
        found[-1] = replace(found[-1], mark=_mark(body))
    parameters = {
        name: digest(_bytes(value))
        for name, value in body.items()
        if name not in _CONTENT and name not in _PARENTS and value is not None and value != DEFAULTS.get(name)
    }
    if any(_shows_image(message) for message in _messages(body)):
        parameters[IMAGES] = IMAGE_SHOWN
    return PromptRecord(at, str(body.get("model") or ""), route, parameters=parameters).holding(found)


def is_continuation(body: Mapping[str, object]) -> bool:
    """Whether the provider keeps the conversation, so that the body holds only its new part."""
    thread = body.get("thread")
    return bool(body.get("previous_response_id")) or (isinstance(thread, Mapping) and thread.get("type") == "continue")


def _tools(tools: object, count: Encode) -> Iterator[Told]:
    for place, tool in enumerate(tools if isinstance(tools, list) else ()):
        function = tool.get("function") if isinstance(tool, Mapping) else None
        named = function if isinstance(function, Mapping) else tool
        name = named.get("name") or named.get("type") if isinstance(named, Mapping) else None
        yield _piece(tool, str(name or "tool"), TOOL, place, count)


def _turns(body: Mapping[str, object], count: Encode) -> Iterator[Told]:
    is_lead = True
    for place, message in enumerate(_messages(body)):
        if not isinstance(message, Mapping) or "role" not in message:
            is_lead = False
            yield _piece(message, _role(message, "user"), TURN, place, count)
            continue
        role = str(message.get("role"))
        is_lead = is_lead and role in SYSTEM_ROLES
        kind, extra = (SYSTEM if is_lead else TURN), MESSAGE_OVERHEAD_TOKENS
        others = {name: value for name, value in message.items() if name not in _BESIDE and value}
        parts = [*_parts(message.get("content")), *([others] if others else [])]
        mark = _mark(message)
        for number, part in enumerate(parts, 1):
            key = SYSTEM if kind == SYSTEM else _role(part, role)
            piece, text = _piece(part, key, kind, place, count, role)
            mine = mark if number == len(parts) else None
            yield replace(piece, tokens=piece.tokens + extra, mark=piece.mark or mine), text
            extra = 0


def _messages(body: Mapping[str, object]) -> Sequence[object]:
    return _parts(body.get("messages") if "messages" in body else body.get("input"))


def _shows_image(part: object) -> bool:
    """Whether a message, or a part of it, is or holds an image."""
    if not isinstance(part, Mapping):
        return False
    return part.get("type") in _IMAGE_PARTS or any(map(_shows_image, _parts(part.get("content"))))


def _parts(content: object) -> Sequence[object]:
    """The parts of a content. A plain text is one part, because a provider renders it so."""
    if isinstance(content, list):
        return content
    return [{"type": "text", "text": content}] if isinstance(content, str) and content else []


def _role(part: object, role: str) -> str:
    found = part.get("type") if isinstance(part, Mapping) else None
    return _ROLES.get(found, role) if isinstance(found, str) else role


def _mark(value: Mapping[str, object]) -> Life | None:
    """The life of the cache marker on a value; None if there is no marker."""
    for mark in filter(None, map(value.get, MARK_KEYS)):
        return "1h" if isinstance(mark, Mapping) and mark.get("ttl") == "1h" else "5m"
    return None


def _piece(part: object, key: str, kind: str, place: int, count: Encode, role: str = "") -> Told:
    bare, text, mark = part, None, None
    if isinstance(part, Mapping):
        mark = _mark(part)
        bare = {name: value for name, value in part.items() if name not in MARK_KEYS}
        found = part.get("text")
        text = found if part.get("type") in _TEXTS and isinstance(found, str) else None
    content = _bytes(bare)
    shown, media = text or "", 0
    if text is None:
        read = content
        with suppress(Unreadable):
            if kind != TOOL and isinstance(part, Mapping):
                read, media = read_as_text(Raw(content), members_of(content))
        shown = read.decode("utf-8", "replace")
    tokens = IMAGE_TOKENS * media + (count(shown) if shown or not media else 0)
    lines = lines_of(text) if text is not None and kind == SYSTEM else ()
    return PromptPiece(key, kind, digest(role.encode(), content), tokens, place, lines, mark), text or ""


def _bytes(value: object) -> bytes:
    """The value as JSON. Half of a surrogate pair, which JSON may hold, is written as an escape."""
    try:
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
    except (TypeError, ValueError):
        return repr(value).encode("utf-8", "backslashreplace")
