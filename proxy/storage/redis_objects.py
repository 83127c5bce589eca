"""The owners of objects in the provider's account, in Redis. Each call is one script, which is one round trip.

All keys carry one hash tag, so that a script sees the objects of every team. No team can take over an object that
another team has made.
"""

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

from msgspec import json

from proxy.storage.port import ObjectRecord
from proxy.storage.redis_link import PREFIX, RedisLink, Script

_TAG = PREFIX + "{objects}:"
_SCRIPTS = ("remember", "owned", "disown", "take_bill", "prune")
_PRUNED_AT_ONCE = 500
# The arguments of a script stand on Lua's stack, which has room for a few thousand values.
_NAMES_AT_ONCE = 1000

_RECORD: Final = json.Decoder(ObjectRecord)


class RedisObjects:
    """The ObjectStore's half of the store in Redis."""

    def __init__(self, link: RedisLink) -> None:
        self._link = link
        self._scripts = {name: Script.load("objects", f"objects_{name}") for name in _SCRIPTS}

    async def remember(self, team: str, records: Sequence[ObjectRecord], most: int, now: float) -> None:
        for start in range(0, len(records), _NAMES_AT_ONCE):
            words: list[str | bytes] = []
            for record in records[start : start + _NAMES_AT_ONCE]:
                words += [record.name, record.server, repr(record.forget_at), json.encode(record)]
            await self._run("remember", team, repr(now), most, *words)

    async def owned(self, team: str, names: Sequence[str], now: float) -> Sequence[ObjectRecord | None]:
        found: list[ObjectRecord | None] = []
        for start in range(0, len(names), _NAMES_AT_ONCE):
            some = await self._run("owned", team, repr(now), *names[start : start + _NAMES_AT_ONCE])
            found += [None if record is None else _RECORD.decode(record) for record in some]
        return found

    async def disown(self, team: str, name: str) -> None:
        await self._run("disown", team, name)

    async def take_bill(self, team: str, name: str) -> str:
        bill: bytes = await self._run("take_bill", team, name)
        return bill.decode()

    async def prune(self, team: str, now: float) -> None:
        """Drop what has ended of a team, some of it at a time."""
        await self._run("prune", team, repr(now), _PRUNED_AT_ONCE)

    async def _run(self, script: str, team: str, *words: str | bytes | int) -> Any:
        keys = [_TAG + "records", _TAG + "owners", f"{_TAG}ends:{quote(team, safe='')}"]
        return await self._link.run(self._scripts[script], keys, team, *words)
