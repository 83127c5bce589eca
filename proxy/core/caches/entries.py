"""The table behind every cache model: prefixes, from when they can be read, and until when."""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import NamedTuple

from proxy.core.providers import CacheProfile

DEFAULT_CAPACITY = 200_000

Key = tuple[bytes, bytes]
"""Scope and chained digest."""

# Requests are stored at their first byte but dated by their start, so the dates run a little out of order: an entry is
# swept only once it has been dead for longer than a slow first byte takes.
_GRACE_S = 600.0
_FIRST_SWEEP = 4096
_EVICTED_SHARE = 20


class Entry(NamedTuple):
    """A stored prefix: readable while ``available <= now < expiry``; a use renews it for ``life_s``.

    ``tokens`` is what it takes besides the prefix in front of it, where memory is counted.
    """

    available: float
    expiry: float
    life_s: float
    tokens: int = 0


class EntryTable:
    """Entries by key, in the order of their last use. Expired entries are swept; after that the least recently used are
    dropped.

    ``base`` is the table that a copy was made from: it is read, never written. ``capacity_tokens`` bounds the sum of
    the tokens of all entries; 0 means no bound.
    """

    __slots__ = ("_base", "_capacity", "_capacity_tokens", "_entries", "_sweep_at", "_tokens")

    def __init__(self, capacity: int, capacity_tokens: int = 0, base: "EntryTable | None" = None) -> None:
        self._entries: dict[Key, Entry] = {}
        self._base = base.getter() if base is not None else None
        self._capacity = capacity
        self._capacity_tokens = capacity_tokens
        self._sweep_at = _FIRST_SWEEP
        self._tokens = 0

    def getter(self) -> Callable[[Key], Entry | None]:
        """A look-up function, for loops: one dict access, two in a copy."""
        own, base = self._entries.get, self._base
        if base is None:
            return own

        def get(key: Key) -> Entry | None:
            entry = own(key)
            return base(key) if entry is None else entry

        return get

    def put(self, key: Key, now: float, available: float, life_s: float, tokens: int = 0) -> None:
        """Add a prefix, or renew the one that lives: it stays readable from its first date on."""
        expiry = now + life_s
        old = self.getter()(key)
        if old is not None and now < old.expiry:
            available = min(available, old.available)
            expiry = max(expiry, old.expiry)
            life_s = max(life_s, old.life_s)
        own = self._entries.pop(key, None)
        self._tokens += tokens - (own.tokens if own is not None else 0)
        self._entries[key] = Entry(available, expiry, life_s, tokens)

    def adopt(self, key: Key, entry: Entry) -> None:
        """Add an entry that another process stored. Of two entries of one key the one that lives longer counts."""
        old = self._entries.get(key)
        if old is not None and old.expiry >= entry.expiry:
            return
        if old is not None:
            del self._entries[key]
            self._tokens -= old.tokens
        self._entries[key] = entry
        self._tokens += entry.tokens

    def renew(self, keys: Iterable[Key], now: float) -> None:
        """A read renews entries, each for its own life. Entries that cannot be read stay as they are. All entries of a
        prompt are renewed with each request, so this is the hot loop."""
        get, own = self.getter(), self._entries
        for key in keys:
            entry = get(key)
            if entry is None or not entry[0] <= now < entry[1]:
                continue
            available, expiry, life_s, tokens = entry
            if own.pop(key, None) is None:
                self._tokens += tokens
            end = now + life_s
            own[key] = tuple.__new__(Entry, (available, end if end > expiry else expiry, life_s, tokens))

    def last_use(self, key: Key, now: float) -> tuple[float, float] | None:
        """Seconds since an entry that lives was last used, and its life; None where there is none."""
        entry = self.getter()(key)
        if entry is None or now >= entry.expiry:
            return None
        return now - (entry.expiry - entry.life_s), entry.life_s

    def forget(self, key: Key) -> None:
        """Drop an entry that the provider evidently does not hold."""
        own = self._entries.pop(key, None)
        if own is not None:
            self._tokens -= own.tokens

    def shorten(self, before: CacheProfile, after: CacheProfile) -> None:
        """Lives turned out shorter than the profile said: entries end earlier by that much. This is rare, and linear in
        the entries."""
        lives = ((before.life_s, after.life_s), (before.long_life_s, after.long_life_s))
        sooner = {old + before.slack_s: old - new for old, new in lives if new < old}
        if not sooner:
            return
        for key, entry in self._entries.items():
            less = sooner.get(entry.life_s)
            if less is not None:
                self._entries[key] = entry._replace(expiry=entry.expiry - less, life_s=entry.life_s - less)

    def trim(self, now: float) -> None:
        """Keep the bounds. The cost for each stored entry is small: whole sweeps happen at doubling sizes, and
        evictions in batches."""
        entries = self._entries
        if len(entries) >= self._sweep_at:
            dead = [key for key, entry in entries.items() if entry.expiry + _GRACE_S <= now]
            self._drop(dead)
            self._sweep_at = max(_FIRST_SWEEP, 2 * len(entries))
        if len(entries) > self._capacity:
            excess = len(entries) - self._capacity + self._capacity // _EVICTED_SHARE
            self._drop(list(islice(entries, excess)))
        if self._capacity_tokens and self._tokens > self._capacity_tokens:
            self._drop(self._oldest(self._tokens - self._capacity_tokens))

    def copy(self) -> "EntryTable":
        """A table that reads through to this one and keeps its own writes."""
        return EntryTable(self._capacity, self._capacity_tokens, base=self)

    def __len__(self) -> int:
        return len(self._entries)

    def _oldest(self, tokens: int) -> list[Key]:
        """The least recently used entries that together hold so many tokens."""
        found: list[Key] = []
        for key, entry in self._entries.items():
            if tokens <= 0:
                break
            tokens -= entry.tokens
            found.append(key)
        return found

    def _drop(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._tokens -= self._entries.pop(key).tokens
