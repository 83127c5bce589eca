"""The marker family: an entry stands only where a marker stood.

Rules and their sources (Anthropic, "Prompt caching", https://platform.claude.com/docs/en/build-with-claude/prompt-caching,
2026-08-21 and later copies): one entry per breakpoint; per breakpoint at most 20 positions are looked at, the
breakpoint itself counted, then the next earlier breakpoint; a run of tool calls or of tool results is one position;
readable once the first response begins; the life counts from the start of the request that wrote or read; below the
model's minimum a marker is ignored silently. Qwen's and MiniMax's explicit caches work alike. What the pages leave open
is a field of the profile: whether lives read each other, what a read renews, whether runs collapse, whether a marker
below the hit makes an entry.
"""

from collections.abc import Callable, Sequence

from proxy.core.caches.entries import Entry, Key
from proxy.core.caches.marked import MarkedCache
from proxy.core.caches.prompt import Bill, Prompt
from proxy.core.providers import CacheProfile, Dialect


def validate(prompt: Prompt, profile: CacheProfile) -> str | None:
    """Why the provider would refuse these markers with a 400, or None."""
    if profile.dialect not in (Dialect.CACHE_CONTROL, Dialect.PART_CACHE_CONTROL):
        return None
    if len(prompt.marks) > profile.max_marks:
        return f"A maximum of {profile.max_marks} blocks with cache_control may be provided. Found {len(prompt.marks)}."
    short_seen = False
    for position in sorted(prompt.marks):
        if prompt.marks[position] == "5m":
            short_seen = True
        elif short_seen:
            return "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block"
    return None


class MarkerCache(MarkedCache):
    """Bills in three spans: up to the hit the prompt is read, up to the last marker behind it written, and plain from
    there on."""

    __slots__ = ()

    def bill(self, prompt: Prompt, now: float) -> Bill:
        """Read A = the hit, 1-hour write up to B = the last 1-hour marker behind A, 5-minute write up to C = the last
        marker behind A, plain the rest. Marks that the provider would refuse are billed all the same: ``validate``."""
        usable = self._usable(prompt)
        if not usable:
            return super().bill(prompt, now)
        ends = prompt.ends
        hit = self._hit(prompt, usable, now)
        read = long_end = write_end = ends[hit] if hit >= 0 else 0
        for position in usable[-self._profile.max_marks :]:
            if ends[position] > read:
                write_end = ends[position]
                if self._is_long(prompt.marks[position]):
                    long_end = write_end
        return Bill(
            read=read,
            write_5m=write_end - long_end,
            write_1h=long_end - read,
            plain=prompt.total - write_end,
            hit=hit,
        )

    def store(self, prompt: Prompt, now: float, available: float, output: bytes | None = None) -> None:
        """Renew what was read and put an entry at each marker behind it."""
        usable = self._usable(prompt)
        if not usable:
            return
        hit = self._hit(prompt, usable, now)
        if hit >= 0:
            self._renew(prompt, hit, now)
        read = prompt.ends[hit] if hit >= 0 else 0
        profile = self._profile
        available += profile.delay_s
        for position in usable[-self._profile.max_marks :]:
            life = prompt.marks[position]
            key = (self._scope(prompt, life), prompt.hashes[position])
            if prompt.ends[position] > read or (profile.below_hit_free_entry and self._is_free(key, now)):
                life_s = profile.long_life_s if self._is_long(life) else profile.life_s
                self._table.put(key, now, available, life_s + profile.slack_s)
        self._table.trim(now)

    def _is_free(self, key: Key, now: float) -> bool:
        entry = self._table.getter()(key)
        return entry is None or entry.expiry <= now

    def _usable(self, prompt: Prompt) -> list[int]:
        """Marked positions in order, without those below the minimum."""
        ends, minimum = prompt.ends, self._profile.min_tokens
        return sorted(position for position in prompt.marks if ends[position] >= minimum)

    def _hit(self, prompt: Prompt, usable: Sequence[int], now: float) -> int:
        """The deepest position that can be read, or -1."""
        get = self._table.getter()
        best = -1
        for mark in reversed(usable):
            if mark <= best:
                break
            found = self._walk(get, self._scope(prompt, prompt.marks[mark]), prompt, mark, now)
            best = max(best, found)
            if best >= 0 and self._profile.cross_life_read:
                break  # every position between here and there was looked at
        return best

    def _walk(self, get: Callable[[Key], Entry | None], scope: bytes, prompt: Prompt, mark: int, now: float) -> int:
        """The deepest readable position in reach of one marker, or -1. Going back, a run counts as its last position;
        the position of the marker itself is always looked at."""
        profile = self._profile
        hashes, ends, minimum = prompt.hashes, prompt.ends, profile.min_tokens
        runs = prompt.runs if profile.collapses_runs else range(len(hashes))
        position = mark
        for _ in range(profile.lookback):
            if position < 0 or ends[position] < minimum:
                return -1
            entry = get((scope, hashes[position]))
            if entry is not None and entry[0] <= now < entry[1]:
                return position
            run = runs[position]
            position -= 1
            while position >= 0 and runs[position] == run:
                position -= 1
        return -1
