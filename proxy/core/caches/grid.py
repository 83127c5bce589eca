"""Caches that store for free: every prefix on a grid of tokens, or whole units.

In the grid family, every prefix is stored and read in steps of tokens.

OpenAI up to GPT-5.5 ("Prompt caching", https://developers.openai.com/api/docs/guides/prompt-caching, 2026-09-20) caches
automatically from 1024 tokens and reports in steps of 128 (GPT-5.5: breakpoints 2048 tokens apart, counted from the
start of a hidden system message). It has no write price and keeps idle entries for 5 - 10 minutes. Gemini, xAI,
Mistral, Groq, Kimi and others differ in the numbers. vLLM's blocks and SGLang's radix tree are grids, too. There, the
last token is always computed, so at most floor((n - 1) / B) * B tokens are read; memory is bounded, and output is kept.

In the unit family, whole units are stored for free and read only if they match fully.

DeepSeek ("Context Caching", https://api-docs.deepseek.com/guides/kv_cache): units end at the end of the input, at the
end of the output, at fixed intervals, and at the end of a prefix that several requests were seen to share. Units appear
within seconds and live for hours. Observed hits are multiples of 128 tokens (deepseek-v4-for-copilot #25, qwen-code
#4518). The interval and the delay are fields of the profile.
"""

from bisect import bisect_left
from hashlib import sha256

from proxy.core.caches.cache import Cache, EntryTable
from proxy.core.caches.prompt import Bill, Prompt
from proxy.core.providers import CacheProfile

_DRAWN_BYTES = 4
_DRAWS = 256.0**_DRAWN_BYTES


class GridCache(Cache):
    """Bills tokens as read or plain. If writes are metered, whole steps behind the part that was read are billed as
    written."""

    __slots__ = ()

    def bill(self, prompt: Prompt, now: float) -> Bill:
        """The bill: the prompt is read up to the deepest live position, rounded down to a step."""
        hit, read = self._found(prompt, now)
        written = self._written(prompt, read)
        is_long = written > 0 and self._is_long(prompt)
        return Bill(
            read=read,
            write_5m=0 if is_long else written,
            write_1h=written if is_long else 0,
            plain=prompt.total - read - written,
            hit=hit,
        )

    def store(self, prompt: Prompt, now: float, available: float, output: bytes | None = None) -> None:
        """Store every position from the minimum on. The deepest is stored first, so that it is also evicted first.

        ``output`` is the digest of the prompt with its answer behind it, for providers that keep answers, too.
        """
        profile, table = self._profile, self._table
        if not prompt.scope:
            return
        available += profile.delay_s
        life_s = (profile.long_life_s if self._is_long(prompt) else profile.life_s) + profile.slack_s
        if output is not None and profile.caches_output:
            table.put((prompt.scope, output), now, available, life_s)
        ends, least = prompt.ends, profile.min_tokens - profile.hidden_tokens
        hit = self._found(prompt, now)[0] if self._is_forecast else -1
        spread = self._spread(table.get((prompt.scope, prompt.hashes[hit])) if hit >= 0 else None, now)
        for position in range(len(ends) - 1, -1 if spread == now else hit - 1, -1):
            if ends[position] < least:
                break
            tokens = ends[position] - (ends[position - 1] if position else 0)
            table.put((prompt.scope, prompt.hashes[position]), now, available, life_s, tokens).spread = spread
        table.trim(now)

    def _found(self, prompt: Prompt, now: float) -> tuple[int, int]:
        """The deepest position that can be read (-1: none) and the tokens that are read there."""
        profile = self._profile
        if not prompt.ends or not prompt.scope:
            return -1, 0
        if profile.hit_chance < 1 and not self._is_forecast and not _is_lucky(prompt, profile):
            return -1, 0
        get, scope, last = self._table.get, prompt.scope, prompt.total - 1
        least = _first_step(profile)
        first = bisect_left(prompt.ends, least) if last >= least else len(prompt.ends)
        for position in range(len(prompt.ends) - 1, first - 1, -1):
            entry = get((scope, prompt.hashes[position]))
            if entry is not None and entry.available <= now < entry.expiry:
                end = prompt.ends[position]
                read = self._steps(end if end < last else last)
                if self._is_forecast:
                    read = int(read * profile.hit_chance)
                return (position, read) if read else (-1, 0)
        return -1, 0

    def _steps(self, tokens: int) -> int:
        """The tokens of whole steps in a prefix. 0 if the prefix is too short."""
        profile, hidden = self._profile, self._profile.hidden_tokens
        found = (tokens + hidden) // profile.step * profile.step
        if found < profile.min_tokens:
            return 0
        found -= hidden
        return found // profile.report_step * profile.report_step if profile.report_step else found

    def _written(self, prompt: Prompt, read: int) -> int:
        if not self._profile.meters_writes:
            return 0
        return max(0, self._steps(prompt.total - 1) - read)

    def _is_long(self, prompt: Prompt) -> bool:
        return self._profile.long_life_s > 0 and prompt.marks.get(len(prompt.ends) - 1) == "1h"


