"""How long a JSON schema becomes when its references are replaced by what they name, as some servers do. Pure."""

from collections.abc import Iterator

import orjson

_MOST_DEPTH = 64
_MOST_WORK = 1 << 24
"""Bytes of all that is named."""
_MOST_UNFOLDED = 1 << 30
"""Bytes of one definition. A few kilobytes that double a thousand times have a length that is no machine number."""


class _Endless(Exception):
    """Nobody can tell the length: definitions name each other in turn, nest too deeply, become too long, or cannot be
    written."""


def unfolded_bytes(value: object) -> int | None:
    """The most bytes that replacing its references adds to a value; None where that cannot be told. A reference names
    something by the last part of its path: what stands under that name anywhere may be meant, the longest counts. A
    definition that names itself is replaced once."""
    named: dict[str, list[object]] = {}
    for name, one in _members(value):
        named.setdefault(name, []).append(one)
    try:
        return _Unfolding(named).added(value, ())
    except _Endless:
        return None


class _Unfolding:
    def __init__(self, named: dict[str, list[object]]) -> None:
        self._named = named
        self._known: dict[str, int] = {}
        self._work = 0

    def added(self, value: object, within: tuple[str, ...]) -> int:
        names = [one.rsplit("/", 1)[-1] for name, one in _members(value) if name == "$ref" and isinstance(one, str)]
        return sum([self._size(name, within) for name in names])

    def _size(self, name: str, within: tuple[str, ...]) -> int:
        if within[-1:] == (name,):
            return 0
        if name in within or len(within) > _MOST_DEPTH:
            raise _Endless
        if name not in self._known:
            self._known[name] = max([self._one(one, name, within) for one in self._named.get(name, ())], default=0)
            if self._known[name] > _MOST_UNFOLDED:
                raise _Endless
        return self._known[name]

    def _one(self, value: object, name: str, within: tuple[str, ...]) -> int:
        try:
            size = len(orjson.dumps(value)) if not isinstance(value, str) else 0
        except orjson.JSONEncodeError as error:  # too deep, or halves of surrogate pairs
            raise _Endless from error
        self._work += size
        if self._work > _MOST_WORK:
            raise _Endless
        return size + self.added(value, (*within, name))


def _members(value: object) -> Iterator[tuple[str, object]]:
    """All members of all objects within."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            yield from one.items()
            left += one.values()
        elif isinstance(one, list):
            left += one
