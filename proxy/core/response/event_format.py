"""Server-sent events as bytes: finds the end of an event and its data, and cuts a stream into whole events. Pure.

The format: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream.
"""

import re
from enum import Enum, auto

import orjson

from proxy.core.wire.surrogates import read_or_mended

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


class Part(Enum):
    """The kind of a part of a stream."""

    EVENT = auto()
    """A whole event."""
    PIECE = auto()
    """A piece of an event that is too long to be kept."""
    LAST_PIECE = auto()
    """The last piece of such an event, or all of it."""
    BLANK = auto()
    """Blank lines between events."""


class EventCutter:
    """Cuts a stream of events into parts. Together, the parts have all bytes of the stream."""

    def __init__(self) -> None:
        # The pieces are joined only once, so that small pieces take no more time than large ones.
        self._waiting: list[bytes] = []
        self._size = 0
        self._edge = b""  # the last bytes that wait or, for a long event, the last bytes that were given out
        self._is_long = False
        self.is_between = True
        """Whether no part of the next event has come yet. It is read for every chunk, and is known for most of them."""

    def feed(self, chunk: bytes) -> list[tuple[bytes, Part]]:
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

    def close(self) -> list[tuple[bytes, Part]]:
        """The rest. An event without its empty line still counts as an event, because most clients read it so."""
        rest = b"".join(self._waiting)
        self._waiting.clear()
        first = skip_terminators(rest, 0)
        return [part for part in ((rest[:first], Part.BLANK), (rest[first:], Part.EVENT)) if part[0]]

    def _cut(self, data: bytes, position: int, search_from: int) -> list[tuple[bytes, Part]]:
        """The parts of the data after ``position``. No event ends before ``search_from``."""
        found: list[tuple[bytes, Part]] = []
        while True:
            if not self._is_long:
                first = skip_terminators(data, position)
                if first > position:
                    found.append((data[position:first], Part.BLANK))
                position, search_from = first, max(first, search_from)
            if (end := event_end(data, search_from)) is None:
                break
            is_long = self._is_long or end - position > MAX_EVENT_BYTES
            found.append((data[position:end], Part.LAST_PIECE if is_long else Part.EVENT))
            self._is_long = False
            position = search_from = end
        rest = data[position:]
        self._is_long = self._is_long or len(rest) > MAX_EVENT_BYTES
        self._edge = (data if self._is_long else rest)[-EDGE_BYTES:]
        if self._is_long:
            found.append((rest, Part.PIECE))
            rest = b""
        self._waiting, self._size = [rest], len(rest)
        self.is_between = not (rest or self._is_long)
        return found


def event_end(buffer: bytes, search_from: int) -> int | None:
    """The place after the first end of an event. None if there is none yet."""
    found = END.search(buffer, search_from)
    # A CR at the very end may be half of a CR LF. This decides where the next event starts.
    if found is None or (found.end() == len(buffer) and buffer.endswith(b"\r")):
        return None
    return found.end()


def skip_terminators(buffer: bytes, position: int) -> int:
    """The place after the blank lines at ``position``."""
    found = _TERMINATORS.match(buffer, position)
    return position if found is None else found.end()


def event_data(event: bytes) -> bytes:
    """The data of an event: its data lines, joined."""
    return b"\n".join(_DATA.findall(event.removeprefix(BOM)))


def payload_of(data: bytes) -> object:
    """The data of an event as JSON. None if it is no JSON. Half of a surrogate pair is read as another character."""
    return read_or_mended(orjson.loads, data)
