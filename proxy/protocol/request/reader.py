"""Reads requests for the planner, and remembers what it has read: bodies, messages, tools and token counts.

``Route`` is the destination of a request, with the texts that are written into it on the way.

``BodyCache`` remembers the bodies of conversations. Clients send the whole conversation each time. If a body begins
with the same messages as an earlier one, byte by byte, the parsed messages of the earlier body are used again and only
the rest is parsed. JSON is read from left to right, so equal bytes mean the same if equal bytes stand in front of them.
A body that does not clearly begin like an earlier one is parsed as if nothing were known.

``RequestReader`` reads all parts of a request. A large request is read by a fork of the reader in another thread. The
fork knows everything that the reader knows, and does not change the reader. Back in the reader's own thread, ``merge``
hands the results of the fork to the reader.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from operator import attrgetter, is_

from msgspec import Raw

from proxy.kit.errors import InvalidRequest
from proxy.kit.lru import Bounded
from proxy.kit.value import dataclass, field
from proxy.protocol.providers import CacheProfile
from proxy.protocol.recognition import Recogniser
from proxy.protocol.request import Continuation, Inset, ParsedBody, parse_body, placed, with_inset
from proxy.protocol.request.element import ToolReader
from proxy.protocol.request.message import Message, MessageReader
from proxy.protocol.request.tokens import Encode, TokenCounter
from proxy.protocol.request.transcript import Transcript
from proxy.protocol.wire.json_body import (
    MOST_ELEMENTS,
    Members,
    Span,
    Unreadable,
    behind_space,
    elements,
    parse_members,
)


@dataclass(frozen=True, slots=True)
class Route:
    """The destination and the owner of a request, as far as planning needs them.

    ``scope`` keeps teams and keys apart; ``hint`` is a session id that the client gave ("" for none), and ``is_told``
    says that a header of the client tells it to the provider, too. ``name`` is the model's name at the proxy, ``model``
    its name at the upstream. ``inset`` are the operator's texts around the newest user message; ``earlier`` are the
    texts that are applied again to user messages in front of it, by the index of the message. ``upstream`` tells the
    deployments of one name apart: each has a cache of its own. ``server`` is the provider that is called, as far as it
    is known. ``moving`` are messages that the proxy has inserted itself and puts at another place when their content
    changes. It maps the index of each to its hazard: -ln P(the message still stands there in the next request).
    """

    scope: str
    name: str
    model: str
    profile: CacheProfile
    hint: str = ""
    is_told: bool = True
    inset: Inset = Inset()
    upstream: str = ""
    server: str = ""
    earlier: Mapping[int, Inset] = field(default_factory=dict, hash=False)
    moving: Mapping[int, float] = field(default_factory=dict, hash=False)
    repeats: bool = True
    """The texts of earlier turns may be applied again. They may not if the request was fitted to a greatest length
    without them."""

    @property
    def named(self) -> str:
        """The model by both of its names. Facts learnt about one combination say nothing about another."""
        return f"{self.name}/{self.model}"

    @property
    def has_texts(self) -> bool:
        """Whether any of the operator's texts is written into user messages."""
        return bool(self.inset or self.earlier)


_NAME = b'"messages"'
# At most this many places are tried that may be the member's name: tools have parameters of that name, too.
_MAX_PLACES = 4
# The number of bytes behind the first message that tell conversations with the same instructions apart.
_WINDOW = 160
_MAX_FIRSTS = 8
_MAX_ENDS = 4
_EMPTY = Raw(b"[]")
_NO_MEMBERS: Members = {}
_MAX_BRANCHES = 8
_OPENINGS_PART = 4
_FRAME_BYTES = 1024
_MESSAGE_BYTES = 1500


@dataclass(slots=True)
class _Trunk:
    """One conversation as it was last seen. Its last message ends at ``end`` of the body. ``size`` is about how many
    bytes of memory it takes."""

    transcript: Transcript
    body: bytes
    end: int
    starts: Sequence[int]
    size: int


@dataclass(slots=True)
class _Opening:
    """The bytes in front of the first message: they are the same in every request of a client with the same settings.
    ``firsts`` are first messages. ``ends`` are the bytes behind the last message, each with the members that a body
    with this opening and this end has (all but the messages)."""

    preamble: bytes
    firsts: list[bytes] = field(default_factory=list)
    ends: list[tuple[bytes, Members]] = field(default_factory=list)
    size: int = 0


_Key = tuple[bytes, int, bytes]


