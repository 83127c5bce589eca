"""JSON that holds one half of a surrogate pair alone, as JavaScript's strings may, and text that was read from it.

``"\\ud83d"`` is valid JSON (RFC 8259 section 8.2), but it is no Unicode text, so that quick readers refuse it. Here
such bytes are read by their shape: a copy of the same length is made that every reader takes, and where each value
stands in the copy it stands in the client's bytes, too.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec
import orjson

T = TypeVar("T")

_PAIR_BYTES = len(rb"\ud83d\ude00")
_PAIR = re.compile(rb"\\u[dD][89abAB]..\\u[dD][c-fC-F]")
_PIECE_BYTES = 128 << 10
_MOST_CHARACTER_BYTES = 4
_SURROGATE_SECONDS = [b"%c" % second for second in range(0xA0, 0xC0)]
_STARTS = (rb"\ud", rb"\uD")
_SURROGATE_DIGITS = [b"%c" % digit for digit in b"89abcdefABCDEF"]
_ESCAPED_BACKSLASH = rb"\u005c"
_NO_BACKSLASH = b"__"
"""What stands in the place of an escaped backslash where the length must stay."""


def mended(body: bytes) -> bytes:
    """The body with something that can be read in the place of every surrogate: good enough for its shape. Raises
    UnicodeDecodeError for what is no UTF-8 but for those."""
    found = _replaced(body.removeprefix(b"\xef\xbb\xbf"), _ESCAPED_BACKSLASH)
    found.decode()
    return found


def read_or_mended(read: Callable[[bytes], T], body: bytes) -> T | None:
    """What a reader of JSON makes of the body, with another character in the place of every surrogate if it takes none;
    None for what it cannot read."""
    for form in (bytes, mended):
        try:
            return read(form(body))
        except (msgspec.DecodeError, ValueError, RecursionError):
            continue
    return None


def same_shape(raw: bytes) -> bytes | None:
    """A copy of the same length in which every value stands where it stands here, and no string holds a surrogate or
    an escaped backslash; None where no surrogate is written here at all."""
    if not any(start in raw for start in (*_STARTS, b"\xed")):
        return None
    return _replaced(raw, _NO_BACKSLASH)


def loads(raw: bytes) -> object:
    """A JSON value whose texts keep their surrogates. Raises ValueError and RecursionError."""
    found: object = json.loads(raw.decode("utf-8", "surrogatepass"), parse_constant=_refused)
    return found


def dumps(found: object) -> bytes:
    """What ``loads`` has read, as JSON again; a surrogate is written as an escape. Raises RecursionError."""
    try:
        return orjson.dumps(found)
    except orjson.JSONEncodeError:  # a surrogate, or a number that is too large
        return json.dumps(found, separators=(",", ":")).encode()


def text_json(text: str) -> bytes:
    """A text as JSON; a surrogate is written as an escape."""
    return dumps(text)


def raw_text(raw: bytes) -> str:
    """The JSON of a value as text, as it is written: a surrogate is one character, like any other of its length. What
    is no UTF-8 becomes the replacement character."""
    try:
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return raw.decode("utf-8", "replace")


def printable(text: str) -> str:
    """The text with the escape of a surrogate in its place, so that it can be written anywhere."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _refused(constant: str) -> object:
    raise ValueError(f"{constant} is no JSON")


def _replaced(text: bytes, backslash: bytes) -> bytes:
    """The bytes with other characters in the place of surrogates.

    An escaped backslash is written another way first, so that each backslash that is left begins an escape. Plain
    replacements take a tenth of the time of a regular expression here.
    """
    pieces: list[bytes] = []
    position = 0
    while position < len(text):
        end = behind_piece(text, position, _PIECE_BYTES)
        pieces.append(_replaced_in_piece(text[position:end], backslash))
        position = end
    return b"".join(pieces)


def _replaced_in_piece(piece: bytes, backslash: bytes) -> bytes:
    if b"\xed" in piece:
        # In UTF-8 these bytes are the first two of a surrogate, and those of another character.
        for second in _SURROGATE_SECONDS:
            piece = piece.replace(b"\xed" + second, b"\xee" + second)
    starts = [start for start in _STARTS if start in piece]
    if starts:
        piece = piece.replace(rb"\\", backslash)
    for start in starts:
        for digit in _SURROGATE_DIGITS:
            piece = piece.replace(start + digit, rb"\ue" + digit)
    return piece


def behind_piece(text: bytes, start: int, piece_bytes: int) -> int:
    """The end of a piece of JSON that begins at ``start``. Each character, each escape, and the two escapes of one
    surrogate pair are whole in it.

    A piece is short, because Python does nothing else while it works on one.
    """
    at = start + piece_bytes
    if at >= len(text):
        return len(text)
    most = at + _MOST_CHARACTER_BYTES - 1
    while at < most and text[at : at + 1] and text[at] & 0xC0 == 0x80:
        at += 1
    last = text.rfind(b"\\", max(start, at - _PAIR_BYTES), at)
    if last >= 0:
        run = text[start : last + 1]
        # Of a run of backslashes each second one ends an escape. The run begins in this piece: it began behind an
        # escape.
        if (len(run) - len(run.rstrip(b"\\"))) % 2:
            at = max(at, last + _escape_bytes(text, last))
    return min(at, len(text))


def _escape_bytes(text: bytes, at: int) -> int:
    """The length of the escape that begins here, with the other half of its pair."""
    if text[at + 1 : at + 2] != b"u":
        return 2
    return _PAIR_BYTES if _PAIR.match(text, at) else _PAIR_BYTES // 2


PIECE_BYTES = 512 << 10
"""About two milliseconds of decoding."""


def string_text(raw: bytes, start: int, end: int) -> str:
    """The text of a JSON string that stands between these places, its quotes left out; halves of surrogate pairs are
    kept. It is decoded piece by piece: while one call of C works at a text, no other thread runs. Raises ValueError
    for what is no string."""
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
