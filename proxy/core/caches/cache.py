"""A provider's prompt cache, as every model of one can be asked."""

from collections.abc import Iterable
from typing import Self

from proxy.core.caches.entries import EntryTable
from proxy.core.caches.prompt import Bill, Prompt
from proxy.core.providers import CacheProfile


class Cache:
    """What one account at a provider has stored, and until when. Time is unix seconds, and the caller gives it.

    This one keeps nothing, as a provider without a prompt cache. A subclass says how a prompt is billed and stored. The
    rest serves the planner, which also prices futures that have not happened.
    """

    __slots__ = ("_profile", "_table")

    def __init__(self, profile: CacheProfile, capacity: int) -> None:
        self._profile = profile
        self._table = EntryTable(capacity, profile.capacity_tokens)

    def bill(self, prompt: Prompt, now: float) -> Bill:
        """What the provider would charge for this prompt now. Changes nothing."""
        return Bill(read=0, write_5m=0, write_1h=0, plain=prompt.total)

    def store(self, prompt: Prompt, now: float, available: float, output: bytes | None = None) -> None:
        """The request that started at ``now`` and first answered at ``available`` was accepted: refresh what it read
        and add what it wrote. ``output`` chains the answer's digest where a provider caches output, too."""

    def held(self, prompt: Prompt, now: float) -> list[int]:
        """Positions, ascending, that a marker there would read. A cache without markers has none."""
        return []

    def last_use(self, prompt: Prompt, position: int, now: float) -> tuple[float, float] | None:
        """Seconds since the entry at a position was last used, and its life; None where there is none."""
        return self._table.last_use((prompt.scope, prompt.hashes[position]), now)

    def forget(self, prompt: Prompt, positions: Iterable[int]) -> None:
        """Drop entries that the provider evidently does not hold. A cache that stores every prefix drops nothing: what
        was just sent is stored again."""
        return

    def follow(self, profile: CacheProfile) -> None:
        """From now on these rules hold. Where lives turned out shorter, entries end as much sooner."""
        self._table.shorten(self._profile, profile)
        self._profile = profile

    def copy(self) -> Self:
        """A hypothetical continuation, made in no time: it reads what this cache holds, and keeps its own writes. Drop
        it before this cache stores again."""
        twin = object.__new__(type(self))
        twin._profile, twin._table = self._profile, self._table.copy()
        return twin

    def tables(self) -> tuple[EntryTable, ...]:
        """Where the entries are. They are handed to another process, which orders them alike."""
        return (self._table,)

    def __len__(self) -> int:
        """Entries held, expired ones that were not swept yet included."""
        return len(self._table)
