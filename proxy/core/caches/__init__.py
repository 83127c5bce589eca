"""Provider prompt caches as pure models: what a request would be billed now, and what is stored after it.

Four families, one protocol (``proxy.core.caches.prompt.CacheModel``):

- ``MARKER``: entries exist only where a marker stood, and writing costs extra. Claude, Qwen and MiniMax walk back from
  each marker (``marker``); OpenAI GPT-5.6 and newer look up exact boundaries, some of them their own (``boundary``).
- ``GRID`` (most others, vLLM and SGLang): every prefix of a request is stored for free and read in steps.
- ``UNIT`` (DeepSeek): the ends of input and output, fixed intervals and detected common prefixes are stored for free.
- ``NONE``: nothing is stored.

A model belongs to one provider; accounts, models and settings are kept apart by ``Prompt.scope``. Time is given by
the caller and may be virtual. All facts are in the profile (``proxy.core.providers``), also those that no source
states: ``pessimistic`` and ``optimistic`` turn them, so that a result can be reported under each answer.
"""

from collections.abc import Iterable
from typing import Protocol, assert_never

from proxy.core.caches.boundary import BoundaryCache
from proxy.core.caches.entries import DEFAULT_CAPACITY, EntryTable
from proxy.core.caches.grid import GridCache
from proxy.core.caches.marker import MarkerCache, validate
from proxy.core.caches.prompt import Bill, CacheModel, Prompt
from proxy.core.caches.unit import UnitCache
from proxy.core.providers import CacheProfile, Dialect, Family

__all__ = ["Cache", "make_cache", "validate"]


class Cache(CacheModel, Protocol):
    """A cache model that can also price futures that have not happened."""

    def held(self, prompt: Prompt, now: float) -> list[int]:
        """Positions, ascending, that a marker there would read; empty for caches without markers."""
        ...

    def last_use(self, prompt: Prompt, position: int, now: float) -> tuple[float, float] | None:
        """Seconds since the entry at a position was last used, and its life; None where there is none."""
        ...

    def forget(self, prompt: Prompt, positions: Iterable[int]) -> None:
        """Drop entries that the provider evidently does not hold. Nothing for caches that store every prefix: what was
        just sent is stored again."""
        ...

    def follow(self, profile: CacheProfile) -> None:
        """From now on these rules hold; where lives turned out shorter, entries end as much sooner."""
        ...

    def copy(self) -> "Cache":
        """A hypothetical continuation, made in no time: it sees what this cache holds, and what it stores stays in it.
        Drop it before this cache stores again."""
        ...

    def tables(self) -> tuple[EntryTable, ...]:
        """Where the entries are: to hand them to another process, which orders them alike."""
        ...

    def __len__(self) -> int:
        """Entries held, expired ones that were not swept yet included."""
        ...


def make_cache(profile: CacheProfile, *, capacity: int = DEFAULT_CAPACITY, is_forecast: bool = False) -> Cache:
    """An empty cache by the profile's rules, holding at most ``capacity`` entries.

    ``is_forecast``: a shadow of a provider, not a provider: chance is taken at its expectation.
    """
    match profile.family:
        case Family.MARKER if profile.dialect is Dialect.BREAKPOINT:
            return BoundaryCache(profile, capacity)
        case Family.MARKER:
            return MarkerCache(profile, capacity)
        case Family.GRID:
            return GridCache(profile, capacity, is_forecast=is_forecast)
        case Family.UNIT:
            return UnitCache(profile, capacity)
        case Family.NONE:
            return NoCache()
        case _:
            assert_never(profile.family)


class NoCache:
    """A provider without a prompt cache: every token is plain."""

    def bill(self, prompt: Prompt, now: float) -> Bill:
        """All plain."""
        return Bill(read=0, write_5m=0, write_1h=0, plain=prompt.total)

    def store(self, prompt: Prompt, now: float, available: float, output: bytes | None = None) -> None:
        """Nothing is kept."""

    def held(self, prompt: Prompt, now: float) -> list[int]:
        """Nothing is held."""
        return []

    def last_use(self, prompt: Prompt, position: int, now: float) -> tuple[float, float] | None:
        """Nothing is held."""
        return None

    def forget(self, prompt: Prompt, positions: Iterable[int]) -> None:
        """Nothing is held."""

    def follow(self, profile: CacheProfile) -> None:
        """There are no rules."""

    def copy(self) -> "NoCache":
        """There is nothing to copy."""
        return self

    def tables(self) -> tuple[EntryTable, ...]:
        """There are none."""
        return ()

    def __len__(self) -> int:
        return 0
