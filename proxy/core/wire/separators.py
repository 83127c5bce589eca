"""How many commas of a JSON text stand outside of its strings: a bound for what taking the text apart would build.

Each element of an array and each member of an object but the first stands behind such a comma. Commas within strings,
which every file has in thousands, do not count. No pattern looks at more than a piece at once, so that other threads
get their turn.
"""

import re

from proxy.core.wire.scan import INSIDE, PIECE_BYTES

_BETWEEN = re.compile(rb'[^"]*+')
_AT_ONCE = 1_000
_MANY = re.compile(rb'(?:(?:[^",]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+,){%d}+|' % _AT_ONCE, re.DOTALL)


def counted(raw: bytes, needle: bytes) -> int:
    """How often the needle stands in the text, counted piece by piece. The needle must not overlap with itself."""
    more = len(needle) - 1
    return sum(raw.count(needle, at, at + PIECE_BYTES + more) for at in range(0, len(raw), PIECE_BYTES))


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
            at = _behind_string(raw, at + 1)
    return at, commas


def _behind_string(raw: bytes, at: int) -> int:
    """The place behind the string that has begun before ``at``; the end of the text where the string does not end."""
    while at < len(raw):
        inside = INSIDE.match(raw, at, at + PIECE_BYTES)
        assert inside is not None
        if raw[inside.end() : inside.end() + 1] == b'"':
            return inside.end() + 1
        if inside.end() == at:
            return len(raw)
        at = inside.end()
    return at
