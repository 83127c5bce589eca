"""Finds the members of a JSON object that is not taken apart, and their places, in one pass over the bytes.

A request that cannot be planned must still be checked against a key's rights, and for that it matters whether a name
occurs twice. Readers of JSON keep one value for each name and do not report the others; this one keeps all values. It
is for bodies that some reader has already found to be an object, whatever its strings hold.

Commas and names of members are also counted, as a bound for what would be built if a text were taken apart: a comma
precedes each element of an array and each member of an object, except the first. Commas within strings do not count,
because every file has thousands of them.

No pattern looks at more than a piece of the body at once, however long a string or a list is, because Python runs no
other thread while a pattern runs.
"""

import json
import re
import unicodedata
from collections.abc import Sequence

from msgspec import Raw

from proxy.kit.value import dataclass

_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
INSIDE = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_SPACE = re.compile(rb"[ \t\r\n]*+")
RUN = re.compile(rb"[^\"\[\]{}]*+")
_WORD = re.compile(rb"[^\s,:\"\[\]{}]*+")
# Patterns for text without brackets, and with brackets of one, two and three levels. Only deeper brackets are counted
# one by one.
_FLAT = rb"[^\"\[\]{}]++|" + _STRING
_NESTED = rb"[\[{](?:" + _FLAT + rb")*+[\]}]"
_NESTED = rb"[\[{](?:" + _FLAT + rb"|" + _NESTED + rb")*+[\]}]"
_NESTED = rb"[\[{](?:" + _FLAT + rb"|" + _NESTED + rb")*+[\]}]"
SHALLOW = re.compile(rb"(?:" + _FLAT + rb"|" + _NESTED + rb")*+", re.DOTALL)
# No request has this many members. A body with more is not understood.
_MOST_MEMBERS = 1000
_MOST_BRACKETS = 100_000
_MOST_NAME_BYTES = 1024
PIECE_BYTES = 256 << 10
"""The most bytes that one pattern looks at in a call: two or three milliseconds of work."""


@dataclass(frozen=True, slots=True)
class Member:
    """One member: its name, the bytes of the name, the bytes of the value, and the place where these begin."""

    name: str
    written: bytes
    value: bytes
    at: int


def scan_members(body: bytes) -> Sequence[Member] | None:
    """All members in their order, also those with equal names. None if the body is not understood."""
    at = behind_space(body, 0)
    if body[at : at + 1] != b"{":
        return None
    found: list[Member] = []
    brackets = _MOST_BRACKETS
    at = behind_space(body, at + 1)
    while body[at : at + 1] != b"}" or found:
        behind_name = behind_string(body, at)
        colon = behind_space(body, max(at, behind_name))
        is_named = behind_name >= 0 and body[colon : colon + 1] == b":"
        if not is_named or behind_name - at > _MOST_NAME_BYTES or len(found) >= _MOST_MEMBERS:
            return None
        start = behind_space(body, colon + 1)
        end, brackets = _behind_value(body, start, brackets)
        if end < 0:
            return None
        written = body[at:behind_name]
        try:
            text = json.loads(written.decode("utf-8", "surrogatepass"), strict=False)
        except ValueError:
            return None
        found.append(Member(text, written, body[start:end], start))
        at = behind_space(body, end)
        if body[at : at + 1] == b"}":
            break
        if body[at : at + 1] != b",":
            return None
        at = behind_space(body, at + 1)
    return found if behind_space(body, at + 1) == len(body) else None


def once(members: Sequence[Member]) -> bytes:
    """An object of the same members in the same order. Of members with equal names, it has the value of the last one at
    the place of the first one."""
    last = {member.name: member for member in members}
    return b"{" + b",".join(member.written + b":" + member.value for member in last.values()) + b"}"


def replaced(body: bytes, name: str, value: bytes) -> bytes:
    """The body with another value for a member that occurs in it once. In any other case it is unchanged."""
    found = [member for member in scan_members(body) or () if member.name == name]
    if len(found) != 1:
        return body
    at, end = found[0].at, found[0].at + len(found[0].value)
    return body[:at] + value + body[end:]


