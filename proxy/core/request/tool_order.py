"""Tools in the order and form in which a client first sent them.

Tools stand in front of everything else: a client that builds its list from a set, or writes its schemas' keys in
another order each time, takes the whole prompt out of the cache with each request (whoz-oss/coday #1322,
QwenLM/qwen-code #6339, maximhq/bifrost #2082). Only once the very same definitions were seen in another order or form
are they sent as they came first; values are never touched, and what a list holds keeps its order. A client that marks
its tools says where they stand: those pass as they came.
"""

import json
from collections.abc import Callable
from functools import partial

from proxy.core.digest import digest
from proxy.core.lru import Bounded, LastUsed
from proxy.core.request.message import MARK_KEYS

_MAX_SETS = 1024
_MAX_BYTES = 64 * 2**20
# Of longer arrays only the very same bytes are the same: to take one apart would hold up everybody else.
_LONGEST_BYTES = 1 << 20


class ToolOrders:
    """The first form of each set of tools, by the scope that it was sent in; least recently used out first."""

    def __init__(self, *, capacity_bytes: int = _MAX_BYTES) -> None:
        self._first: Bounded[tuple[bytes, bytes], bytes] = Bounded(capacity_bytes, len, _MAX_SETS)
        self._sets: LastUsed[tuple[bytes, bytes], bytes] = LastUsed(_MAX_SETS)

    def steady(self, scope: bytes, form: bytes, raw: bytes) -> bytes | None:
        """The array as this scope first sent it, where it sends the same tools in another order or form now; else None.
        ``form`` is the digest of this one, an array of objects."""
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
    """What the tools are, whatever their order and the order of their keys; equal tools count as often as they stand.
    Of what is very long, nested too deep, names a key twice, or has a number that could be written in another way, only
    the very same bytes are the same."""
    if len(raw) > _LONGEST_BYTES:
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
