"""The table of prefixes behind every model of a provider's cache: its entries, their lives, and the bounds of both."""

import math
from collections.abc import Collection, Iterable
from itertools import accumulate, islice

from msgspec import Struct

from proxy.protocol.providers import CacheProfile

Key = tuple[bytes, bytes]
"""Scope and chained digest."""

# Requests are stored at their first byte but dated by their start, so the dates run a little out of order: an entry is
# swept only once it has been dead for longer than a slow first byte takes.
_GRACE_S = 600.0
_FIRST_SWEEP = 4096
_EVICTED_SHARE = 20


class Entry(Struct, gc=False):
    """A stored prefix. It is readable while ``available <= now < expiry``. Each use renews it for ``life_s``.

    ``tokens`` is the number of its tokens besides the prefix in front of it, if memory is counted. ``placed`` is the
    time when it took its place in the order of its table. ``spread`` is the time when the entries in front of it were
    last renewed with it.
    """

    available: float
    expiry: float
    life_s: float
    tokens: int = 0
    placed: float = -math.inf
    spread: float = -math.inf


class EntryTable(dict[Key, Entry]):
    """Entries by key, in the order of their last use. Expired entries are swept; after that the least recently used are
    dropped.

    ``capacity_tokens`` bounds the sum of the tokens of all entries; 0 means no bound. If tokens are not counted, an
    entry moves to the end only if it was placed more than half its life ago. This saves work, because a long
    conversation uses all of its entries with each request.
    """

    def __init__(self, capacity: int, capacity_tokens: int = 0) -> None:
        super().__init__()
        self._capacity = capacity
        self._capacity_tokens = capacity_tokens
        self._sweep_at = _FIRST_SWEEP
        self._tokens = 0

    def put(self, key: Key, now: float, available: float, life_s: float, tokens: int = 0) -> Entry:
        """Add a prefix, or renew its live entry, which stays readable from its first date on."""
        entry = self.get(key)
        if entry is None:
            entry = Entry(available, now + life_s, life_s)
        elif now < entry.expiry:
            entry.available = min(available, entry.available)
            entry.expiry = max(now + life_s, entry.expiry)
            entry.life_s = max(life_s, entry.life_s)
        else:
            entry.available, entry.expiry, entry.life_s = available, now + life_s, life_s
        self._tokens += tokens - entry.tokens
        entry.tokens = tokens
        if self._capacity_tokens or entry.placed < now - life_s / 2:
            self._place(key, entry, now)
        return entry

    def adopt(self, key: Key, entry: Entry) -> None:
        """Add an entry that another process stored. If there are two entries for one key, the one that expires later
        counts."""
        old = self.get(key)
        if old is None or old.expiry < entry.expiry:
            self.forget(key)
            self._place(key, entry, entry.expiry - entry.life_s)
            self._tokens += entry.tokens

    def renew(self, keys: Collection[Key], now: float) -> None:
        """A read renews entries, each for its own life. Entries that cannot be read stay as they are. All entries of a
        prompt are renewed with each request, so this is the hot loop."""
        for key, entry in zip(keys, map(self.get, keys), strict=True):
            if entry is not None and entry.available <= now < entry.expiry:
                life_s = entry.life_s
                if now + life_s > entry.expiry:
                    entry.expiry = now + life_s
                if now - entry.placed > life_s / 2:
                    self._place(key, entry, now)

    def last_use(self, key: Key, now: float) -> tuple[float, float] | None:
        """The seconds since a live entry was last used, and its life. None if there is no live entry."""
        entry = self.get(key)
        if entry is None or now >= entry.expiry:
            return None
        return now - (entry.expiry - entry.life_s), entry.life_s

    def forget(self, key: Key) -> None:
        """Drop an entry that the provider evidently does not hold."""
        own = self.pop(key, None)
        if own is not None:
            self._tokens -= own.tokens

    def shorten(self, before: CacheProfile, after: CacheProfile) -> None:
        """Let the entries end earlier, because lives turned out shorter than the profile said. This is rare, and its
        time is linear in the number of entries."""
        lives = ((before.life_s, after.life_s), (before.long_life_s, after.long_life_s))
        sooner = {old + before.slack_s: old - new for old, new in lives if new < old}
        if not sooner:
            return
        for entry in self.values():
            less = sooner.get(entry.life_s)
            if less is not None:
                entry.expiry, entry.life_s = entry.expiry - less, entry.life_s - less

    def trim(self, now: float) -> None:
        """Enforce the bounds. The cost for each stored entry is small, because whole sweeps happen at doubling sizes
        and evictions in batches."""
        if len(self) >= self._sweep_at:
            self._drop([key for key, entry in self.items() if entry.expiry + _GRACE_S <= now])
            self._sweep_at = max(_FIRST_SWEEP, 2 * len(self))
        if len(self) > self._capacity:
            excess = len(self) - self._capacity + self._capacity // _EVICTED_SHARE
            self._drop(list(islice(self, excess)))
        if self._capacity_tokens and self._tokens > self._capacity_tokens:
            excess = self._tokens - self._capacity_tokens
            gone = accumulate((entry.tokens for entry in self.values()), initial=0)
            self._drop([key for key, before in zip(self, gone, strict=False) if before < excess])

    def _place(self, key: Key, entry: Entry, now: float) -> None:
        """Put the entry at the end of the order."""
        self.pop(key, None)
        self[key] = entry
        entry.placed = now

    def _drop(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._tokens -= self.pop(key).tokens
