"""Error events in a stream of server-sent events, with the operator's secrets taken out of them.

Sans-IO. A provider that fails in the middle of an answer says so in an event, and may quote the key. All other events
pass byte for byte. Each passes as soon as it is whole: half an event may turn out to be the beginning of an error. An
error that is too long to be looked through is cut, or another stands in its place. An event that is too long to be kept
passes piece by piece, up to the piece in which an error shows.
"""

import re

from proxy.core.response.event_format import EventCutter, Part
from proxy.core.secrets.excerpt import MOST_BYTES, excerpt
from proxy.core.secrets.redaction import Redaction
from proxy.errors import ErrorForm, UpstreamUnavailable, sse_error

_NAMED = re.compile(rb"event: ?error")
_ERROR = re.compile(rb'"error"(?!\s?:\s?null)|(?:^|[\r\n])event: ?error')
_EDGE_BYTES = 32
"""More than what shows an error has: so many bytes of a piece are looked at again with the next one."""


class ErrorEvents:
    """The events of one stream."""

    __slots__ = ("_cutter", "_edge", "_is_dropping", "_redaction")

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction
        self._cutter = EventCutter()
        self._edge: bytes | None = None
        """The last bytes of a long event that has begun; None where none has."""
        self._is_dropping = False
        """The rest of the long event belongs to an error that was replaced."""

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk; returns what may be passed on: whole events, and pieces of long ones."""
        if self._cutter.is_between and chunk.endswith(b"\n\n") and not _is_about_errors(chunk):
            return chunk
        return b"".join([self._shown(part, kind) for part, kind in self._cutter.feed(chunk)])

    def close(self) -> bytes:
        """The stream has ended; returns what was kept."""
        return b"".join([self._shown(part, kind) for part, kind in self._cutter.close()])

    def _shown(self, part: bytes, kind: Part) -> bytes:
        is_first, is_last = self._edge is None, kind is not Part.PIECE
        looked_at = (self._edge or b"") + part
        self._edge = None if is_last else looked_at[-_EDGE_BYTES:]
        if self._is_dropping:
            self._is_dropping = not is_last
            return b""
        if not _is_about_errors(looked_at):
            return part
        short = excerpt(part) if is_first and is_last else None
        if short is not None:
            return self._redaction.body(short)
        self._is_dropping = not is_last
        return _stand_in(part)


def _stand_in(event: bytes) -> bytes:
    """An error event in the place of one that is too long to be shown."""
    error = UpstreamUnavailable(f"the upstream failed; its error has more than {MOST_BYTES} bytes and is not shown")
    return sse_error(error, ErrorForm.ANTHROPIC if _NAMED.match(event) else ErrorForm.OPENAI)


def _is_about_errors(events: bytes) -> bool:
    return b"error" in events and _ERROR.search(events) is not None
