"""The boundary cache of OpenAI GPT-5.6 and newer, and of Azure: entries stand at exact boundaries.

Boundaries are the client's breakpoints and, in implicit mode, the end of the latest eligible message. The latest few
are written; what is looked up is a list of its own: the first and the latest breakpoints, and in implicit mode earlier
message endings and the end of the opening instructions. The guide, the SDK and Azure state different lists: they are
fields of the profile. No look-back by positions: an entry is read where a candidate stands on it again. ("Prompt
caching", https://developers.openai.com/api/docs/guides/prompt-caching, 2026-09-20.)
"""

from collections.abc import Iterable, Sequence

from proxy.core.caches.marked import MarkedCache
from proxy.core.caches.prompt import Bill, Prompt


class BoundaryCache(MarkedCache):
    """Billed in three spans: read up to the longest candidate that lives, written up to the last boundary behind it."""

    __slots__ = ()

    def bill(self, prompt: Prompt, now: float) -> Bill:
        """What the provider would charge now. In explicit mode without a breakpoint every token is plain and nothing is
        cached."""
        hit = self._hit(prompt, now)
        read = end = prompt.ends[hit] if hit >= 0 else 0
        long_end = read
        for position in self._written(prompt, read):
            end = max(end, prompt.ends[position])
            if self._is_long(prompt.marks.get(position)):
                long_end = max(long_end, prompt.ends[position])
        return Bill(read=read, write_5m=end - long_end, write_1h=long_end - read, plain=prompt.total - end, hit=hit)

    def store(self, prompt: Prompt, now: float, available: float, output: bytes | None = None) -> None:
        """Renew what was read and put an entry at each boundary behind it."""
        profile = self._profile
        hit = self._hit(prompt, now)
        if hit >= 0:
            self._renew(prompt, hit, now)
        for position in self._written(prompt, prompt.ends[hit] if hit >= 0 else 0):
            life_s = profile.long_life_s if self._is_long(prompt.marks.get(position)) else profile.life_s
            key = (prompt.scope, prompt.hashes[position])
            self._table.put(key, now, available + profile.delay_s, life_s + profile.slack_s)
        self._table.trim(now)

    def _is_live(self, prompt: Prompt, position: int, now: float) -> bool:
        if prompt.ends[position] < self._profile.min_tokens:
            return False
        entry = self._table.getter()((prompt.scope, prompt.hashes[position]))
        return entry is not None and entry.available <= now < entry.expiry

    def _hit(self, prompt: Prompt, now: float) -> int:
        """The longest candidate that can be read, or -1."""
        live = (position for position in self._candidates(prompt) if self._is_live(prompt, position, now))
        return max(live, default=-1)

    def _candidates(self, prompt: Prompt) -> Iterable[int]:
        profile = self._profile
        explicit = sorted(prompt.marks)
        endings = self._endings(prompt)
        found = {*explicit[: profile.first_marks], *endings[-1:]}
        found.update(sorted({*explicit, *endings[-1:]})[-profile.latest_marks :])
        if profile.endings and endings:
            found.update(endings[-1 - profile.endings :])
            found.update(position for position in (prompt.head_end,) if position >= 0)
        return found

    def _endings(self, prompt: Prompt) -> Sequence[int]:
        """The positions where the provider may set a boundary itself. There are none in explicit mode."""
        return prompt.endings if self._profile.implicit_marks else ()

    def _written(self, prompt: Prompt, read: int) -> list[int]:
        """The boundaries behind the part that was read; each of them gets an entry."""
        implicit = self._endings(prompt)[-1:]
        explicit = sorted(set(prompt.marks) - set(implicit))
        slots = self._profile.max_marks - len(implicit)
        boundaries = {*implicit, *(explicit[-slots:] if slots > 0 else ())}
        least = max(read + 1, self._profile.min_tokens)
        return sorted(position for position in boundaries if prompt.ends[position] >= least)