class BodyCache:
    """Conversations that were parsed before. Their memory is bounded; the least recently used one is dropped first."""

    def __init__(self, *, capacity_bytes: int = 128 * 2**20) -> None:
        """Openings, the bytes in front of the conversations, take a part of ``capacity_bytes``."""
        self._openings: Bounded[_Key, _Opening] = Bounded(capacity_bytes // _OPENINGS_PART, attrgetter("size"))
        self._branches: Bounded[tuple[bytes, bytes], list[_Trunk]] = Bounded(
            capacity_bytes - capacity_bytes // _OPENINGS_PART, lambda trunks: sum([trunk.size for trunk in trunks])
        )

    def parse(self, body: bytes) -> ParsedBody:
        """The body's members, and what is known about its messages. Raises InvalidRequest for a body that is no JSON
        object, and Unreadable for odd Unicode. The method changes nothing, and another thread may call it: it asks each
        table once, and compares what it finds there with the body."""
        place = 0
        for _ in range(_MAX_PLACES if self._openings else 0):
            place = body.find(_NAME, place) + len(_NAME)
            if place < len(_NAME):
                break
            colon = behind_space(body, place)
            start = behind_space(body, colon + 1)
            if body[colon : colon + 1] == b":" and body[start : start + 1] == b"[":
                opening = self._openings.get(_key(body, start))
                if opening is not None and body.startswith(opening.preamble):
                    return self._continued(body, start, opening) or parse_body(body)
        return parse_body(body)

    def keep(self, parsed: ParsedBody, transcript: Transcript) -> None:
        """Remember a conversation, all of whose messages have been read."""
        messages, span, body = transcript.messages, parsed.span, parsed.body
        if not messages or span is None:
            return
        starts = parsed.starts([message.raw for message in messages])
        first = messages[0].raw
        opening_key = _key(body, span[0])
        opening = self._openings.get(opening_key)
        if opening is None or not body.startswith(opening.preamble):
            opening = _Opening(body[: span[0] + 1])
        if first not in opening.firsts:
            opening.firsts = [first, *opening.firsts[: _MAX_FIRSTS - 1]]
        end = body[span[1] :]
        if all(end != known for known, _ in opening.ends):
            copied = {name: _EMPTY if name == "messages" else Raw(bytes(raw)) for name, raw in parsed.members.items()}
            opening.ends = [(end, copied), *opening.ends[: _MAX_ENDS - 1]]
        ends = sum([len(opening.preamble) + len(known) for known, _ in opening.ends])
        opening.size = len(opening.preamble) + sum(map(len, opening.firsts)) + ends + _FRAME_BYTES
        self._openings.put(opening_key, opening)
        behind = starts[0] + len(first)
        key = (first, body[behind : behind + _WINDOW])
        trunks = self._branches.get(key, [])
        old = next((t for t in trunks if _is_continued(t.transcript.messages, messages)), None)
        others = [trunk for trunk in trunks if trunk is not old]
        stop = starts[-1] + len(messages[-1].raw)
        size = len(body) + stop + _FRAME_BYTES + _MESSAGE_BYTES * len(messages)
        self._branches.put(key, [_Trunk(transcript, body, stop, starts, size), *others[: _MAX_BRANCHES - 1]])

    def _continued(self, body: bytes, start: int, opening: _Opening) -> ParsedBody | None:
        at = behind_space(body, start + 1)
        first = next((raw for raw in opening.firsts if body.startswith(raw, at)), None)
        if first is None:
            return None
        starts: Sequence[int] = ()
        behind, base = at, None
        second = at + len(first)
        for trunk in tuple(self._branches.get((first, body[second : second + _WINDOW]), ())):
            messages = trunk.transcript.messages
            if len(messages) <= len(starts) or not body.startswith(messages[len(starts)].raw, behind):
                continue  # the body repeats no more of this conversation than of the best one so far
            own_starts, own_behind = _in_common(body, at, trunk)
            if len(own_starts) > len(starts):
                starts, behind, base = own_starts, own_behind, trunk.transcript
            if len(own_starts) == len(messages):
                break
        found = (_between(body, start, behind, opening) or _rest(body, start, behind)) if base is not None else None
        if base is None or found is None:
            return None
        members, span, added = found
        whole = Raw(memoryview(body)[span[0] : span[1]])
        return ParsedBody(body, {**members, "messages": whole}, span, Continuation(base, added, starts))


# The members of a body but for the messages, the place of the messages, and those of them that are new.
_Found = tuple[Members, Span, Sequence[Raw]]


def _between(body: bytes, start: int, behind: int, opening: _Opening) -> _Found | None:
    """The body, if both its messages up to ``behind`` and its end are known: the bytes between them are parsed as the
    rest of the array, and the other members are those of the known end. None if the end is unknown, or the bytes are
    not the rest of an array."""
    known, members = next((pair for pair in opening.ends if body.endswith(pair[0])), (b"", _NO_MEMBERS))
    end = len(body) - len(known)
    try:
        return (members, (start, end), elements(b"[" + body[behind:end])) if known else None
    except Unreadable:
        return None


def _rest(body: bytes, start: int, behind: int) -> _Found | None:
    """The body, whose part ``behind`` the known messages is parsed as if the array began there; None if that is not
    clearly right."""
    short = body[: start + 1] + body[behind:]
    try:
        members = parse_members(short)
        tail = members.get("messages")
        if tail is None:
            return None
        length = len(bytes(tail))
        # If there were a second member of that name, that one would count.
        if not short.startswith(bytes(tail), start) or short.find(_NAME, start + length) >= 0:
            return None
        return members, (start, start + length + len(body) - len(short)), elements(tail)
    except (InvalidRequest, Unreadable):
        return None


def _in_common(body: bytes, at: int, trunk: _Trunk) -> tuple[Sequence[int], int]:
    """Where each message begins that a body has in common with a conversation, from ``at`` on, and where the next
    element or the array's end begins."""
    known, first = memoryview(trunk.body), trunk.starts[0]
    if body.startswith(known[: trunk.end]):
        end = _next_element(body, trunk.end)
        return (trunk.starts, end) if end >= 0 else ((), at)
    # The first messages of the conversation that begin in the body, too. The last of them may go on in another way.
    begun = bisect_left(trunk.starts, True, key=lambda start: not body.startswith(known[first : start + 1], at))
    starts = [start - first + at for start in trunk.starts[:begun]]
    return starts[:-1], starts[-1]


def _next_element(body: bytes, end: int) -> int:
    """The place where the next element begins, or where the array ends, behind an element that ends at ``end``; -1 if
    neither follows."""
    if body.startswith(b",{", end):
        return end + 1  # as most clients write it
    end = behind_space(body, end)
    if body[end : end + 1] == b",":
        end = behind_space(body, end + 1)
        # A comma in front of the array's end is no JSON: the ordinary parser will report it.
        return -1 if body[end : end + 1] in b"]" else end
    return end if body[end : end + 1] == b"]" else -1


def _is_continued(before: Sequence[Message], after: Sequence[Message]) -> bool:
    """Whether a conversation continues an earlier one. The newest exchange of the earlier one may be missing."""
    kept = max(1, len(before) - 2)
    return len(after) >= kept and all(map(is_, before[:kept], after))


def _key(body: bytes, start: int) -> _Key:
    return body[:32], start, body[max(0, start - 32) : start]


_MOST_COUNTS = 200_000
# The most messages that are read in order to leave out the oldest. So many short ones fill the window of most models.
_MOST_LONG = 4 * MOST_ELEMENTS


class RequestReader:
    """Reads each body, message and array of tools once. Its memory is bounded."""

    def __init__(
        self, encode: Encode, recognisers: Sequence[Recogniser], memory_bytes: int, base: "RequestReader | None" = None
    ) -> None:
        """Token counts take additional memory: up to an eighth of ``memory_bytes``, but at most 50 MB. What ``base``
        has read is taken from ``base``, which is read but never written."""
        self._given = encode, recognisers, memory_bytes
        capacity = min(_MOST_COUNTS, memory_bytes // 2_000)
        self.counter: TokenCounter = TokenCounter(encode, capacity=capacity, base=base.counter if base else None)
        self._bodies = BodyCache(capacity_bytes=memory_bytes // 4)
        self.parse = self._bodies.parse
        self.messages: MessageReader = MessageReader(
            self.counter, recognisers, capacity_bytes=memory_bytes // 4, base=base.messages if base else None
        )
        self.tools: ToolReader = ToolReader(
            self.counter, capacity_bytes=memory_bytes // 16, base=base.tools if base else None
        )

    def read(self, parsed: ParsedBody) -> Transcript:
        """All messages of a chat. The reader remembers the conversation. Raises Unreadable."""
        transcript = parsed.read(self.messages.read)
        self._bodies.keep(parsed, transcript)
        return transcript

    def inlaid(self, transcript: Transcript, route: Route) -> Transcript:
        """The transcript with the operator's texts in its user messages. The client's next request has none of these
        texts. If a text is not applied again then, the common prefix ends at its place. Raises Unreadable."""
        messages = transcript.messages
        texts = placed([message.is_asked for message in messages], route.inset, route.earlier)
        written = {i: with_inset(messages[i].raw, inset) for i, inset in texts.items()}
        return transcript.replaced({i: self.messages.read(Raw(raw)) for i, raw in written.items()})

    def fork(self) -> "RequestReader":
        """A reader for another thread, which knows everything that this reader knows."""
        return RequestReader(*self._given, base=self)

    def merge(self, fork: "RequestReader") -> None:
        """Remember what the fork has read."""
        self.counter.merge(fork.counter)
        self.messages.merge(fork.messages)
        self.tools.merge(fork.tools)

    def read_long(self, parsed: ParsedBody) -> Transcript:
        """All messages of a chat, also if they are too many to be planned. Raises Unreadable."""
        return Transcript([self.messages.read(raw) for raw in elements(parsed.members["messages"], _MOST_LONG)])

    def read_ahead(self, parsed: ParsedBody) -> None:
        """Read all messages and tools. A body without an array of messages is left to the planner, which refuses it.
        A body that is unreadable is not read again: ``chat`` raises the same error."""
        if bytes(memoryview(parsed.members["messages"])[:1]) != b"[":
            return
        try:
            self.tools.read(parsed.members.get("tools"))
            parsed.read(self.messages.read)
        except Unreadable as error:
            parsed.failure = error
