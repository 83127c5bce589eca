"""Error events in a stream of server-sent events, with the operator's secrets taken out of them.

Sans-IO. A provider that fails in the middle of an answer says so in an event, and may quote the key. All other events
pass byte for byte. Each passes as soon as it is whole: half an event may turn out to be the beginning of an error. An
error that is too long to be looked through is cut, or another stands in its place.
"""

import re

from proxy.core.secrets.excerpt import MOST_BYTES, excerpt
from proxy.core.secrets.redaction import Redaction
from proxy.errors import ErrorForm, UpstreamUnavailable, sse_error

MAX_EVENT_BYTES = 1 << 20
_END = re.compile(rb"\r\n\r\n|\n\n|\r\r|\n\r\n")
_LONGEST_END = 3
"""Bytes of an end of an event that may stand at the end of a chunk."""
_NAMED = re.compile(rb"event: ?error")
_ERROR = re.compile(rb'"error"(?!\s?:\s?null)|(?:^|[\r\n])event: ?error')


class ErrorEvents:
    """One stream."""

    __slots__ = ("_is_dropping", "_redaction", "_tail")

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction
        self._tail = bytearray()
        self._is_dropping = False
        """What comes up to the next end of an event belongs to an error that was replaced."""

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk; returns what may be passed on: whole events."""
        if self._is_dropping:
            chunk = self._behind_dropped(chunk)
        if not self._tail and chunk.endswith(b"\n\n") and not _is_about_errors(chunk):
            return chunk
        known = len(self._tail)
        self._tail += chunk
        end = _last_end(self._tail, known)
        if end == 0 and len(self._tail) <= MAX_EVENT_BYTES:
            return b""
        buffer = bytes(self._tail)
        if end == 0:
            self._tail = bytearray()
            if not _is_about_errors(buffer):
                # Audio, an image.
                return buffer
            self._tail, self._is_dropping = bytearray(buffer[-_LONGEST_END:]), True
            return _stand_in(buffer)
        self._tail = bytearray(buffer[end:])
        return self._redacted(buffer[:end])

    def close(self) -> bytes:
        """The stream has ended; returns what was kept."""
        tail, self._tail = bytes(self._tail), bytearray()
        return b"" if self._is_dropping else self._redacted(tail)

    def _behind_dropped(self, chunk: bytes) -> bytes:
        """What stands in the chunk behind the error that was replaced."""
        text = bytes(self._tail) + chunk
        end = _END.search(text)
        if end is None:
            self._tail = bytearray(text[-_LONGEST_END:])
            return b""
        self._tail, self._is_dropping = bytearray(), False
        return text[end.end() :]

    def _redacted(self, events: bytes) -> bytes:
        if not _is_about_errors(events):
            return events
        return b"".join(self._shown(event) if _is_about_errors(event) else event for event in _split(events))

    def _shown(self, event: bytes) -> bytes:
        short = excerpt(event)
        return self._redaction.body(short) if short is not None else _stand_in(event)


def _stand_in(event: bytes) -> bytes:
    """An error event in the place of one that is too long to be shown."""
    error = UpstreamUnavailable(f"the upstream failed; its error has more than {MOST_BYTES} bytes and is not shown")
    return sse_error(error, ErrorForm.ANTHROPIC if _NAMED.match(event) else ErrorForm.OPENAI)


def _is_about_errors(events: bytes) -> bool:
    return b"error" in events and _ERROR.search(events) is not None


def _last_end(buffer: bytearray, known: int) -> int:
    """The end of the last whole event. It is 0 where no event is whole."""
    end = 0
    for match in _END.finditer(buffer, max(0, known - 3)):
        end = match.end()
    return end


def _split(events: bytes) -> list[bytes]:
    parts, start = [], 0
    for match in _END.finditer(events):
        parts.append(events[start : match.end()])
        start = match.end()
    return [*parts, events[start:]]
