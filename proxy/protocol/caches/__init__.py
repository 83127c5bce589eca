"""Provider prompt caches as pure models: the bill of a request now, and the entries that are stored after it.

There are four families with one interface (``Cache``):

- ``MARKER``: entries exist only where a marker stood, and writing costs extra. Claude, Qwen and MiniMax walk back from
  each marker (``MarkerCache``). OpenAI GPT-5.6 and newer look up exact boundaries, some of which the provider sets
  itself (``BoundaryCache``).
- ``GRID`` (most others, vLLM and SGLang): every prefix of a request is stored for free and read in steps.
- ``UNIT`` (DeepSeek): the ends of input and output, fixed intervals and detected common prefixes are stored for free.
- ``NONE``: nothing is stored (``Cache``).

A cache belongs to one provider; ``PromptPositions.scope`` keeps accounts, models and settings apart. The caller gives
the time, which may be virtual. All facts are in the profile (``proxy.protocol.providers``), also those that no source
states. ``pessimistic`` and ``optimistic`` set these to a bad and to a good value, so that a result can be reported for
both.

``GridCache``: every prefix is stored and read in steps of tokens.

OpenAI up to GPT-5.5 ("Prompt caching", https://developers.openai.com/api/docs/guides/prompt-caching, 2026-09-20) caches
automatically from 1024 tokens and reports in steps of 128 (GPT-5.5: breakpoints 2048 tokens apart, counted from the
start of a hidden system message). It has no write price and keeps idle entries for 5 - 10 minutes. Gemini, xAI,
Mistral, Groq, Kimi and others differ in the numbers. vLLM's blocks and SGLang's radix tree are grids, too. There, the
last token is always computed, so at most floor((n - 1) / B) * B tokens are read; memory is bounded, and output is kept.

``UnitCache``: whole units are stored for free and read only if they match fully.

DeepSeek ("Context Caching", https://api-docs.deepseek.com/guides/kv_cache): units end at the end of the input, at the
end of the output, at fixed intervals, and at the end of a prefix that several requests were seen to share. Units appear
within seconds and live for hours. Observed hits are multiples of 128 tokens (deepseek-v4-for-copilot #25, qwen-code
#4518). The interval and the delay are fields of the profile.

``MarkerCache``: entries exist only at markers. It follows Anthropic's page ("Prompt caching",
https://platform.claude.com/docs/en/build-with-claude/prompt-caching, 2026-08-21 and later copies): one entry per
breakpoint. From each breakpoint at most 20 positions are looked at, including the breakpoint itself, then the next
earlier breakpoint follows. A run of tool calls or of tool results is one position. An entry is readable once the first
response begins. Its life counts from the start of the request that wrote or read it. Below the model's minimum a marker
is ignored silently. Qwen's and MiniMax's explicit caches work in the same way. Facts that the page does not state are
fields of the profile.

``BoundaryCache``: entries exist also at boundaries that the provider sets itself. It follows OpenAI's page for GPT-5.6
and newer, and Azure's ("Prompt caching", https://developers.openai.com/api/docs/guides/prompt-caching, 2026-09-20).
Boundaries are the client's breakpoints and, in implicit mode, the end of the latest eligible message. The latest few
boundaries are written. Another list is looked up: the first and the latest breakpoints, and in implicit mode earlier
message endings and the end of the opening instructions. The guide, the SDK and Azure state different lists, so the
lists are fields of the profile. There is no look-back: an entry is read only if a candidate stands at its position
again.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import repeat
from math import inf
from operator import attrgetter
from typing import Literal

from proxy.kit.value import dataclass, field
from proxy.protocol.caches.table import Entry, EntryTable, Key
from proxy.protocol.providers import CacheProfile, Dialect, Family

Life = Literal["5m", "1h"]


@dataclass(frozen=True, slots=True)
class PromptPositions:
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

    def scaled(self, total: int) -> "Bill":
        """The bill of a prompt of ``total`` tokens with the same shares. Rounding differences go to the plain
        tokens."""
        own = self.total
        if own <= 0:
            return Bill(0, 0, 0, total, self.hit)
        read, short, long = (part * total // own for part in (self.read, self.write_5m, self.write_1h))
        return Bill(read, short, long, total - read - short - long, self.hit)


DEFAULT_CAPACITY = 200_000
_SPREAD_SHARE = 0.15


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

    def bill(self, prompt: PromptPositions, now: float) -> Bill:
        """The bill of the provider for this prompt now. This changes nothing."""
        return Bill(read=0, write_5m=0, write_1h=0, plain=prompt.total)

    def store(self, prompt: PromptPositions, now: float, available: float, output: bytes | None = None) -> None:
        """Record an accepted request that started at ``now`` and began to be answered at ``available``: refresh the
        entries that it read, and add those that it wrote. ``output`` is the digest of the prompt with its answer behind
        it, for providers that cache output, too."""

    def held(self, prompt: PromptPositions, now: float, before: Sequence[int] | None = None) -> list[int]:
        """The positions, ascending, that a marker at the same position would read. If ``before`` is given, only the
        nearest one up to each of its positions. A cache without markers has none."""
        return []

    def last_use(self, prompt: PromptPositions, position: int, now: float) -> tuple[float, float] | None:
        """The seconds since the entry at a position was last used, and its life. None if there is no live entry."""
        return self.table.last_use((prompt.scope, prompt.hashes[position]), now)

    def forget(self, prompt: PromptPositions, positions: Iterable[int]) -> None:
        """Drop entries that the provider evidently does not hold. A cache that stores every prefix drops nothing,
        because the prompt that was just sent is stored again."""

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


_DRAWN_BYTES = 4
_DRAWS = 256.0**_DRAWN_BYTES


class GridCache(Cache):
    """Bills tokens as read or plain. If writes are metered, whole steps behind the part that was read are billed as
    written."""

    def bill(self, prompt: PromptPositions, now: float) -> Bill:
        """The bill: the prompt is read up to the deepest live position, rounded down to a step."""
        hit, read = self._found(prompt, now)
        written = max(0, self._steps(prompt.total - 1) - read) if self._profile.meters_writes else 0
        is_long = written > 0 and self._is_long(prompt)
        return Bill(
            read=read,
            write_5m=0 if is_long else written,
            write_1h=written if is_long else 0,
            plain=prompt.total - read - written,
            hit=hit,
        )

    def store(self, prompt: PromptPositions, now: float, available: float, output: bytes | None = None) -> None:
        """Store every position from the minimum on. The deepest is stored first, so that it is also evicted first.

        ``output`` is the digest of the prompt with its answer behind it, for providers that keep answers, too.
        """
        profile, table = self._profile, self.table
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

    def _found(self, prompt: PromptPositions, now: float) -> tuple[int, int]:
        """The deepest position that can be read (-1: none) and the tokens that are read there."""
        profile = self._profile
        if not prompt.ends or not prompt.scope:
            return -1, 0
        if profile.hit_chance < 1 and not self._is_forecast:
            # The prompt's own digest decides whether it reaches a machine that holds its prefix, so the same prompt
            # always has the same luck and a replay can be repeated. Gemini's implicit cache gives no guarantee of a
            # hit.
            drawn = int.from_bytes(sha256(b"chance" + prompt.hashes[-1]).digest()[:_DRAWN_BYTES])
            if drawn >= profile.hit_chance * _DRAWS:
                return -1, 0
        get, scope, last = self.table.get, prompt.scope, prompt.total - 1
        # The shortest prefix that can be read: a shorter one has no whole step that reaches the minimum.
        least = -(-max(1, profile.min_tokens) // profile.step) * profile.step - profile.hidden_tokens
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

    def _is_long(self, prompt: PromptPositions) -> bool:
        return self._profile.long_life_s > 0 and prompt.marks.get(len(prompt.ends) - 1) == "1h"


class UnitCache(Cache):
    """Bills in two spans: whole steps are read, and the rest is plain."""

    def __init__(self, profile: CacheProfile, capacity: int, *, is_forecast: bool = False) -> None:
        super().__init__(profile, capacity, is_forecast=is_forecast)
        self._seen = EntryTable(capacity)
        self.tables = (self.table, self._seen)

    def bill(self, prompt: PromptPositions, now: float) -> Bill:
        """The bill: the longest unit that this prompt begins with is read, rounded down to a step."""
        get, scope, total, step = self.table.get, prompt.scope, prompt.total, self._profile.step
        for position in range(len(prompt.ends) - 1, -1, -1):
            read = prompt.ends[position] // step * step
            if read < self._profile.min_tokens:
                break
            entry = get((scope, prompt.hashes[position]))
            if entry is not None and entry.available <= now < entry.expiry:
                return Bill(read=read, write_5m=0, write_1h=0, plain=total - read, hit=position)
        return super().bill(prompt, now)

    def store(self, prompt: PromptPositions, now: float, available: float, output: bytes | None = None) -> None:
        """Store units at the end of the input, at the intervals, and at the end of the prefix that is shared with an
        earlier request. If ``output`` gives the digest of the prompt with its answer behind it, a unit at the end of
        the output is stored, too."""
        profile = self._profile
        available += profile.delay_s
        life_s = profile.life_s + profile.slack_s
        seen, interval = self._seen.get, profile.interval_tokens or profile.step
        shared = len(prompt.ends) - 1
        # The deepest position that an earlier request also passed.
        while shared >= 0 and ((one := seen((prompt.scope, prompt.hashes[shared]))) is None or now >= one.expiry):
            shared -= 1
        if output is not None and profile.caches_output:
            self.table.put((prompt.scope, output), now, available, life_s)
        last = len(prompt.ends) - 1
        spread = self._spread(seen((prompt.scope, prompt.hashes[shared])) if shared >= 0 else None, now)
        for position in range(last, -1 if spread == now else shared - 1, -1):
            key = (prompt.scope, prompt.hashes[position])
            start = prompt.ends[position - 1] if position else 0
            crosses = prompt.ends[position] // interval > start // interval
            if position in (last, shared) or crosses:
                self.table.put(key, now, available, life_s)
            self._seen.put(key, now, available, life_s).spread = spread
        self.table.trim(now)
        self._seen.trim(now)


class MarkerCache(Cache):
    """A cache of entries at markers. It bills in three spans: the prompt is read up to the hit, written from there up
    to the last position that gets an entry, and plain from there on. Each entry has one of two lives."""

    def bill(self, prompt: PromptPositions, now: float) -> Bill:
        """The bill: read up to A, the hit; 1-hour write up to B, the last written 1-hour marker behind A; 5-minute
        write up to C, the last position behind A that is written; the rest is plain. Markers that the provider would
        refuse are billed, too: only ``validate`` checks them."""
        if not prompt.marks and not prompt.endings:
            return Bill(0, 0, 0, prompt.total)
        ends, hit = prompt.ends, self._hit(prompt, now)
        read = long_end = write_end = ends[hit] if hit >= 0 else 0
        has_long = self._profile.long_life_s > 0
        for position in self._written(prompt):
            if ends[position] > read:
                write_end = ends[position]
                if has_long and prompt.marks.get(position) == "1h":
                    long_end = write_end
        return Bill(
            read=read,
            write_5m=write_end - long_end,
            write_1h=long_end - read,
            plain=prompt.total - write_end,
            hit=hit,
        )

    def store(self, prompt: PromptPositions, now: float, available: float, output: bytes | None = None) -> None:
        """Renew the entries that were read, and put an entry at each position behind them that is written."""
        if not prompt.marks and not prompt.endings:
            return
        profile, written, hit = self._profile, self._written(prompt), self._hit(prompt, now)
        if not written and hit < 0:
            return
        spread = self._renew(prompt, hit, max((hit, *written)), now)
        read = prompt.ends[hit] if hit >= 0 else 0
        available += profile.delay_s
        scopes = self._scopes(prompt)
        for position in written:
            is_long = profile.long_life_s > 0 and prompt.marks.get(position) == "1h"
            key = (scopes[is_long], prompt.hashes[position])
            entry = self.table.get(key) if profile.below_hit_free_entry else None
            is_free = profile.below_hit_free_entry and (entry is None or entry.expiry <= now)
            if prompt.ends[position] > read or is_free:
                life_s = profile.long_life_s if is_long else profile.life_s
                self.table.put(key, now, available, life_s + profile.slack_s).spread = spread
        self.table.trim(now)

    def held(self, prompt: PromptPositions, now: float, before: Sequence[int] | None = None) -> list[int]:
        """The positions, ascending, whose own entries can be read now, in reach of a marker or not. If ``before`` is
        given, only the nearest one up to each of its positions."""
        first, hashes, get = bisect_left(prompt.ends, self._profile.min_tokens), prompt.hashes, self.table.get
        found = set[int]()
        for scope in set(self._scopes(prompt)):
            begin = first
            if before is None:
                every = map(get, zip(repeat(scope), hashes[first:]))
                found.update(
                    [at for at, e in enumerate(every, first) if e is not None and e.available <= now < e.expiry]
                )
            for last in before or ():
                for position in range(last, begin - 1, -1):
                    entry = get((scope, hashes[position]))
                    if entry is not None and entry.available <= now < entry.expiry:
                        found.add(position)
                        break
                begin = max(begin, last + 1)
        return sorted(found)

    def last_use(self, prompt: PromptPositions, position: int, now: float) -> tuple[float, float] | None:
        found = (self.table.last_use(key, now) for key in self._keys(prompt, position))
        return min((one for one in found if one is not None), default=None)

    def forget(self, prompt: PromptPositions, positions: Iterable[int]) -> None:
        """Drop the entries at these positions, of either life."""
        for position in positions:
            for key in self._keys(prompt, position):
                self.table.forget(key)

    def _hit(self, prompt: PromptPositions, now: float) -> int:
        """The deepest position that can be read, or -1. Of more markers than the provider accepts, only the last ones
        are looked at, as in ``_written``: there may be thousands."""
        get, minimum, scopes = self.table.get, self._profile.min_tokens, self._scopes(prompt)
        best = -1
        for mark in sorted(prompt.marks, reverse=True)[: self._profile.max_marks]:
            if mark <= best or prompt.ends[mark] < minimum:
                break
            best = max(best, self._walk(get, scopes[prompt.marks[mark] == "1h"], prompt, mark, now))
            if best >= 0 and self._profile.cross_life_read:
                break  # every position between the marker and the hit was looked at
        return best

    def _written(self, prompt: PromptPositions) -> Sequence[int]:
        """The positions in order that get an entry if they stand behind the part that was read."""
        ends, minimum = prompt.ends, self._profile.min_tokens
        usable = sorted(position for position in prompt.marks if ends[position] >= minimum)
        return usable[-self._profile.max_marks :]

    def _walk(
        self, get: Callable[[Key], Entry | None], scope: bytes, prompt: PromptPositions, mark: int, now: float
    ) -> int:
        """The deepest readable position in reach of one marker, or -1. On the way back, only the last position of a run
        is looked at. The position of the marker itself is always looked at."""
        profile = self._profile
        hashes, ends, minimum = prompt.hashes, prompt.ends, profile.min_tokens
        runs = prompt.runs if profile.collapses_runs else range(len(hashes))
        position = mark
        for _ in range(profile.lookback):
            if position < 0 or ends[position] < minimum:
                return -1
            entry = get((scope, hashes[position]))
            if entry is not None and entry.available <= now < entry.expiry:
                return position
            run = runs[position]
            position -= 1
            while position >= 0 and runs[position] == run:
                position -= 1
        return -1

    def _keys(self, prompt: PromptPositions, position: int) -> list[Key]:
        return [(scope, prompt.hashes[position]) for scope in set(self._scopes(prompt))]

    def _scopes(self, prompt: PromptPositions) -> tuple[bytes, bytes]:
        """The scope part of an entry's key, for the shorter and for the longer life. Entries of both lives share a key
        only if a marker of one life reads an entry of the other, or if there is no longer life."""
        if self._profile.cross_life_read:
            return prompt.scope, prompt.scope
        short = prompt.scope + b"/5m"
        return short, (prompt.scope + b"/1h" if self._profile.long_life_s > 0 else short)

    def _renew(self, prompt: PromptPositions, hit: int, last: int, now: float) -> float:
        """Renew the entry that is read and, if the provider does so, the entries in front of it. Returns the time at
        which all entries in front of the ``last`` marker were renewed. It is minus infinity if entries between the hit
        and this marker were passed over, because those are not renewed."""
        profile, get = self._profile, self.table.get
        scopes = set(self._scopes(prompt))
        read = [get((scope, prompt.hashes[hit])) for scope in scopes if hit >= 0]
        spread = self._spread(max(filter(None, read), key=attrgetter("spread"), default=None), now)
        first = 0 if profile.refresh == "prefix" and spread == now else max(hit, 0)
        for scope in scopes:
            self.table.renew([*zip(repeat(scope), prompt.hashes[first : hit + 1])], now)
        is_passed = any(get((scope, one)) for scope in scopes for one in prompt.hashes[hit + 1 : last])
        return -inf if is_passed else spread


class BoundaryCache(MarkerCache):
    """Reads the longest live candidate, and writes at boundaries. In explicit mode without a breakpoint, nothing is
    cached."""

    def _hit(self, prompt: PromptPositions, now: float) -> int:
        profile, explicit, endings = self._profile, sorted(prompt.marks), self._endings(prompt)
        found = {*explicit[: profile.first_marks], *endings[-1:]}
        found.update(sorted({*explicit, *endings[-1:]})[-profile.latest_marks :])
        if profile.endings and endings:
            found.update(endings[-1 - profile.endings :])
            found.update(position for position in (prompt.head_end,) if position >= 0)
        for position in sorted(found, reverse=True):
            entry = self.table.get((prompt.scope, prompt.hashes[position]))
            if entry is not None and entry.available <= now < entry.expiry:
                return position if prompt.ends[position] >= profile.min_tokens else -1
        return -1

    def _endings(self, prompt: PromptPositions) -> Sequence[int]:
        """The positions where the provider may set a boundary itself. There are none in explicit mode."""
        return prompt.endings if self._profile.implicit_marks else ()

    def _written(self, prompt: PromptPositions) -> Sequence[int]:
        implicit = self._endings(prompt)[-1:]
        explicit = sorted(set(prompt.marks) - set(implicit))
        slots = self._profile.max_marks - len(implicit)
        boundaries = {*implicit, *(explicit[-slots:] if slots > 0 else ())}
        return sorted(position for position in boundaries if prompt.ends[position] >= self._profile.min_tokens)


def validate(prompt: PromptPositions, profile: CacheProfile) -> str | None:
    """The reason why the provider would refuse these markers with a 400, or None."""
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


def make_cache(profile: CacheProfile, *, capacity: int = DEFAULT_CAPACITY, is_forecast: bool = False) -> Cache:
    """An empty cache with the profile's rules. It holds at most ``capacity`` entries.

    ``is_forecast``: the cache is a shadow of a provider, not a provider, and takes the expected value of chance.
    """
    kinds = {
        Family.MARKER: BoundaryCache if profile.dialect is Dialect.BREAKPOINT else MarkerCache,
        Family.GRID: GridCache,
        Family.UNIT: UnitCache,
        Family.NONE: Cache,
    }
    return kinds[profile.family](profile, capacity, is_forecast=is_forecast)