def _first_step(profile: CacheProfile) -> int:
    """The length of the shortest prefix that can be read. A shorter one has no whole step that reaches the minimum."""
    return -(-max(1, profile.min_tokens) // profile.step) * profile.step - profile.hidden_tokens


def _is_lucky(prompt: Prompt, profile: CacheProfile) -> bool:
    """Whether this prompt reaches a machine that holds its prefix. The prompt's own digest decides, so the same prompt
    always has the same luck and a replay can be repeated. Gemini's implicit cache gives no guarantee of a hit."""
    drawn = int.from_bytes(sha256(b"chance" + prompt.hashes[-1]).digest()[:_DRAWN_BYTES])
    return drawn < profile.hit_chance * _DRAWS


class UnitCache(Cache):
    """Bills in two spans: whole steps are read, and the rest is plain."""

    __slots__ = ("_seen",)

    def __init__(self, profile: CacheProfile, capacity: int, *, is_forecast: bool = False) -> None:
        super().__init__(profile, capacity, is_forecast=is_forecast)
        self._seen = EntryTable(capacity)

    def bill(self, prompt: Prompt, now: float) -> Bill:
        """The bill: the longest unit that this prompt begins with is read, rounded down to a step."""
        get, scope, total, step = self._table.get, prompt.scope, prompt.total, self._profile.step
        for position in range(len(prompt.ends) - 1, -1, -1):
            read = prompt.ends[position] // step * step
            if read < self._profile.min_tokens:
                break
            entry = get((scope, prompt.hashes[position]))
            if entry is not None and entry.available <= now < entry.expiry:
                return Bill(read=read, write_5m=0, write_1h=0, plain=total - read, hit=position)
        return super().bill(prompt, now)

    def store(self, prompt: Prompt, now: float, available: float, output: bytes | None = None) -> None:
        """Store units at the end of the input, at the intervals, and at the end of the prefix that is shared with an
        earlier request. If ``output`` gives the digest of the prompt with its answer behind it, a unit at the end of
        the output is stored, too."""
        profile = self._profile
        available += profile.delay_s
        life_s = profile.life_s + profile.slack_s
        shared, interval = self._shared(prompt, now), profile.interval_tokens or profile.step
        if output is not None and profile.caches_output:
            self._table.put((prompt.scope, output), now, available, life_s)
        last = len(prompt.ends) - 1
        spread = self._spread(self._seen.get((prompt.scope, prompt.hashes[shared])) if shared >= 0 else None, now)
        for position in range(last, -1 if spread == now else shared - 1, -1):
            key = (prompt.scope, prompt.hashes[position])
            start = prompt.ends[position - 1] if position else 0
            crosses = prompt.ends[position] // interval > start // interval
            if position in (last, shared) or crosses:
                self._table.put(key, now, available, life_s)
            self._seen.put(key, now, available, life_s).spread = spread
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