def behind_space(body: bytes, at: int, run: re.Pattern[bytes] = _SPACE) -> int:
    """The end of the white space, or of another ``run`` of bytes, that begins here. It may be empty."""
    while True:
        end = min(at + PIECE_BYTES, len(body))
        found = run.match(body, at, end)
        assert found is not None
        at = found.end()
        if at < end or end == len(body):
            return at


def behind_string(body: bytes, at: int) -> int:
    """The end of the string that begins here. It is -1 if no string begins here, or if the string does not end."""
    if body[at : at + 1] != b'"':
        return -1
    at += 1
    while at < len(body):
        inside = INSIDE.match(body, at, at + PIECE_BYTES)
        assert inside is not None
        if body[inside.end() : inside.end() + 1] == b'"':
            return inside.end() + 1
        if inside.end() == at:
            return -1
        at = inside.end()
    return -1


def _behind_value(body: bytes, at: int, brackets: int) -> tuple[int, int]:
    """The end of the value that begins here (-1 if it is not understood), and how many brackets may still be read."""
    first = body[at : at + 1]
    if first == b'"':
        return behind_string(body, at), brackets
    if first not in (b"{", b"["):
        end = behind_space(body, at, _WORD)
        return (end if end > at else -1), brackets
    at, depth = at + 1, 1
    while brackets > 0:
        between = SHALLOW.match(body, at, at + PIECE_BYTES)
        assert between is not None
        at = between.end()
        mark = body[at : at + 1]
        if mark in b"[]{}" and mark:
            at += 1
            brackets -= 1
            depth += 1 if mark in b"[{" else -1
            if depth == 0:
                return at, brackets
        elif mark == b'"':
            # The string is longer than the rest of the piece.
            at = behind_string(body, at)
        if not mark or at < 0:
            return -1, brackets
    return -1, brackets


def folded(name: str) -> str:
    """The name as the most lenient server reads it: in small letters and compatible forms (Go's reader of JSON reads a
    long s as an s), without blanks and invisible characters."""
    if name.isascii() and name.isalnum():
        return name.lower()
    plain = unicodedata.normalize("NFKC", name).casefold()
    return "".join(letter for letter in plain if letter.isprintable() and not letter.isspace())


_BETWEEN = re.compile(rb'[^"]*+')
_AS_BACKSLASHES = bytes.maketrans(b",[{ \t\r\n", b"\\" * 7)


def counted(raw: Raw | bytes, *wanted: bytes) -> int:
    """How often these bytes occur in the text. A pair that is divided by the end of a piece does not count."""
    view = memoryview(raw)
    pieces = (bytes(view[at : at + PIECE_BYTES]) for at in range(0, len(view), PIECE_BYTES))
    return sum(piece.count(each) for piece in pieces for each in wanted)


def names_in(raw: bytes) -> int:
    """How many names of members the JSON of an object or an array has at least: those that end with a quote and a
    colon.

    Elsewhere, a quote before a colon either begins a string, after white space or one of ``:,[{``, or it is within a
    string, after a backslash. Quotes after one of these characters are not counted. So names that end with such a
    character, or have white space before their colon, are not counted either.
    """
    names = 0
    for at in range(0, len(raw), PIECE_BYTES):
        first = min(at, 1)
        piece = raw[at - first : at + PIECE_BYTES + 1].translate(_AS_BACKSLASHES)
        names += piece.count(b'":', first) - piece.count(b'\\":') - piece.count(b':":')
    return names


def has_more_commas(raw: bytes, most: int) -> bool:
    """Whether a JSON text has more than ``most`` commas outside of its strings. The count ends with the first comma too
    many."""
    if len(raw) <= 2 * most or counted(raw, b",") <= most:  # a value follows each comma
        return False
    at, commas = 0, 0
    while 0 <= at < len(raw) and commas <= most:
        between = _BETWEEN.match(raw, at, at + PIECE_BYTES)
        assert between is not None
        commas += raw.count(b",", at, between.end())
        at = between.end()
        if raw[at : at + 1] == b'"':
            at = behind_string(raw, at)
    return commas > most
