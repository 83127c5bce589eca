"""How many commas and names of a JSON text stand outside of its strings, without taking the text apart.

The commas are a bound for what taking it apart would build: each element of an array and each member of an object but
the first stands behind one. Commas within strings, which every file has in thousands, do not count. No call looks at
more than a piece at once, so that other threads get their turn.
"""

import re

from msgspec import Raw

from proxy.core.wire.scan import PIECE_BYTES, behind_string

_BETWEEN = re.compile(rb'[^"]*+')
_AS_BACKSLASHES = bytes.maketrans(b",[{ \t\r\n", b"\\" * 7)
_AT_ONCE = 1_000
_MANY = re.compile(rb'(?:(?:[^",]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+,){%d}+|' % _AT_ONCE, re.DOTALL)


def counted(raw: Raw | bytes, *wanted: bytes) -> int:
    """How often these bytes stand in the text; a pair that a piece ends within is left out."""
    view = memoryview(raw)
    pieces = (bytes(view[at : at + PIECE_BYTES]) for at in range(0, len(view), PIECE_BYTES))
    return sum(piece.count(each) for piece in pieces for each in wanted)


def names_in(raw: bytes) -> int:
    """How many names of members the JSON of an object or an array has at least: those that a quote and a colon end.

    Where these two stand elsewhere, the quote begins a string, behind white space or one of ``:,[{``, or it stands
    within one, behind a backslash. What stands behind one of these is not counted. This leaves out names, too,
    that end with one of them or have white space before their colon.
    """
    names = 0
    for at in range(0, len(raw), PIECE_BYTES):
        first = min(at, 1)
        piece = raw[at - first : at + PIECE_BYTES + 1].translate(_AS_BACKSLASHES)
        names += piece.count(b'":', first) - piece.count(b'\\":') - piece.count(b':":')
    return names


def has_more_commas(raw: bytes, most: int) -> bool:
    """Whether more than so many commas stand outside of the strings of a JSON text. The work ends with the first comma
    too many."""
    if len(raw) <= 2 * most or counted(raw, b",") <= most:  # behind each comma stands a value
        return False
    at, commas = 0, 0
    while at < len(raw) and commas <= most:
        many = _MANY.match(raw, at, at + PIECE_BYTES)
        assert many is not None
        if many.end() > at:
            at, commas = many.end(), commas + _AT_ONCE
        else:
            at, commas = _one_by_one(raw, at, commas)
    return commas > most


def _one_by_one(raw: bytes, at: int, commas: int) -> tuple[int, int]:
    """The place behind a piece, or behind the string in which it ends, and the commas up to there."""
    end = at + PIECE_BYTES
    while at < min(end, len(raw)):
        between = _BETWEEN.match(raw, at, end)
        assert between is not None
        commas += raw.count(b",", at, between.end())
        at = between.end()
        if raw[at : at + 1] == b'"':
            behind = behind_string(raw, at)
            at = behind if behind >= 0 else len(raw)
    return at, commas
