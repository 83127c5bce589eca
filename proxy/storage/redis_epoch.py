"""The epoch of a Redis (``proxy.core.epoch``): facts in one hash, and the epoch in the keys of every team.

Every script of a team also reads the team's copy of the epoch. Where the copy is missing or differs, either the team is
new under this epoch, or its keys were lost. For each epoch there is a set of teams, which tells the two cases apart,
also in a cluster of which one node was emptied: a team's copy is written before the team is entered into the set.
"""

import secrets
from collections.abc import Awaitable, Callable, Mapping

from proxy.core import epoch
from proxy.storage.redis_link import PREFIX, RedisLink

_FACTS = PREFIX + "{directory}:facts"
_TEAMS = PREFIX + "{directory}:teams:"

NO_EPOCH = ""
"""The epoch of a store that has lost its own."""


class RedisEpoch:
    """The epoch as this process read it last. ``copy_key`` gives the key of a team's copy; ``on_change`` is called when
    the epoch has changed."""

    def __init__(
        self, link: RedisLink, copy_key: Callable[[str], str], on_change: Callable[[], Awaitable[None]]
    ) -> None:
        self._link = link
        self._copy_key = copy_key
        self._on_change = on_change
        self._current = NO_EPOCH

    async def facts(self) -> Mapping[str, str]:
        found: Mapping[bytes, bytes] = await self._link.command("HGETALL", _FACTS)
        facts = {name.decode(): value.decode() for name, value in found.items()}
        current = facts.get(epoch.EPOCH, NO_EPOCH)
        if current != self._current:
            self._current = current
            if current:
                await self._on_change()
        return facts

    async def put(self, facts: Mapping[str, str], *, overwrite: bool) -> None:
        if overwrite and facts:  # all at once: nobody sees a part of them
            await self._link.command("HSET", _FACTS, *(word for pair in facts.items() for word in pair))
        elif not overwrite:
            for name, value in facts.items():
                await self._link.command("HSETNX", _FACTS, name, value)

    async def of(self, team: str, copy: str) -> str:
        """The store's epoch where the team's keys belong to it, else empty. ``copy`` is the team's copy, which a script
        read."""
        if copy and copy == self._current:
            return copy
        current = (await self.facts()).get(epoch.EPOCH, NO_EPOCH)
        if current == NO_EPOCH or copy == current:
            return current
        if await self._link.command("SISMEMBER", _TEAMS + current, team):
            # Another worker may have entered the team meanwhile: then the copy is there by now.
            found = await self._link.command("GET", self._copy_key(team))
            return current if found == current.encode() else await self._begin_anew()
        await self._link.command("SET", self._copy_key(team), current)
        await self._link.command("SADD", _TEAMS + current, team)
        return current

    async def _begin_anew(self) -> str:
        """The keys of a team were lost, perhaps with other keys: the store begins a new epoch."""
        facts = await self.facts()
        if facts.get(epoch.EPOCH):
            await self.put(epoch.to_replace(facts, secrets.token_hex(8)), overwrite=True)
            await self._link.command("DEL", _TEAMS + facts[epoch.EPOCH])
        return NO_EPOCH
