"""The grid family: every prefix is stored for free and read in steps of tokens.

OpenAI up to GPT-5.5 ("Prompt caching", https://developers.openai.com/api/docs/guides/prompt-caching, 2026-09-20):
automatic from 1024 tokens, counted in steps of 128, no write price, kept while idle for 5 - 10 minutes. Routing to
several machines is not modelled: ``Prompt.scope`` holds what routes.
"""

from proxy.core.cache_models.entries import EntryTable
from proxy.core.profiles import CacheProfile
from proxy.core.prompt import Bill, Prompt


class GridCache:
    """Billed in two spans: read in whole steps, plain the rest. The last token is always computed."""

    __slots__ = ("_life_s", "_min_tokens", "_step", "_table")

    def __init__(self, profile: CacheProfile, capacity: int, table: EntryTable | None = None) -> None:
        self._life_s = profile.life_s
        self._min_tokens = profile.min_tokens
        self._step = max(1, profile.step)
        self._table = EntryTable(capacity) if table is None else table

    def bill(self, prompt: Prompt, now: float) -> Bill:
        """The deepest live position, rounded down to a step."""
        get, scope, total, step = self._table.getter(), prompt.scope, prompt.total, self._step
        last = total - 1
        for position in range(len(prompt.ends) - 1, -1, -1):
            end = prompt.ends[position]
            read = (end if end < last else last) // step * step
            if read < self._min_tokens:
                break
            entry = get((scope, prompt.hashes[position]))
            if entry is not None and entry[0] <= now < entry[1]:
                return Bill(read=read, write_5m=0, write_1h=0, plain=total - read, hit=position)
        return Bill(read=0, write_5m=0, write_1h=0, plain=total)

    def store(self, prompt: Prompt, now: float, available: float, output: bytes | None = None) -> None:
        """Every position from the minimum on; the deepest first, so that it is also the first to be evicted."""
        for position in range(len(prompt.ends) - 1, -1, -1):
            if prompt.ends[position] < self._min_tokens:
                break
            self._table.put((prompt.scope, prompt.hashes[position]), now, available, self._life_s)
        self._table.trim(now)

    def held(self, prompt: Prompt, now: float) -> list[int]:
        """Empty: there are no markers to place."""
        return []

    def copy(self) -> "GridCache":
        """A hypothetical continuation: reads through, keeps its own writes."""
        twin = object.__new__(GridCache)
        twin._life_s, twin._min_tokens, twin._step = self._life_s, self._min_tokens, self._step
        twin._table = self._table.copy()
        return twin

    def __len__(self) -> int:
        return len(self._table)
