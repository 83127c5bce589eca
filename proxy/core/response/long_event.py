"""A server-sent event that is too long to be kept, read as it passes: the outline of its data. Pure."""

import re

from proxy.core.response.event_format import BOM
from proxy.core.response.outline import Outline

_LINE_END = re.compile(rb"[\r\n]")
# All lines but the last, which may go on: an event may have a line in every second byte.
_LINES = re.compile(rb"[\r\n]data:([^\r\n]*+)(?=[\r\n])")
_DATA = b"data:"
_HEAD_BYTES = len(BOM + _DATA)


class LongEvent:
    """Takes the bytes of one event, however they are cut."""

    def __init__(self) -> None:
        self._outline = Outline()
        self._head: bytes | None = b""  # the beginning of a line, until it is long enough to show its field
        self._is_data = False

    def feed(self, part: bytes) -> None:
        """Take a part of the event."""
        found = _LINE_END.search(part)
        if found is None:
            self._take(part, is_whole=False)
            return
        self._take(part[: found.start()], is_whole=True)
        last = max(part.rfind(b"\r"), part.rfind(b"\n"))
        self._outline.feed(b"".join(_LINES.findall(part, found.start(), last + 1)))
        self._head, self._is_data = b"", False
        self._take(part[last + 1 :], is_whole=False)

    def outline(self) -> bytes:
        """The outline of the data of an event that has ended."""
        return self._outline.text()

    def _take(self, piece: bytes, *, is_whole: bool) -> None:
        """A piece of a line, or its rest."""
        if self._head is not None:
            piece, self._head = self._head + piece, None
            if len(piece) < _HEAD_BYTES and not is_whole:
                self._head = piece
                return
            field = piece.removeprefix(BOM)
            self._is_data = field.startswith(_DATA)
            piece = field.removeprefix(_DATA)
        if self._is_data:
            self._outline.feed(piece)
