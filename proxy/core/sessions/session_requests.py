"""The last requests of a session, each as a few figures: what a picture of the session is drawn from.

Workers that share a session keep the same list: two versions of it are brought together by taking all rows of both, so
that it does not matter who writes last. A row holds counts, sums and the number of a name, and no text.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from struct import Struct as Packing
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from proxy.core.diagnosis.breaks import KINDS
from proxy.core.digest import digest

MOST_REQUESTS: Final = 500
MOST_NAMES: Final = 100
# Time; number; kind of the break (0: none); flags; line; prompt, read, written, read and written of the layout
# that was not sent; culprit; tokens before it, of it, and lost; USD lost, cost, saved.
# Big-endian: rows in the order of their bytes are in that of time.
_ROW: Final = Packing(">dHBBHIIIIIIIIIfff")
ROW_BYTES: Final = _ROW.size
_NAME, _LOST_USD = 10, 14
"""Places in a row."""
_OTHER = "other"
_MOST = 2**32 - 1

_WASTE, _REFRESH, _OBSERVED = 1, 2, 4


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """One request: when it came, in unix seconds, and its tokens as the provider reported them. Beside them stand those
    of the layout that was not sent, by the shadow cache and scaled to the same prompt (``other_read`` and so on): the
    client's own, or the planned one where the request was only observed (``is_observed``). ``saved_usd`` is what the
    planned one saves, or would save. ``kind`` is empty where nothing broke the cache; else ``culprit`` is what differs,
    ``before`` and ``tokens`` are the tokens in front of it and of it, by the provider's count, and ``lost`` and
    ``lost_usd`` what that cost. ``is_refresh``: the proxy sent it to keep a prefix alive. ``number`` tells requests of
    one moment apart."""

    at: float
    number: int = 0
    prompt: int = 0
    read: int = 0
    written: int = 0
    other_read: int = 0
    other_written: int = 0
    cost_usd: float = 0.0
    saved_usd: float = 0.0
    kind: str = ""
    culprit: str = ""
    line: int = 0
    before: int = 0
    tokens: int = 0
    lost: int = 0
    lost_usd: float = 0.0
    is_waste: bool = False
    is_refresh: bool = False
    is_observed: bool = False


class SessionRequests(Struct, frozen=True, array_like=True, gc=False):
    """The rows, the oldest first, and the names of culprits by their numbers."""

    packed: bytes = b""
    names: Mapping[int, str] = {}

    def added(self, one: SessionRequest) -> "SessionRequests":
        """With one more request; the oldest makes room for it."""
        name = _number_of(one.culprit)
        row = _ROW.pack(
            one.at,
            one.number & 0xFFFF,
            KINDS.index(one.kind) + 1 if one.kind else 0,
            _WASTE * one.is_waste | _REFRESH * one.is_refresh | _OBSERVED * one.is_observed,
            min(one.line, 0xFFFF),
            *map(_fits, (one.prompt, one.read, one.written, one.other_read, one.other_written)),
            name,
            *map(_fits, (one.before, one.tokens, one.lost)),
            *map(_finite, (one.lost_usd, one.cost_usd, one.saved_usd)),
        )
        packed = (self.packed + row)[-MOST_REQUESTS * ROW_BYTES :]
        is_new = name and name not in self.names
        names = _bounded({**self.names, name: one.culprit}, packed) if is_new else self.names
        return replace(self, packed=packed, names=names)

    def merged(self, other: "SessionRequests") -> "SessionRequests":
        """The rows of both, each once."""
        if not other.packed or self._goes_on_from(other.packed):
            has_more = other.names.keys() - self.names.keys()
            return replace(self, names=_bounded({**other.names, **self.names}, self.packed)) if has_more else self
        packed = b"".join(sorted({*self._rows(), *other._rows()})[-MOST_REQUESTS:])
        return replace(self, packed=packed, names=_bounded({**other.names, **self.names}, packed))

    def requests(self) -> Iterator[SessionRequest]:
        """The requests, the oldest first. What is no whole row is passed over."""
        for row in sorted(self._rows()):
            at, number, kind, flags, line, prompt, read, written, *rest = _ROW.unpack(row)
            other_read, other_written, name, before, tokens, lost, lost_usd, cost_usd, saved_usd = rest
            yield SessionRequest(
                at, number, prompt, read, written, other_read, other_written, cost_usd, saved_usd,
                KINDS[kind - 1] if 0 < kind <= len(KINDS) else "",
                self.names.get(name, _OTHER) if name else "",
                line, before, tokens, lost, lost_usd,
                bool(flags & _WASTE), bool(flags & _REFRESH), bool(flags & _OBSERVED),
            )  # fmt: skip

    def _goes_on_from(self, packed: bytes) -> bool:
        """Whether these are the rows of the other, as far as there is room for them, and later ones. So it is nearly
        always, where one worker serves a session; to find that out is cheap."""
        place = self.packed.rfind(packed[-ROW_BYTES:])
        return place >= 0 and place % ROW_BYTES == 0 and packed.endswith(self.packed[: place + ROW_BYTES])

    def _rows(self) -> Iterator[bytes]:
        for start in range(0, len(self.packed) - ROW_BYTES + 1, ROW_BYTES):
            yield self.packed[start : start + ROW_BYTES]


def dearest(found: SessionRequests, most: int) -> tuple[tuple[str, int, float], ...]:
    """The culprits that cost the most: their names, how often they broke the cache, and USD."""
    sums: dict[int, tuple[int, float]] = {}
    whole = len(found.packed) // ROW_BYTES * ROW_BYTES
    for row in _ROW.iter_unpack(found.packed[:whole]):
        name, usd = row[_NAME], row[_LOST_USD]
        if name:
            breaks, before = sums.get(name, (0, 0.0))
            sums[name] = breaks + 1, before + usd
    dear = sorted(sums, key=lambda name: -sums[name][1])[:most]
    return tuple((found.names.get(name, _OTHER), *sums[name]) for name in dear)


def _bounded(names: Mapping[int, str], packed: bytes) -> Mapping[int, str]:
    """The names, as far as there is room for them: then those of no row go first, and those that came first."""
    if len(names) <= MOST_NAMES:
        return names
    used = {row[_NAME] for row in _ROW.iter_unpack(packed[: len(packed) // ROW_BYTES * ROW_BYTES])}
    return dict([(number, name) for number, name in names.items() if number in used][-MOST_NAMES:])


def _number_of(name: str) -> int:
    return int.from_bytes(digest(name.encode("utf-8", "surrogatepass"))[:4], "big") or 1 if name else 0


def _finite(usd: float) -> float:
    """USD as they can be written: a sum beyond all reason is none."""
    return usd if abs(usd) < 1e30 else 0.0


def _fits(tokens: int) -> int:
    return max(0, min(_MOST, tokens))
