"""Reads and writes JSON that holds one half of a surrogate pair alone, as JavaScript's strings may, and text from it.

``"\\ud83d"`` is valid JSON (RFC 8259 section 8.2), but it is no Unicode text, so that quick readers refuse it. Here
such bytes are read by their shape: a copy of the same length is made that every reader accepts. Each value has the same
place in the copy and in the client's bytes.
"""

import json
import re
from collections.abc import Callable, Iterator
from itertools import product
from typing import TypeVar

import msgspec
import orjson

T = TypeVar("T")

_PAIR_BYTES = len(rb"\ud83d\ude00")
_PAIR = re.compile(rb"\\u[dD][89abAB]..\\u[dD][c-fC-F]")
_PIECE_BYTES = 128 << 10
_STARTS = (rb"\ud", rb"\uD")


def mended(body: bytes) -> bytes:
    """The body with every surrogate replaced by something that can be read, which is good enough for its shape. Raises
    UnicodeDecodeError if the body is no UTF-8, apart from surrogates."""
    found = _replaced(body.removeprefix(b"\xef\xbb\xbf"), rb"\u005c")
    found.decode()
    return found


def read_or_mended(read: Callable[[bytes], T], body: bytes) -> T | None:
    """The value that a reader of JSON reads from the body. If the reader refuses surrogates, each one is replaced by
    another character. None if the reader cannot read the body."""
    for form in (bytes, mended):
        try:
            return read(form(body))
        except (msgspec.DecodeError, ValueError, RecursionError):
            continue
    return None


def same_shape(raw: bytes) -> bytes | None:
    """A copy of the same length in which every value has the same place, and no string holds a surrogate or an escaped
    backslash. None if the JSON has no surrogate at all."""
    if not any(start in raw for start in (*_STARTS, b"\xed")):
        return None
    return _replaced(raw, b"__")


def loads(raw: bytes) -> object:
    """A JSON value whose texts keep their surrogates. Raises ValueError and RecursionError."""
    return json.loads(raw.decode("utf-8", "surrogatepass"), parse_constant=_refused)


def dumps(found: object) -> bytes:
    """A value from ``loads``, as JSON again. A surrogate is written as an escape. Raises RecursionError."""
    try:
        return orjson.dumps(found)
    except orjson.JSONEncodeError:  # a surrogate, or a number that is too large
        return json.dumps(found, separators=(",", ":")).encode()


def text_json(text: str) -> bytes:
    """A text as JSON. A surrogate is written as an escape."""
    return dumps(text)


def raw_text(raw: bytes) -> str:
    """The JSON of a value as text, as it is written. A surrogate is one character, like any other character of its
    length. Bytes that are no UTF-8 become the replacement character."""
    try:
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return raw.decode("utf-8", "replace")


def printable(text: str) -> str:
    """The text with each surrogate replaced by its escape, so that it can be written anywhere."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _refused(constant: str) -> object:
    raise ValueError(f"{constant} is no JSON")


def _replaced(text: bytes, backslash: bytes) -> bytes:
    """The bytes with surrogates replaced by other characters. ``backslash`` replaces an escaped backslash.

    Escaped backslashes are replaced first, so that each backslash that is left begins an escape. Plain replacements
    take a tenth of the time of a regular expression here.
    """
    return b"".join([_replaced_in_piece(piece, backslash) for piece in _pieces(text, 0, len(text), _PIECE_BYTES)])


def _replaced_in_piece(piece: bytes, backslash: bytes) -> bytes:
    if b"\xed" in piece:
        # In UTF-8 these bytes are the first two of a surrogate, and those of another character.
        for second in range(0xA0, 0xC0):
            piece = piece.replace(b"\xed%c" % second, b"\xee%c" % second)
    if starts := [start for start in _STARTS if start in piece]:
        piece = piece.replace(rb"\\", backslash)
    for start, digit in product(starts, b"89abcdefABCDEF"):
        piece = piece.replace(b"%b%c" % (start, digit), rb"\ue%c" % digit)
    return piece


def _pieces(text: bytes, start: int, end: int, piece_bytes: int) -> Iterator[bytes]:
    """The JSON between these places in short pieces, because Python does nothing else while it works on one. Each
    character, each escape, and the two escapes of one surrogate pair are whole in a piece."""
    while start < end:
        behind = min(end, _behind_piece(text, start, piece_bytes))
        yield text[start:behind]
        start = behind


def _behind_piece(text: bytes, start: int, piece_bytes: int) -> int:
    at = start + piece_bytes
    if at >= len(text):
        return len(text)
    most = at + 3  # the most bytes of a character behind its first one
    while at < most and text[at : at + 1] and text[at] & 0xC0 == 0x80:
        at += 1
    last = text.rfind(b"\\", max(start, at - _PAIR_BYTES), at)
    if last >= 0:
        run = text[start : last + 1]
        # In a run of backslashes, each second one ends an escape. The run begins in this piece, because the piece began
        # after an escape.
        if (len(run) - len(run.rstrip(b"\\"))) % 2:
            is_short = text[last + 1 : last + 2] != b"u"
            at = max(at, last + (2 if is_short else _PAIR_BYTES if _PAIR.match(text, last) else _PAIR_BYTES // 2))
    return min(at, len(text))


PIECE_BYTES = 512 << 10
"""About two milliseconds of decoding."""


def string_text(raw: bytes, start: int, end: int) -> str:
    """The text of the JSON string between these places, without its quotes. Halves of surrogate pairs are kept. It is
    decoded piece by piece, because no other thread runs while one call of C works on a text. Raises ValueError if this
    is no string."""
    texts: list[str] = []
    for piece in _pieces(raw, start, end, PIECE_BYTES):
        try:
            text = orjson.loads(b'"%b"' % piece)
        except orjson.JSONDecodeError:
            text = loads(b'"%b"' % piece)
        if not isinstance(text, str):
            raise ValueError("no string")
        texts.append(text)
    return "".join(texts)


def utf8(text: str) -> bytes:
    """The text as UTF-8, in which halves of surrogate pairs are kept."""
    if len(text) <= PIECE_BYTES:
        return text.encode("utf-8", "surrogatepass")
    places = range(0, len(text), PIECE_BYTES)
    return b"".join([text[at : at + PIECE_BYTES].encode("utf-8", "surrogatepass") for at in places])
