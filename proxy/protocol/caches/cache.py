"""A prompt as a provider's cache sees it, its bill, and the interface of every model of such a cache with the table of
prefixes behind it.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate, islice
from typing import Literal

from msgspec import Struct

from proxy.kit.value import dataclass, field
from proxy.protocol.providers import CacheProfile

Life = Literal["5m", "1h"]


@dataclass(frozen=True, slots=True)
class Prompt:
    """The positions of a prompt, in the provider's own order: tools, then system, then messages.

    ``hashes[i]`` is the chained digest of everything up to and including position i (16 bytes or more); two prompts
    share a prefix up to i exactly when their ``hashes[i]`` are equal. ``ends[i]`` is the number of prompt tokens up to
    and including position i (so ``ends[-1]`` is the prompt's length in tokens). ``marks`` maps a position to the life
    of the cache marker that stands on it. ``runs[i]`` numbers the position for look-back counting: positions with equal
    numbers (a run of tool calls or of tool results within one message) count once. ``scope`` identifies the account,
    the model, and the settings that render into the prompt; the provider keeps different scopes apart. It is empty if
    nothing is cached.

    ``endings`` and ``head_end`` are for providers that set boundaries of their own. ``endings`` are the positions,
    ascending, at which the messages end that are eligible for a boundary (users' messages, and the last tool output of
    a group). ``head_end`` is the position at which the opening instructions end. They are empty and -1 if the provider
    sets no boundaries, or was told not to.
    """

    scope: bytes
    hashes: tuple[bytes, ...]
    ends: tuple[int, ...]
    runs: tuple[int, ...]
    marks: Mapping[int, Life] = field(default_factory=dict)
    endings: tuple[int, ...] = ()
    head_end: int = -1

    @property
    def total(self) -> int:
        return self.ends[-1] if self.ends else 0


@dataclass(frozen=True, slots=True)
class Bill:
    """The tokens of one prompt by the rate at which they are billed. The four counts add up to the prompt's tokens.

    ``hit`` is the position up to which the prompt was read (-1: nothing was read).
    """

    read: int
    write_5m: int
    write_1h: int
    plain: int
    hit: int = -1

    @property
    def write(self) -> int:
        return self.write_5m + self.write_1h

    @property
    def total(self) -> int:
        return self.read + self.write_5m + self.write_1h + self.plain


DEFAULT_CAPACITY = 200_000

Key = tuple[bytes, bytes]
"""Scope and chained digest."""

# Requests are stored at their first byte but dated by their start, so the dates run a little out of order: an entry is
# swept only once it has been dead for longer than a slow first byte takes.
_GRACE_S = 600.0
_FIRST_SWEEP = 4096
_EVICTED_SHARE = 20
_SPREAD_SHARE = 0.15


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


class Cache:
    """The entries that one account has at a provider, with their expiry. Time is unix seconds, given by the caller.

    The ``table`` also holds expired entries that were not swept yet. This class keeps nothing, like a provider without
    a prompt cache. A subclass says how a prompt is billed and stored.

    A forecast is a shadow of a provider. It takes the expected value of chance. A provider draws, by the digest of the
    prompt and not at random. If a forecast drew too, the planner would choose the layouts that it knows to be lucky.
    """

    def __init__(self, profile: CacheProfile, capacity: int, *, is_forecast: bool = False) -> None:
        self._profile, self._is_forecast = profile, is_forecast
        self.table = EntryTable(capacity, profile.capacity_tokens)
        self.tables: tuple[EntryTable, ...] = (self.table,)

    def bill(self, prompt: Prompt, now: float) -> Bill:
        """The bill of the provider for this prompt now. This changes nothing."""
        return Bill(read=0, write_5m=0, write_1h=0, plain=prompt.total)

    def store(self, prompt: Prompt, now: float, available: float, output: bytes | None = None) -> None:
        """Record an accepted request that started at ``now`` and began to be answered at ``available``: refresh the
        entries that it read, and add those that it wrote. ``output`` is the digest of the prompt with its answer behind
        it, for providers that cache output, too."""

    def held(self, prompt: Prompt, now: float, before: Sequence[int] | None = None) -> list[int]:
        """The positions, ascending, that a marker at the same position would read. If ``before`` is given, only the
        nearest one up to each of its positions. A cache without markers has none."""
        return []

    def last_use(self, prompt: Prompt, position: int, now: float) -> tuple[float, float] | None:
        """The seconds since the entry at a position was last used, and its life. None if there is no live entry."""
        return self.table.last_use((prompt.scope, prompt.hashes[position]), now)

    def forget(self, prompt: Prompt, positions: Iterable[int]) -> None:
        """Drop entries that the provider evidently does not hold. A cache that stores every prefix drops nothing,
        because the prompt that was just sent is stored again."""
        return

    def follow(self, profile: CacheProfile) -> None:
        """Apply these rules from now on. If lives turned out shorter, entries end sooner by the same time."""
        self.table.shorten(self._profile, profile)
        self._profile = profile

    def _spread(self, used: Entry | None, now: float) -> float:
        """The time at which the entries in front of a ``used`` entry are renewed with it: ``now``, or the time of the
        last renewal. A long conversation has hundreds of them, so a forecast renews them only a few times in a life."""
        profile = self._profile
        if used is None or not self._is_forecast or profile.capacity_tokens:
            return now
        return now if now - used.spread >= _SPREAD_SHARE * profile.life_s else used.spread
