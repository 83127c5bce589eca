"""The grid family: every prefix is stored for free and read in steps of tokens.

OpenAI up to GPT-5.5 ("Prompt caching", https://developers.openai.com/api/docs/guides/prompt-caching, 2026-09-20):
automatic from 1024 tokens, reported in steps of 128 (GPT-5.5: breakpoints 2048 tokens apart, counted from the start of
a hidden system message), no write price, kept while idle for 5 - 10 minutes. Gemini, xAI, Mistral, Groq, Kimi and
others differ in numbers. vLLM's blocks and SGLang's radix tree are grids, too: the last token is always computed, so
that at most floor((n - 1) / B) * B tokens are read; memory is bounded, output is kept.
"""

from bisect import bisect_left
from collections.abc import Iterable

from proxy.core.caches.entries import EntryTable
from proxy.core.caches.expected_hits import is_lucky, share_of
from proxy.core.caches.machines import Machines
from proxy.core.caches.prompt import Bill, Prompt
from proxy.core.providers import CacheProfile


class GridCache:
    """Billed in read and plain; where writes are metered, whole steps behind what was read are written.

    A forecast takes chance at its expectation, where an account draws (by the prompt's digest, not at random): else
    the planner would choose the layouts that it knows to be lucky.
    """

    __slots__ = ("_first", "_is_forecast", "_machines", "_profile", "_step", "_table")

    def __init__(self, profile: CacheProfile, capacity: int, *, is_forecast: bool = False) -> None:
        self._profile = profile
        self._is_forecast = is_forecast
        self._step = max(1, profile.step)
        self._first = _first_step(profile)
        self._table = EntryTable(capacity, profile.capacity_tokens)
        self._machines = Machines(profile.spill_rpm)

    def bill(self, prompt: Prompt, now: float) -> Bill:
        """The deepest live position, rounded down to a step."""
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
        """Every position from the minimum on; the deepest first, so that it is also the first to be evicted.

        ``output`` gives the digest of the prompt with its answer behind it, for providers that keep that, too.
        """
        profile, table = self._profile, self._table
        if not prompt.scope:
            return
        scope = self._machines.scope(prompt, now)
        available += profile.delay_s
        life_s = (profile.long_life_s if self._is_long(prompt) else profile.life_s) + profile.slack_s
        if output is not None and profile.caches_output:
            table.put((scope, output), now, available, life_s)
        ends, least = prompt.ends, profile.min_tokens - profile.hidden_tokens
        for position in range(len(ends) - 1, -1, -1):
            if ends[position] < least:
                break
            tokens = ends[position] - (ends[position - 1] if position else 0)
            table.put((scope, prompt.hashes[position]), now, available, life_s, tokens)
        table.trim(now)
        self._machines.request(prompt, now)

    def held(self, prompt: Prompt, now: float) -> list[int]:
        """Empty: there are no markers to place."""
        return []

    def last_use(self, prompt: Prompt, position: int, now: float) -> tuple[float, float] | None:
        """Seconds since the entry at a position was last used, and its life."""
        return self._table.last_use((self._machines.scope(prompt, now), prompt.hashes[position]), now)

    def forget(self, prompt: Prompt, positions: Iterable[int]) -> None:
        """Nothing: what was just sent is stored again."""

    def follow(self, profile: CacheProfile) -> None:
        """From now on these rules hold."""
        self._table.shorten(self._profile, profile)
        self._profile = profile
        self._step = max(1, profile.step)
        self._first = _first_step(profile)

    def copy(self) -> "GridCache":
        """A hypothetical continuation: reads through, keeps its own writes."""
        twin = object.__new__(GridCache)
        twin._profile, twin._is_forecast, twin._step = self._profile, self._is_forecast, self._step
        twin._first, twin._table, twin._machines = self._first, self._table.copy(), self._machines.copy()
        return twin

    def tables(self) -> tuple[EntryTable, ...]:
        """Where the entries are."""
        return (self._table,)

    def __len__(self) -> int:
        return len(self._table)

    def _found(self, prompt: Prompt, now: float) -> tuple[int, int]:
        """The deepest position that can be read (-1: none) and the tokens that are read there."""
        profile = self._profile
        if not prompt.ends or not prompt.scope:
            return -1, 0
        if profile.hit_chance < 1 and not self._is_forecast and not is_lucky(prompt, profile):
            return -1, 0
        get, scope, last = self._table.getter(), self._machines.scope(prompt, now), prompt.total - 1
        first = bisect_left(prompt.ends, self._first) if last >= self._first else len(prompt.ends)
        for position in range(len(prompt.ends) - 1, first - 1, -1):
            entry = get((scope, prompt.hashes[position]))
            if entry is not None and entry[0] <= now < entry[1]:
                end = prompt.ends[position]
                read = self._steps(end if end < last else last)
                if self._is_forecast:
                    read = share_of(read, profile)
                return (position, read) if read else (-1, 0)
        return -1, 0

    def _steps(self, tokens: int) -> int:
        """The tokens of whole steps in a prefix; 0 where it is too short."""
        profile, hidden = self._profile, self._profile.hidden_tokens
        found = (tokens + hidden) // self._step * self._step
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
    """The shortest prefix that can be read: shorter ones hold no whole step from the minimum on."""
    step = max(1, profile.step)
    return -(-max(1, profile.min_tokens) // step) * step - profile.hidden_tokens
