"""Provider prompt caches as pure models: the bill of a request now, and the entries that are stored after it.

There are four families with one interface (``proxy.core.caches.cache.Cache``):

- ``MARKER``: entries exist only where a marker stood, and writing costs extra. Claude, Qwen and MiniMax walk back from
  each marker (``MarkerCache``). OpenAI GPT-5.6 and newer look up exact boundaries, some of which the provider sets
  itself (``BoundaryCache``).
- ``GRID`` (most others, vLLM and SGLang): every prefix of a request is stored for free and read in steps.
- ``UNIT`` (DeepSeek): the ends of input and output, fixed intervals and detected common prefixes are stored for free.
- ``NONE``: nothing is stored (``cache``).

A cache belongs to one provider; ``Prompt.scope`` keeps accounts, models and settings apart. The caller gives the time,
which may be virtual. All facts are in the profile (``proxy.core.providers``), also those that no source states.
``pessimistic`` and ``optimistic`` set these to a bad and to a good value, so that a result can be reported for both.
"""

from typing import assert_never

from proxy.core.caches.cache import DEFAULT_CAPACITY, Cache
from proxy.core.caches.kinds import BoundaryCache, GridCache, MarkerCache, UnitCache, validate
from proxy.core.providers import CacheProfile, Dialect, Family

__all__ = ["Cache", "make_cache", "validate"]


def make_cache(profile: CacheProfile, *, capacity: int = DEFAULT_CAPACITY, is_forecast: bool = False) -> Cache:
    """An empty cache with the profile's rules. It holds at most ``capacity`` entries.

    ``is_forecast``: the cache is a shadow of a provider, not a provider, and takes the expected value of chance.
    """
    match profile.family:
        case Family.MARKER if profile.dialect is Dialect.BREAKPOINT:
            return BoundaryCache(profile, capacity, is_forecast=is_forecast)
        case Family.MARKER:
            return MarkerCache(profile, capacity, is_forecast=is_forecast)
        case Family.GRID:
            return GridCache(profile, capacity, is_forecast=is_forecast)
        case Family.UNIT:
            return UnitCache(profile, capacity, is_forecast=is_forecast)
        case Family.NONE:
            return Cache(profile, capacity, is_forecast=is_forecast)
        case _:
            assert_never(profile.family)
