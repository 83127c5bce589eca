"""Server-sent events as bytes: the end of an event and its data, and the errors in an answer, out of which the
operator's secrets are taken. Sans-IO.

``EventCutter`` cuts a stream into whole events. The format:
https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream.

``ErrorEvents`` searches a stream. A provider that fails in the middle of an answer says so in an event, and may quote
the key. All other events pass unchanged, byte for byte. Each event passes as soon as it is whole, because half an event
may be the beginning of an error. An error that is too long to be searched is cut or replaced by another one. An event
that is too long to be kept passes piece by piece until an error shows in it. A long event in which only the request's
own members (a tool's schema) have something called ``error`` is no error, and passes whole.

``ErrorBody`` searches the body of a successful answer. Some servers send status 200 before they know how the request
ends, and then an error as the body. A body passes as it comes until something in it is called ``error``. What follows
is kept until the body ends, or until it is longer than any error of a provider, and is searched.
"""

import re
from enum import Enum, auto

import orjson

from proxy.kit.errors import ErrorForm, UpstreamUnavailable, sse_error
from proxy.kit.secrets import MOST_BYTES, Redaction, excerpt
from proxy.kit.value import dataclass, field
from proxy.protocol.wire.json_body import behind_space, read_or_mended, values_within

MAX_EVENT_BYTES = 1 << 20
"""A longer event is content (audio, an image), and is passed on as it comes."""
# An event's end: the terminator of its last line and that of the empty line. CR LF is one terminator, never two.
END = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r)")
EDGE_BYTES = 3
"""How many bytes of an event's end may be in the chunk before, if the end is cut in two."""
_DATA = re.compile(rb"(?:^|[\r\n])data(?::\ ?([^\r\n]*+)|(?=[\r\n]|$))")
_TERMINATORS = re.compile(rb"[\r\n]*+")
BOM = b"\xef\xbb\xbf"
END_OF_EVENT = b"\n\n"
"""Ends an event, and any line in it."""
DONE = b"data: [DONE]\n\n"
"""The event that ends a stream in OpenAI's format."""


def event_of(data: bytes) -> bytes:
    """An event with this data, which is one line."""
    return b"data: " + data + b"\n\n"


class EventPart(Enum):
    """The kind of a part of a stream."""

    EVENT = auto()
    """A whole event."""
    PIECE = auto()
    """A piece of an event that is too long to be kept."""
    LAST_PIECE = auto()
    """The last piece of such an event, or all of it."""
    BLANK = auto()
    """Blank lines between events."""


@dataclass(slots=True, eq=False)
class EventCutter:
    """Cuts a stream of events into parts. Together, the parts have all bytes of the stream."""

    # The pieces are joined only once, so that small pieces take no more time than large ones.
    _waiting: list[bytes] = field(default_factory=list)
    _size: int = 0
    _edge: bytes = b""  # the last bytes that wait or, for a long event, the last bytes that were given out
    _is_long: bool = False
    is_between: bool = True
    """Whether no part of the next event has come yet. It is read for every chunk, and is known for most of them."""

    def feed(self, chunk: bytes) -> list[tuple[bytes, EventPart]]:
        """The parts that are complete with this chunk."""
        if self._is_long:
            return self._cut(self._edge + chunk, len(self._edge), 0)
        if self._size + len(chunk) <= MAX_EVENT_BYTES and END.search(self._edge + chunk) is None:
            self._waiting.append(chunk)
            self._size += len(chunk)
            self._edge = (self._edge + chunk)[-EDGE_BYTES:]
            self.is_between = self._size == 0
            return []
        return self._cut(b"".join((*self._waiting, chunk)), 0, self._size - len(self._edge))

    def close(self) -> list[tuple[bytes, EventPart]]:
        """The rest. An event without its empty line still counts as an event, because most clients read it so."""
        rest = b"".join(self._waiting)
        self._waiting.clear()
        first = behind_space(rest, 0, _TERMINATORS)
        return [part for part in ((rest[:first], EventPart.BLANK), (rest[first:], EventPart.EVENT)) if part[0]]

    def _cut(self, data: bytes, position: int, search_from: int) -> list[tuple[bytes, EventPart]]:
        """The parts of the data after ``position``. No event ends before ``search_from``."""
        found: list[tuple[bytes, EventPart]] = []
        while True:
            if not self._is_long:
                first = behind_space(data, position, _TERMINATORS)
                if first > position:
                    found.append((data[position:first], EventPart.BLANK))
                position, search_from = first, max(first, search_from)
            ended = END.search(data, search_from)
            # A CR at the very end may be half of a CR LF. This decides where the next event starts.
            if ended is None or (ended.end() == len(data) and data.endswith(b"\r")):
                break
            end = ended.end()
            is_long = self._is_long or end - position > MAX_EVENT_BYTES
            found.append((data[position:end], EventPart.LAST_PIECE if is_long else EventPart.EVENT))
            self._is_long = False
            position = search_from = end
        rest = data[position:]
        self._is_long = self._is_long or len(rest) > MAX_EVENT_BYTES
        self._edge = (data if self._is_long else rest)[-EDGE_BYTES:]
        self.is_between = not (rest or self._is_long)
        if self._is_long:
            found.append((rest, EventPart.PIECE))
            rest = b""
        self._waiting, self._size = [rest], len(rest)
        return found


