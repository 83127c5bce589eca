"""Looks values up in raw members, also where a value is a string that holds JSON."""

from collections.abc import Sequence

import msgspec
from msgspec import Raw

from proxy.core.wire.json_body import Members, Unreadable, parse_members, small_value
from proxy.errors import InvalidRequest

_SMALL_BYTES = 64 << 10


def members_in(raw: Raw | bytes | None) -> Members:
    """The members of a value that is an object, or a string that holds one; else none."""
    text = content(raw)
    if text[:1] != b"{":
        return {}
    try:
        return parse_members(text)
    except (InvalidRequest, Unreadable):
        return {}


def content(raw: Raw | bytes | None) -> bytes:
    """The bytes of a value; of a string, those of its text."""
    text = b"" if raw is None else bytes(raw).strip()
    if text[:1] != b'"':
        return text
    try:
        return msgspec.json.decode(text, type=str).encode().strip()
    except (msgspec.DecodeError, UnicodeError):
        return b""


def first_byte(raw: Raw) -> bytes:
    """The first byte of a value."""
    return bytes(memoryview(raw)[:1])


def at_path(members: Members, path: str) -> Raw | None:
    """The value at a path of names with dots between them."""
    *outer, last = path.split(".")
    for name in outer:
        members = members_in(members.get(name))
    return members.get(last)


def first_value(members: Members, paths: Sequence[str]) -> object:
    """The first small value at one of the paths that says something."""
    for path in paths:
        raw = at_path(members, path)
        found = None if raw is None else small_value(raw, _SMALL_BYTES)
        if found not in (None, "", {}, []):
            return found
    return None


def first_text(members: Members, paths: Sequence[str]) -> str:
    """The first text at one of the paths; a number counts as one."""
    for path in paths:
        found = first_value(members, (path,))
        if isinstance(found, str | int | float) and not isinstance(found, bool):
            return str(found)
    return ""
