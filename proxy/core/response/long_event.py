"""A server-sent event that is too long to be kept, read as it passes: the outline of its data. Pure."""

import re

from proxy.core.response.event_format import BOM
from proxy.core.response.outline import Outline

_LINE_END = re.compile(rb"[\r\n]")
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
        at = 0
        while at < len(part):
            found = _LINE_END.search(part, at)
            end = len(part) if found is None else found.start()
            self._take(part[at:end], is_whole=found is not None)
            if found is not None:
                self._head, self._is_data = b"", False
            at = end + 1

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
