"""Tools in the order and form in which a client first sent them.

Tools stand in front of everything else: a client that builds its list from a set, or writes its schemas' keys in
another order each time, takes the whole prompt out of the cache with each request (whoz-oss/coday #1322,
QwenLM/qwen-code #6339, maximhq/bifrost #2082). Only once the very same definitions were seen in another order or form
are they sent as they came first; values are never touched, and what a list holds keeps its order. A client that marks
its tools says where they stand: those pass as they came.
"""

import json
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class _Number:
    """A number as it is written: 1.0 is not 1."""

    text: str


class _Pairs(list[tuple[str, object]]):
    """An object's members, those that stand twice, too."""


def _set_of(raw: bytes) -> bytes:
    """What the tools are, whatever their order and the order of their keys; equal tools count as often as they stand.
    Of what is very long, nested too deep, or names a key twice, only the very same bytes are the same."""
    if len(raw) > _LONGEST_BYTES:
        return digest(b"raw", raw)
    try:
        tools = json.loads(raw, object_pairs_hook=_Pairs, parse_float=_Number, parse_int=_Number)
        return digest(b"tools", *sorted(_form_free(tool) for tool in tools))
    except (ValueError, RecursionError):
        return digest(b"raw", raw)


def _form_free(item: object) -> bytes:
    """A digest of a JSON value that is the same whatever the order of its keys, its white space, and its escapes."""
    match item:
        case _Pairs():
            if len({name for name, _ in item}) < len(item):
                raise ValueError("a key stands twice")
            members = sorted((name.encode("utf-8", "surrogatepass"), _form_free(each)) for name, each in item)
            return digest(b"object", *(part for member in members for part in member))
        case list():
            return digest(b"array", *(_form_free(each) for each in item))
        case str():
            return digest(b"string", item.encode("utf-8", "surrogatepass"))
        case _Number():
            return digest(b"number", item.text.encode())
        case _:
            return digest(b"other", repr(item).encode())
