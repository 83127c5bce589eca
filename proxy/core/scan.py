"""The members of a JSON object that is not taken apart: where each stands, found in one pass over the bytes.

What cannot be planned must still be held to a key's rights, and for these it matters whether a name stands twice. The
readers of JSON keep one value for each name and do not say which others there were; this one keeps them all. It is for
bodies that some reader has already found to be an object, whatever stands in its strings.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_SPACE = re.compile(rb"[ \t\r\n]*+")
_NAME = re.compile(rb"(" + _STRING + rb")[ \t\r\n]*+:[ \t\r\n]*+", re.DOTALL)
_SIMPLE = re.compile(_STRING + rb"|[^\s,:\"\[\]{}]++", re.DOTALL)
# What holds no brackets, and what holds brackets of one, two and three levels: only deeper ones are counted one by one.
_FLAT = rb"[^\"\[\]{}]++|" + _STRING
_NESTED = rb"[\[{](?:" + _FLAT + rb")*+[\]}]"
_NESTED = rb"[\[{](?:" + _FLAT + rb"|" + _NESTED + rb")*+[\]}]"
_NESTED = rb"[\[{](?:" + _FLAT + rb"|" + _NESTED + rb")*+[\]}]"
_SHALLOW = re.compile(rb"(?:" + _FLAT + rb"|" + _NESTED + rb")*+", re.DOTALL)
_MOST_MEMBERS = 1000
"""No request has as many; a body that has is not understood."""
_MOST_BRACKETS = 100_000
_MOST_NAME_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Member:
    """One member: its name, the name's own bytes, the value's, and where these begin."""

    name: str
    written: bytes
    value: bytes
    at: int


def scan_members(body: bytes) -> Sequence[Member] | None:
    """All members in their order, also those of equal names; None where the body is not understood."""
    at = _behind_space(body, 0)
    if body[at : at + 1] != b"{":
        return None
    found: list[Member] = []
    brackets = _MOST_BRACKETS
    at = _behind_space(body, at + 1)
    while body[at : at + 1] != b"}" or found:
        name = _NAME.match(body, at)
        if name is None or len(found) >= _MOST_MEMBERS:
            return None
        end, brackets = _behind_value(body, name.end(), brackets)
        if end < 0:
            return None
        text = _text(name[1])
        if text is None:
            return None
        found.append(Member(text, name[1], body[name.end() : end], name.end()))
        at = _behind_space(body, end)
        mark = body[at : at + 1]
        if mark == b"}":
            break
        if mark != b",":
            return None
        at = _behind_space(body, at + 1)
    return found if _behind_space(body, at + 1) == len(body) else None


def once(members: Sequence[Member]) -> bytes:
    """An object of the same members in the same order; of those of equal names it has the last one's value, in the
    first one's place."""
    last: dict[str, Member] = {}
    for member in members:
        last[member.name] = member
    return b"{" + b",".join(member.written + b":" + member.value for member in last.values()) + b"}"


def replaced(body: bytes, name: str, value: bytes) -> bytes:
    """The body with another value for a member that stands in it once; unchanged where that is not so."""
    found = [member for member in scan_members(body) or () if member.name == name]
    if len(found) != 1:
        return body
    at, end = found[0].at, found[0].at + len(found[0].value)
    return body[:at] + value + body[end:]


def values(members: Sequence[Member]) -> Mapping[str, bytes]:
    """Each name's last value."""
    return {member.name: member.value for member in members}


def _behind_space(body: bytes, at: int) -> int:
    space = _SPACE.match(body, at)
    assert space is not None
    return space.end()


def _behind_value(body: bytes, at: int, brackets: int) -> tuple[int, int]:
    """Where the value that begins here ends (-1: that is not understood), and how many brackets may still be read."""
    if body[at : at + 1] not in (b"{", b"["):
        simple = _SIMPLE.match(body, at)
        return (simple.end() if simple is not None else -1), brackets
    at, depth = at + 1, 1
    while brackets > 0:
        between = _SHALLOW.match(body, at)
        assert between is not None
        at = between.end() + 1
        bracket = body[at - 1 : at]
        if not bracket or bracket == b'"':
            return -1, brackets
        brackets -= 1
        depth += 1 if bracket in b"[{" else -1
        if depth == 0:
            return at, brackets
    return -1, brackets


def _text(written: bytes) -> str | None:
    if len(written) > _MOST_NAME_BYTES:
        return None
    try:
        text: str = json.loads(written.decode("utf-8", "surrogatepass"), strict=False)
    except ValueError:
        return None
    return text
