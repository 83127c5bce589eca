"""Provider prompt caches as pure models: what a request would be billed now, and what is stored after it.

Four families, one face (``proxy.core.caches.cache.Cache``):

- ``MARKER``: entries exist only where a marker stood, and writing costs extra. Claude, Qwen and MiniMax walk back from
  each marker (``marker``); OpenAI GPT-5.6 and newer look up exact boundaries, some of them their own (``boundary``).
- ``GRID`` (most others, vLLM and SGLang): every prefix of a request is stored for free and read in steps.
- ``UNIT`` (DeepSeek): the ends of input and output, fixed intervals and detected common prefixes are stored for free.
- ``NONE``: nothing is stored (``cache``).

A model belongs to one provider; accounts, models and settings are kept apart by ``Prompt.scope``. Time is given by
the caller and may be virtual. All facts are in the profile (``proxy.core.providers``), also those that no source
states: ``pessimistic`` and ``optimistic`` turn them, so that a result can be reported under each answer.
"""

from typing import assert_never

from proxy.core.caches.cache import DEFAULT_CAPACITY, Cache
from proxy.core.caches.grid import GridCache, UnitCache
from proxy.core.caches.marker import BoundaryCache, MarkerCache, validate
from proxy.core.providers import CacheProfile, Dialect, Family

__all__ = ["Cache", "make_cache", "validate"]


def make_cache(profile: CacheProfile, *, capacity: int = DEFAULT_CAPACITY, is_forecast: bool = False) -> Cache:
    """An empty cache by the profile's rules, holding at most ``capacity`` entries.

    ``is_forecast``: a shadow of a provider, not a provider: chance is taken at its expectation.
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
