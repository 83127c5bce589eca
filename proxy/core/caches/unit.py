"""The unit family: whole units are stored for free and read only when fully matched.

DeepSeek ("Context Caching", https://api-docs.deepseek.com/guides/kv_cache): units end at the end of the input, at the
end of the output, at fixed intervals, and where several requests were seen to share a prefix; they appear within
seconds and live for hours. Observed hits are multiples of 128 tokens (deepseek-v4-for-copilot #25, qwen-code #4518).
The interval and the delay are fields of the profile.
"""

from collections.abc import Iterable

from proxy.core.caches.entries import EntryTable
from proxy.core.caches.prompt import Bill, Prompt
from proxy.core.providers import CacheProfile


class UnitCache:
    """Billed in two spans: read in whole steps, plain the rest."""

    __slots__ = ("_interval", "_profile", "_seen", "_step", "_units")

    def __init__(self, profile: CacheProfile, capacity: int) -> None:
        self._profile = profile
        self._step = max(1, profile.step)
        self._interval = profile.interval_tokens or self._step
        self._units = EntryTable(capacity)
        self._seen = EntryTable(capacity)

    def bill(self, prompt: Prompt, now: float) -> Bill:
        """The longest unit that this prompt begins with, rounded down to a step."""
        get, scope, total, step = self._units.getter(), prompt.scope, prompt.total, self._step
        for position in range(len(prompt.ends) - 1, -1, -1):
            read = prompt.ends[position] // step * step
            if read < self._profile.min_tokens:
                break
            entry = get((scope, prompt.hashes[position]))
            if entry is not None and entry[0] <= now < entry[1]:
                return Bill(read=read, write_5m=0, write_1h=0, plain=total - read, hit=position)
        return Bill(read=0, write_5m=0, write_1h=0, plain=total)

    def store(self, prompt: Prompt, now: float, available: float, output: bytes | None = None) -> None:
        """Units at the end of the input, at the intervals, at the prefix shared with an earlier request, and, where
        ``output`` gives the digest of the prompt with its answer behind it, at the end of the output."""
        profile = self._profile
        available += profile.delay_s
        life_s = profile.life_s + profile.slack_s
        shared = self._shared(prompt, now)
        if output is not None and profile.caches_output:
            self._units.put((prompt.scope, output), now, available, life_s)
        last = len(prompt.ends) - 1
        for position in range(last, -1, -1):
            key = (prompt.scope, prompt.hashes[position])
            start = prompt.ends[position - 1] if position else 0
            crosses = prompt.ends[position] // self._interval > start // self._interval
            if position in (last, shared) or crosses:
                self._units.put(key, now, available, life_s)
            self._seen.put(key, now, available, life_s)
        self._units.trim(now)
        self._seen.trim(now)

    def held(self, prompt: Prompt, now: float) -> list[int]:
        """Empty: there are no markers to place."""
        return []

    def last_use(self, prompt: Prompt, position: int, now: float) -> tuple[float, float] | None:
        """Seconds since the entry at a position was last used, and its life."""
        return self._units.last_use((prompt.scope, prompt.hashes[position]), now)

    def forget(self, prompt: Prompt, positions: Iterable[int]) -> None:
        """Nothing: what was just sent is stored again."""

    def follow(self, profile: CacheProfile) -> None:
        """From now on these rules hold."""
        self._units.shorten(self._profile, profile)
        self._profile = profile
        self._step = max(1, profile.step)
        self._interval = profile.interval_tokens or self._step

    def copy(self) -> "UnitCache":
        """A hypothetical continuation: reads through, keeps its own writes."""
        twin = object.__new__(UnitCache)
        for name in UnitCache.__slots__:
            setattr(twin, name, getattr(self, name))
        twin._units, twin._seen = self._units.copy(), self._seen.copy()
        return twin

    def tables(self) -> tuple[EntryTable, ...]:
        """Where the entries are."""
        return (self._units, self._seen)

    def __len__(self) -> int:
        return len(self._units)

    def _shared(self, prompt: Prompt, now: float) -> int:
        """The deepest position that an earlier request passed, too, or -1."""
        get = self._seen.getter()
        for position in range(len(prompt.ends) - 1, -1, -1):
            entry = get((prompt.scope, prompt.hashes[position]))
            if entry is not None and now < entry.expiry:
                return position
        return -1