def event_data(event: bytes) -> bytes:
    """The data of an event: its data lines, joined."""
    return b"\n".join(_DATA.findall(event.removeprefix(BOM)))


def payload_of(data: bytes) -> object:
    """The data of an event as JSON. None if it is no JSON. Half of a surrogate pair is read as another character."""
    return read_or_mended(orjson.loads, data)


# An event that begins so is an error, whatever its data is.
NAMED_ERROR = re.compile(rb"event: ?error")
_ERROR = re.compile(rb'"error"(?!\s?:\s?null)|(?:^|[\r\n])event: ?error')
# Members in which the Responses API repeats parts of the request: schemas, whose properties may have any name.
_ECHOED = frozenset({"tools", "text", "metadata"})
ERROR_EDGE_BYTES = 32
"""This many bytes at the end of a piece are judged together with the next piece. It is more than the text that shows an
error."""


@dataclass(slots=True, eq=False)
class ErrorEvents:
    """The events of one stream."""

    _redaction: Redaction
    _cutter: EventCutter = field(default_factory=EventCutter)
    # Whether pieces of a long event have come, and the event has not ended.
    _is_long: bool = False
    # The bytes of a long event that have not passed, because an error begins or may begin in them.
    _waiting: bytes = b""
    # Whether the rest of the long event belongs to an error that was replaced, and is dropped.
    _is_dropping: bool = False

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk; returns what may be passed on: whole events, and pieces of long ones."""
        # Nearly every chunk consists of whole events without the word "error".
        if self._cutter.is_between and chunk.endswith(b"\n\n") and (b"error" not in chunk or error_in(chunk) is None):
            return chunk
        return b"".join([self._shown(part, kind) for part, kind in self._cutter.feed(chunk)])

    def close(self) -> bytes:
        """The stream has ended. Returns the bytes that were kept."""
        shown = [self._shown(part, kind) for part, kind in self._cutter.close()]
        return b"".join([*shown, self._redacted(self._waiting)])

    def _shown(self, part: bytes, kind: EventPart) -> bytes:
        was_long, self._is_long = self._is_long, kind is EventPart.PIECE
        if self._is_dropping:
            self._is_dropping = self._is_long
            return b""
        text, self._waiting = self._waiting + part, b""
        if not self._is_long:
            return self._redacted(text)
        error_at, judged = error_in(text), len(text) - ERROR_EDGE_BYTES
        if error_at is not None and error_at < judged and (not was_long or len(text) - error_at > MOST_BYTES):
            self._is_dropping = True
            return _stand_in(text)
        passing = max(0, judged if error_at is None else min(error_at, judged))
        self._waiting = text[passing:]
        return text[:passing]

    def _redacted(self, text: bytes) -> bytes:
        """The part of a text that may be shown. The text has its whole event, or all that is left of the event."""
        if error_in(text) is None or (len(text) > MOST_BYTES and not _is_error(text)):
            return text
        return self._redaction.body(short) if (short := excerpt(text)) is not None else _stand_in(text)


def _stand_in(event: bytes) -> bytes:
    """The error event that replaces one that is too long to be shown."""
    error = UpstreamUnavailable(f"the upstream failed; its error has more than {MOST_BYTES} bytes and is not shown")
    return sse_error(error, ErrorForm.ANTHROPIC if NAMED_ERROR.match(event) else ErrorForm.OPENAI)


def error_in(events: bytes) -> int | None:
    """The first place where an error shows. None if no error shows."""
    found = _ERROR.search(events) if b"error" in events else None
    return None if found is None else found.start()


def _is_error(event: bytes) -> bool:
    """Whether a long event with the word "error" says that something failed. An event that cannot be read counts as an
    error, because it may quote a key."""
    if (payload := payload_of(event_data(event))) is None or NAMED_ERROR.match(event):
        return True
    return any(isinstance(one, dict) and one.get("error") is not None for one in values_within(payload, _ECHOED))


# This many bytes before the word are searched as well, if they have not passed: a message may stand before it.
_BEFORE_BYTES = 4 << 10


@dataclass(slots=True, eq=False)
class ErrorBody:
    """One body."""

    _redaction: Redaction
    # The bytes that have not passed, because an error begins or may begin in them.
    _waiting: bytes = b""
    _is_searched: bool = False

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk. Returns the bytes that may be passed on."""
        if self._is_searched:
            return chunk
        text = self._waiting + chunk
        error_at = error_in(text)
        passing = max(0, len(text) - ERROR_EDGE_BYTES if error_at is None else error_at - _BEFORE_BYTES)
        passed, self._waiting = text[:passing], text[passing:]
        if len(self._waiting) <= MOST_BYTES:
            return passed
        self._is_searched = True
        return passed + self.close()

    def close(self) -> bytes:
        """The body has ended. Returns the bytes that were kept."""
        kept, self._waiting = self._waiting, b""
        if error_in(kept) is None:
            return kept
        return self._redaction.body(kept[:MOST_BYTES]) + kept[MOST_BYTES:]
