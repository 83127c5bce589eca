"""Looks values up in raw members, also where a value is a string that holds JSON."""

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
from msgspec import Raw

from proxy.core.wire.json_body import Members, Unreadable, parse_members, small_value
from proxy.errors import InvalidRequest

_SMALL_BYTES = 64 << 10
# A number counts seconds, milliseconds or microseconds: what would be thousands of years away is of the next unit.
_UNITS, _MOST_SECONDS = (1, 1e3, 1e6), 1e11


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


def at_path(members: Members, path: str) -> Raw | None:
    """The value at a path of names with dots between them."""
    *outer, last = path.split(".")
    for name in outer:
        members = members_in(members.get(name))
    return members.get(last)


def first_value(members: Members, paths: Sequence[str], kinds: type | tuple[type, ...] = object) -> object:
    """The first small value at one of the paths that says something, and is of one of the kinds."""
    for path in paths:
        raw = at_path(members, path)
        found = None if raw is None else small_value(raw, _SMALL_BYTES)
        if found not in (None, "", {}, []) and isinstance(found, kinds):
            return found
    return None


def first_text(members: Members, paths: Sequence[str]) -> str:
    """The first text at one of the paths; a number counts as one."""
    found = first_value(members, paths, (str, int, float))
    return "" if found is None or isinstance(found, bool) else str(found)


def unix_seconds(value: object) -> float | None:
    """Unix seconds of a number or of an ISO 8601 text, whose zone is UTC where it names none; None for anything
    else."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        if isinstance(value, str) and not value.replace(".", "", 1).isdigit():
            moment = datetime.fromisoformat(value.strip().removesuffix(" UTC"))
            return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return next((number / unit for unit in _UNITS if abs(number) / unit < _MOST_SECONDS), None)
