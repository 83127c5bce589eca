"""What the caches have in common whose entries stand where a marker stood, or where the provider has set one."""

from bisect import bisect_left
from collections.abc import Iterable
from itertools import repeat

from proxy.core.caches.cache import Cache
from proxy.core.caches.entries import Key
from proxy.core.caches.prompt import Life, Prompt


class MarkedCache(Cache):
    """Entries at single positions, each of one of two lives."""

    __slots__ = ()

    def held(self, prompt: Prompt, now: float) -> list[int]:
        """The positions, ascending, whose own entries can be read now, in reach of a marker or not."""
        get, hashes = self._table.getter(), prompt.hashes
        first = bisect_left(prompt.ends, self._profile.min_tokens)
        live: set[int] = set()
        for scope in {self._scope(prompt, "5m"), self._scope(prompt, "1h")}:
            for position, digest in enumerate(hashes[first:], first):
                entry = get((scope, digest))
                if entry is not None and entry[0] <= now < entry[1]:
                    live.add(position)
        return sorted(live)

    def last_use(self, prompt: Prompt, position: int, now: float) -> tuple[float, float] | None:
        """Seconds since the entry at a position was last used, and its life."""
        found = (self._table.last_use(key, now) for key in self._keys(prompt, position))
        return min((one for one in found if one is not None), default=None)

    def forget(self, prompt: Prompt, positions: Iterable[int]) -> None:
        """Drop the entries at these positions, of either life."""
        for position in positions:
            for key in self._keys(prompt, position):
                self._table.forget(key)

    def _keys(self, prompt: Prompt, position: int) -> list[Key]:
        return [(scope, prompt.hashes[position]) for scope in {self._scope(prompt, "5m"), self._scope(prompt, "1h")}]

    def _is_long(self, life: Life | None) -> bool:
        return life == "1h" and self._profile.long_life_s > 0

    def _scope(self, prompt: Prompt, life: Life) -> bytes:
        """Entries of both lives share a key only where they read each other."""
        if self._profile.cross_life_read:
            return prompt.scope
        return prompt.scope + (b"/1h" if self._is_long(life) else b"/5m")

    def _renew(self, prompt: Prompt, hit: int, now: float) -> None:
        first = 0 if self._profile.refresh == "prefix" else hit
        lives: tuple[Life, ...] = ("5m",) if self._profile.cross_life_read else ("5m", "1h")
        for life in lives:
            self._table.renew(zip(repeat(self._scope(prompt, life)), prompt.hashes[first : hit + 1]), now)
