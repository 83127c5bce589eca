"""Error events in a stream of server-sent events, with the operator's secrets taken out of them.

Sans-IO. A provider that fails in the middle of an answer says so in an event, and may quote the key. All other events
pass byte for byte. Each passes as soon as it is whole: half an event may turn out to be the beginning of an error.
"""

import re

from proxy.core.redaction import Redaction

MAX_EVENT_BYTES = 1 << 20
_END = re.compile(rb"\r\n\r\n|\n\n|\r\r|\n\r\n")
_ERROR = re.compile(rb'"error"(?!\s?:\s?null)|(?:^|[\r\n])event: ?error')


class ErrorEvents:
    """One stream."""

    __slots__ = ("_redaction", "_tail")

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction
        self._tail = b""

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk; returns what may be passed on: whole events."""
        if not self._tail and chunk.endswith(b"\n\n") and not _is_about_errors(chunk):
            return chunk
        buffer = self._tail + chunk
        end = _last_end(buffer, len(self._tail))
        if end == 0 and len(buffer) <= MAX_EVENT_BYTES:
            self._tail = buffer
            return b""
        if end == 0:
            # Audio, an image: no error is that long.
            self._tail = b""
            return self._redacted(buffer)
        self._tail = buffer[end:]
        return self._redacted(buffer[:end])

    def close(self) -> bytes:
        """The stream has ended; returns what was kept."""
        tail, self._tail = self._tail, b""
        return self._redacted(tail)

    def _redacted(self, events: bytes) -> bytes:
        if not _is_about_errors(events):
            return events
        return b"".join(self._redaction.body(event) if _is_about_errors(event) else event for event in _split(events))


def _is_about_errors(events: bytes) -> bool:
    return b"error" in events and _ERROR.search(events) is not None


def _last_end(buffer: bytes, known: int) -> int:
    """Where the last whole event ends; 0 where none is whole."""
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
