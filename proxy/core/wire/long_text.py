"""Long texts, decoded and encoded piece by piece: while one call of C works at a text, no other thread runs. Pure.

A JSON string is cut where neither a character, nor an escape, nor the two escapes of one surrogate pair are parted, so
that the pieces' texts are the whole text.
"""

import re
from collections.abc import Iterator

import orjson

from proxy.core.wire.surrogates import loads

PIECE_BYTES = 512 << 10
"""About two milliseconds of decoding."""
_PAIR_BYTES = len(rb"\ud83d\ude00")
_PAIR = re.compile(rb"\\u[dD][89abAB]..\\u[dD][c-fC-F]")


def string_text(raw: bytes, start: int, end: int) -> str:
    """The text of a JSON string that stands between these places, its quotes left out; halves of surrogate pairs are
    kept. Raises ValueError for what is no string."""
    return "".join(_texts(raw, start, end))


def utf8(text: str) -> bytes:
    """The text as UTF-8, in which halves of surrogate pairs are kept."""
    if len(text) <= PIECE_BYTES:
        return text.encode("utf-8", "surrogatepass")
    places = range(0, len(text), PIECE_BYTES)
    return b"".join([text[at : at + PIECE_BYTES].encode("utf-8", "surrogatepass") for at in places])


def _texts(raw: bytes, start: int, end: int) -> Iterator[str]:
    while start < end:
        behind = _behind_piece(raw, start, end)
        piece = b'"' + raw[start:behind] + b'"'
        try:
            text = orjson.loads(piece)
        except orjson.JSONDecodeError:
            text = loads(piece)
        if not isinstance(text, str):
            raise ValueError("no string")
        yield text
        start = behind


def _behind_piece(raw: bytes, start: int, end: int) -> int:
    """The end of the piece that begins at ``start``. It never splits an escape."""
    at = start + PIECE_BYTES
    if at >= end:
        return end
    while at < end and raw[at] & 0xC0 == 0x80:
        at += 1
    last = raw.rfind(b"\\", max(start, at - _PAIR_BYTES), at)
    if last >= 0:
        run = raw[start : last + 1]
        # Of a run of backslashes each second one ends an escape.
        if (len(run) - len(run.rstrip(b"\\"))) % 2:
            at = max(at, last + _escape_bytes(raw, last))
    return min(at, end)


def _escape_bytes(raw: bytes, at: int) -> int:
    """The length of the escape that begins here, with the other half of its pair."""
    if raw[at + 1 : at + 2] != b"u":
        return 2
    return _PAIR_BYTES if _PAIR.match(raw, at) else _PAIR_BYTES // 2
