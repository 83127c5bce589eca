"""Tools in the order and form in which a client first sent them.

Tools stand in front of everything else. If a client builds its list from a set, or writes its schemas' keys in another
order each time, no request reads anything of the prompt from the cache (whoz-oss/coday #1322, QwenLM/qwen-code #6339,
maximhq/bifrost #2082). If the very same definitions come again in another order or form, they are sent as they came
first. Values are never changed, and the items of a list keep their order. If a client marks its tools, it decides their
places itself: these tools are sent as they came.
"""

import json
from collections.abc import Callable
from functools import partial

from proxy.core.digest import digest
from proxy.core.lru import Bounded, LastUsed
from proxy.core.request.message import MARK_KEYS

_MAX_SETS = 1024
_MAX_BYTES = 64 * 2**20
# Longer arrays, and arrays of more values, are equal only if their bytes are equal: parsing one would hold up all other
# requests. A value takes about a microsecond, and there are hardly more values than commas.
_LONGEST_BYTES = 1 << 20
_MOST_COMMAS = 25_000


class ToolOrders:
    """The first form of each set of tools, by the scope in which it was sent. The least recently used are dropped
    first."""

    def __init__(self, *, capacity_bytes: int = _MAX_BYTES) -> None:
        self._first: Bounded[tuple[bytes, bytes], bytes] = Bounded(capacity_bytes, len, _MAX_SETS)
        self._sets: LastUsed[tuple[bytes, bytes], bytes] = LastUsed(_MAX_SETS)

    def steady(self, scope: bytes, form: bytes, raw: bytes) -> bytes | None:
        """The array as this scope first sent it, if the scope now sends the same tools in another order or form; else
        None. ``form`` is the digest of ``raw``, an array of objects."""
        if any(f'"{key}"'.encode() in raw for key in MARK_KEYS):
            return None
        known = self._sets.find((scope, form))
        if known is None:
            known = _set_of(raw)
            self._sets.put((scope, form), known)
        key = (scope, known)
        first = self._first.get(key)
        if first is None:
            self._first.put(key, raw)
            return None
        self._first.move_to_end(key)
        return first if first != raw else None


def _set_of(raw: bytes) -> bytes:
    """A digest of the tools that depends neither on their order nor on the order of their keys. Equal tools count as
    often as they occur. If the array is very long, has very many values, is nested too deep, names a key twice, or has
    a number that could be written in another way, only equal bytes give the same digest."""
    if len(raw) > _LONGEST_BYTES or raw.count(b",") > _MOST_COMMAS:
        return digest(b"raw", raw)
    try:
        tools = json.loads(
            raw, object_pairs_hook=_once, parse_float=partial(_plain, float), parse_int=partial(_plain, int)
        )
        return digest(b"tools", *sorted(json.dumps(tool, sort_keys=True).encode() for tool in tools))
    except (ValueError, RecursionError):
        return digest(b"raw", raw)


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice")
    return found


def _plain(kind: Callable[[str], float], text: str) -> float:
    found = kind(text)
    if repr(found) != text:
        raise ValueError("a number that is not written as it would be written again")
    return found
