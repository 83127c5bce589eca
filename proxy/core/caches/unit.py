"""The unit family: whole units are stored for free and read only when fully matched.

DeepSeek ("Context Caching", https://api-docs.deepseek.com/guides/kv_cache): units end at the end of the input, at the
end of the output, at fixed intervals, and where several requests were seen to share a prefix; they appear within
seconds and live for hours. Observed hits are multiples of 128 tokens (deepseek-v4-for-copilot #25, qwen-code #4518).
The interval and the delay are fields of the profile.
"""

from proxy.core.caches.cache import Cache, EntryTable
from proxy.core.caches.prompt import Bill, Prompt
from proxy.core.providers import CacheProfile


class UnitCache(Cache):
    """Bills in two spans: whole steps are read, and the rest is plain."""

    __slots__ = ("_seen",)

    def __init__(self, profile: CacheProfile, capacity: int) -> None:
        super().__init__(profile, capacity)
        self._seen = EntryTable(capacity)

    def bill(self, prompt: Prompt, now: float) -> Bill:
        """The longest unit that this prompt begins with, rounded down to a step."""
        get, scope, total, step = self._table.get, prompt.scope, prompt.total, self._profile.step
        for position in range(len(prompt.ends) - 1, -1, -1):
            read = prompt.ends[position] // step * step
            if read < self._profile.min_tokens:
                break
            entry = get((scope, prompt.hashes[position]))
            if entry is not None and entry[0] <= now < entry[1]:
                return Bill(read=read, write_5m=0, write_1h=0, plain=total - read, hit=position)
        return super().bill(prompt, now)

    def store(self, prompt: Prompt, now: float, available: float, output: bytes | None = None) -> None:
        """Units at the end of the input, at the intervals, at the prefix shared with an earlier request, and, where
        ``output`` gives the digest of the prompt with its answer behind it, at the end of the output."""
        profile = self._profile
        available += profile.delay_s
        life_s = profile.life_s + profile.slack_s
        shared, interval = self._shared(prompt, now), profile.interval_tokens or profile.step
        if output is not None and profile.caches_output:
            self._table.put((prompt.scope, output), now, available, life_s)
        last = len(prompt.ends) - 1
        for position in range(last, -1, -1):
            key = (prompt.scope, prompt.hashes[position])
            start = prompt.ends[position - 1] if position else 0
            crosses = prompt.ends[position] // interval > start // interval
            if position in (last, shared) or crosses:
                self._table.put(key, now, available, life_s)
            self._seen.put(key, now, available, life_s)
        self._table.trim(now)
        self._seen.trim(now)

    def tables(self) -> tuple[EntryTable, ...]:
        """The tables of the units and of the prefixes that were seen."""
        return (self._table, self._seen)

    def _shared(self, prompt: Prompt, now: float) -> int:
        """The deepest position that an earlier request also passed, or -1."""
        get = self._seen.get
        for position in range(len(prompt.ends) - 1, -1, -1):
            entry = get((prompt.scope, prompt.hashes[position]))
            if entry is not None and now < entry.expiry:
                return position
        return -1
