"""Error events in a stream of server-sent events, with the operator's secrets taken out of them.

Sans-IO. A provider that fails in the middle of an answer says so in an event, and may quote the key. All other events
pass unchanged, byte for byte. Each event passes as soon as it is whole, because half an event may be the beginning of
an error. An error that is too long to be searched is cut or replaced by another one. An event that is too long to be
kept passes piece by piece until an error shows in it. A long event in which only the request's own members (a tool's
schema) have something called ``error`` is no error, and passes whole.
"""

import re

from proxy.core.response.event_format import EventCutter, Part, event_data, payload_of
from proxy.core.secrets.redaction import MOST_BYTES, Redaction, excerpt
from proxy.core.wire.json_body import values_within
from proxy.errors import ErrorForm, UpstreamUnavailable, sse_error

_NAMED = re.compile(rb"event: ?error")
_ERROR = re.compile(rb'"error"(?!\s?:\s?null)|(?:^|[\r\n])event: ?error')
_ECHOED = frozenset({"tools", "text", "metadata"})
"""Members in which the Responses API repeats parts of the request: schemas, whose properties may have any name."""
EDGE_BYTES = 32
"""This many bytes at the end of a piece are judged together with the next piece. It is more than the text that shows an
error."""


class ErrorEvents:
    """The events of one stream."""

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction
        self._cutter = EventCutter()
        self._is_long = False
        """Whether pieces of a long event have come, and the event has not ended."""
        self._waiting = b""
        """The bytes of a long event that have not passed, because an error begins or may begin in them."""
        self._is_dropping = False
        """Whether the rest of the long event belongs to an error that was replaced, and is dropped."""

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

    def _shown(self, part: bytes, kind: Part) -> bytes:
        was_long, self._is_long = self._is_long, kind is Part.PIECE
        if self._is_dropping:
            self._is_dropping = self._is_long
            return b""
        text, self._waiting = self._waiting + part, b""
        if not self._is_long:
            return self._redacted(text)
        error_at, judged = error_in(text), len(text) - EDGE_BYTES
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
        short = excerpt(text)
        return self._redaction.body(short) if short is not None else _stand_in(text)


def _stand_in(event: bytes) -> bytes:
    """The error event that replaces one that is too long to be shown."""
    error = UpstreamUnavailable(f"the upstream failed; its error has more than {MOST_BYTES} bytes and is not shown")
    return sse_error(error, ErrorForm.ANTHROPIC if _NAMED.match(event) else ErrorForm.OPENAI)


def error_in(events: bytes) -> int | None:
    """The first place where an error shows. None if no error shows."""
    found = _ERROR.search(events) if b"error" in events else None
    return None if found is None else found.start()


def _is_error(event: bytes) -> bool:
    """Whether a long event with the word "error" says that something failed. An event that cannot be read counts as an
    error, because it may quote a key."""
    if (payload := payload_of(event_data(event))) is None or _NAMED.match(event):
        return True
    return any(isinstance(one, dict) and one.get("error") is not None for one in values_within(payload, _ECHOED))
