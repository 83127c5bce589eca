"""Long texts, decoded and encoded piece by piece: while one call of C works at a text, no other thread runs. Pure.

A JSON string is cut where neither a character, nor an escape, nor the two escapes of one surrogate pair are parted, so
that the pieces' texts are the whole text.
"""

from collections.abc import Iterator

import orjson

from proxy.core.wire.surrogates import behind_piece, loads

PIECE_BYTES = 512 << 10
"""About two milliseconds of decoding."""


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
        behind = min(end, behind_piece(raw, start, PIECE_BYTES))
        piece = b'"' + raw[start:behind] + b'"'
        try:
            text = orjson.loads(piece)
        except orjson.JSONDecodeError:
            text = loads(piece)
        if not isinstance(text, str):
            raise ValueError("no string")
        yield text
        start = behind
