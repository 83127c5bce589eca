"""The outline of a JSON text that is too long to be kept: the facts that an answer states about itself, without its
content.

An answer may be an image, an hour of sound or a million numbers, and its cost is in a few bytes somewhere in it. The
text is fed piece by piece as it passes. The outline is JSON of the same form: long strings are empty, long lists of
numbers have one number, and values that are nested too deeply, or are too large for one member, are null. A text inside
a string is never read as a member, whatever it quotes. Pure.

``MOST_BYTES`` bounds the memory, and also the work that is done token by token. The rest is skipped by patterns.

``LongEvent`` reads the data of a server-sent event in the same way.
"""

import re

from proxy.core.response.event_format import BOM
from proxy.core.wire.scan import INSIDE, PIECE_BYTES, RUN, SHALLOW

MOST_BYTES = 256 << 10
"""The most bytes of an outline."""
_MOST_STRING_BYTES = 1024
_MOST_RUN_BYTES = 256
_MOST_DEPTH = 10
# Short strings and short lists of numbers, and the text between them. They are kept as they are.
_SHORT = re.compile(rb'(?:[^"\[\]{}]{0,128}+(?:"[^"\\]{0,256}+"|\[[^"\[\]{}]{0,64}+\]|\{\}))++')
_SPACE = b" \t\r\n"
_KEPT = -1


class Outline:
    """Takes a text in pieces of any size."""

    def __init__(self) -> None:
        self._out = bytearray()
        self._depth = 0
        self._starts: list[int] = []  # the places in the outline where the open containers that are kept begin
        self._skip_to = _KEPT  # the depth of the text at which the part that is skipped now will have ended
        self._run = bytearray()  # the text between two brackets or strings: numbers, words, commas and colons
        self._last = b""  # the last byte of a run that is too long to be kept
        self._is_in_string = self._is_escaped = False
        self._string_at = _KEPT  # the place in the outline where the current string begins
        self._is_long = False
        self._is_lost = False

    def feed(self, text: bytes) -> None:
        """Take the next piece of the text."""
        for begin in range(0, len(text), PIECE_BYTES):
            piece, at = text[begin : begin + PIECE_BYTES], 0
            while at < len(piece) and not self._is_lost:
                if self._is_in_string:
                    at = self._in_string(piece, at)
                elif self._skip_to != _KEPT:
                    at = self._skip(piece, at)
                else:
                    at = self._keep(piece, at)

    def text(self) -> bytes:
        """The outline of a text that has ended. Empty if the text has too many members."""
        self._end_run()
        return b"" if self._is_lost else bytes(self._out)

    def _in_string(self, piece: bytes, at: int) -> int:
        if self._is_escaped:
            self._is_escaped = False
            self._add(piece[at : at + 1])
            return at + 1
        found = INSIDE.match(piece, at)
        assert found is not None
        end = found.end()
        self._add(piece[at:end])
        if end == len(piece):
            return end
        self._is_in_string = piece[end] != ord('"')
        self._is_escaped = self._is_in_string  # by a backslash that is the last byte of the piece
        self._add(piece[end : end + 1], is_end=not self._is_in_string)
        return end + 1

    def _add(self, part: bytes, *, is_end: bool = False) -> None:
        """Add a part of a string. A long string is kept without its content."""
        if self._skip_to != _KEPT:
            return
        if not self._is_long and len(self._out) + len(part) - self._string_at > _MOST_STRING_BYTES:
            self._is_long = True
            del self._out[self._string_at + 1 :]
        if is_end or not self._is_long:
            self._out += part

    def _skip(self, piece: bytes, at: int) -> int:
        found = SHALLOW.match(piece, at)
        assert found is not None
        at = found.end()
        if at == len(piece):
            return at
        if piece[at] == ord('"'):
            self._is_in_string = True
        else:
            self._depth += 1 if piece[at] in b"[{" else -1
            if self._depth <= self._skip_to:
                self._skip_to = _KEPT
        return at + 1

    def _keep(self, piece: bytes, at: int) -> int:
        if self._starts and not self._last and (short := _SHORT.match(piece, at)) is not None:
            self._end_run()
            self._out += short[0]
            if len(self._out) > MOST_BYTES:
                self._shorten()
            return short.end()
        found = RUN.match(piece, at)
        assert found is not None
        if found.end() > at:
            self._add_run(found[0].translate(None, _SPACE))
            at = found.end()
        if at == len(piece):
            return at
        self._end_run()
        mark = piece[at : at + 1]
        if mark == b'"':
            self._is_in_string, self._is_long, self._string_at = True, False, len(self._out)
            self._out += mark
        elif mark in b"[{":
            self._open(mark)
        elif not self._starts:
            self._is_lost = True
        else:
            self._depth -= 1
            self._starts.pop()
            self._out += mark
        if len(self._out) > MOST_BYTES:
            self._shorten()
        return at + 1

    def _open(self, mark: bytes) -> None:
        if self._depth >= _MOST_DEPTH:
            self._skip_to = self._depth
            self._out += b"null"
        else:
            self._starts.append(len(self._out))
            self._out += mark
        self._depth += 1

    def _add_run(self, run: bytes) -> None:
        if len(self._run) + len(run) <= _MOST_RUN_BYTES and not self._last:
            self._run += run
        elif run:
            self._run[1:] = b""
            self._run += b"" if self._run else run[:1]
            self._last = run[-1:]

    def _end_run(self) -> None:
        """End a run. A long run is a list of numbers, or one number that is too long; one number replaces it."""
        if self._last:
            before = self._run if self._run[:1] in b",:" else b""
            self._out += before + b"0" + (b"," if self._last == b"," else b"")
        else:
            self._out += self._run
        self._run.clear()
        self._last = b""

    def _shorten(self) -> None:
        """Replace a member that is too large by null. It is a member of the whole text or, if the text is an object
        around another one (an event around its response), of the inner object."""
        level = 2 if len(self._starts) > 2 and self._out[self._starts[1]] == ord("{") else 1
        if len(self._starts) <= level:
            self._is_lost = True
            return
        del self._out[self._starts[level] :]
        self._out += b"null"
        del self._starts[level:]
        self._skip_to = level


_LINE_END = re.compile(rb"[\r\n]")
# All lines but the last one, which may go on. An event may have a line in every second byte.
_LINES = re.compile(rb"[\r\n]data:([^\r\n]*+)(?=[\r\n])")
_DATA = b"data:"
_HEAD_BYTES = len(BOM + _DATA)


class LongEvent:
    """Takes the bytes of one event in parts of any size."""

    def __init__(self) -> None:
        self._outline = Outline()
        self._head: bytes | None = b""  # the beginning of a line, until it is long enough to show its field
        self._is_data = False

    def feed(self, part: bytes) -> None:
        """Take a part of the event."""
        if (found := _LINE_END.search(part)) is None:
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
        """Take a piece of a line, or the rest of the line."""
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
