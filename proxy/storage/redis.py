"""The store in Redis, 7 or later: shared by any number of workers and hosts; one server, or a cluster. What each method
promises stands in ``proxy.storage.port``.

Every method that a request waits for is one script, which is one round trip and atomic. Its keys carry a hash tag of
their team or scope, so that a cluster keeps them on one node. What is acknowledged is as durable as the server's
configuration makes it: with ``appendonly yes`` and ``appendfsync always`` nothing acknowledged is lost, with
``everysec`` up to the last second (https://redis.io/docs/latest/operate/oss_and_stack/management/persistence/).
"""

import asyncio
import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from msgspec import json, msgpack

from proxy.ports import StoreError
from proxy.storage.port import (
    GROUP_FIELDS,
    RECORD_KINDS,
    Balance,
    Charge,
    Granted,
    LedgerEntry,
    ObjectRecord,
    Place,
    PutOff,
    R,
    Record,
    RecordKind,
    Refused,
    Release,
    Reserve,
    Settle,
    SpendGroup,
    SpendQuery,
    SpendRow,
    record_name,
)
from proxy.storage.redis_epoch import RedisEpoch
from proxy.storage.redis_link import PREFIX, RedisLink, Script
from proxy.storage.redis_objects import RedisObjects

_MONEY_KEYS = ("accounts", "forget", "open", "due", "closed", "closed_until", "entries", "order", "claims", "epoch")
_STATE_KEYS = ("blobs", "until", "sizes")
_TEAMS = PREFIX + "{directory}:active"
_VERSION = PREFIX + "{directory}:version"
# Each worker enters a team that it serves into the set of teams this often, because the set may have been lost.
_REGISTERED_S = 60.0
_PAGE = 1000
SCOPE_BYTES = 64 << 20
"""The most memory of the server that the layout state of one scope (a team's key) takes."""

_SCRIPTS: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(
        ("reserve", "renew", "expire", "balance", "claim", "entries", "forget_entries", "set_spent"), ("team",)
    ),
    **dict.fromkeys(("settle", "carry_out"), ("team", "ending")),
    **dict.fromkeys(("put", "remove", "time"), ()),
    **dict.fromkeys(("state_load", "state_page", "state_save"), ("state",)),
}
"""The scripts, and the texts that stand in front of each."""

_ENTRY: Final = json.Decoder(LedgerEntry)


class RedisStore:
    """A store that workers and hosts share."""

    is_shared = True
    is_durable = True

    def __init__(
        self,
        url: str,
        timeout_s: float = 2.0,
        state_timeout_s: float = 2.0,
        scope_bytes: int = SCOPE_BYTES,
        ca_file: Path | None = None,
    ) -> None:
        self._scope_bytes = scope_bytes
        self._link = RedisLink(url, timeout_s, ca_file)
        self._state_link = RedisLink(url, state_timeout_s, ca_file)
        self._objects = RedisObjects(self._link)
        self._epoch = RedisEpoch(self._link, lambda team: _keys("t", team, ["epoch"])[0], self._register_again)
        self._scripts = {name: Script.load(*front, name) for name, front in _SCRIPTS.items()}
        self._registered: dict[str, float] = {}
        # These halves of the store keep their own promises.
        self.owned, self.disown, self.take_bill = self._objects.owned, self._objects.disown, self._objects.take_bill
        self.facts, self.put_facts, self.ping = self._epoch.facts, self._epoch.put, self._link.ping

    async def reserve(self, ask: Reserve, now: float) -> Granted | Refused:
        await self._register(ask.team, now)
        is_granted, *rest = await self._run("reserve", ask.team, ask.exchange_id, now, ask.expires_at, _record(ask))
        if is_granted:
            balances = _balances((charge.account for charge in ask.charges), rest[0])
            return Granted(balances, await self._epoch.of(ask.team, rest[1].decode()))
        charge = ask.charges[rest[0]]
        return Refused(charge, Balance(charge.account, *rest[1]))

    async def settle(self, end: Settle, now: float) -> Sequence[Balance]:
        entry = end.entry
        await self._register(entry.team, now)
        found = await self._run(
            "settle", entry.team, entry.exchange_id, now, entry.at, _packed(entry), msgpack.encode(_charges(end.final))
        )
        return _balances((charge.account for charge in end.final), found)

    async def carry_out(self, team: str, calls: Sequence[PutOff], now: float) -> None:
        await self._register(team, now)
        await self._run("carry_out", team, now, *(word for call in calls for word in _put_off(call)))

    async def renew(self, team: str, exchange_ids: Sequence[str], expires_at: float) -> None:
        for start in range(0, len(exchange_ids), _PAGE):
            await self._run("renew", team, expires_at, *exchange_ids[start : start + _PAGE])

    async def expire(self, now: float) -> int:
        billed = 0
        failure: StoreError | None = None
        for team in await self._active_teams():
            try:
                billed += await self._expire_team(team, now)
            except StoreError as error:  # one team's data may be damaged; a second failure is the server's
                if failure is not None:
                    raise
                failure = error
        if failure is not None:
            raise failure
        return billed

    async def balance(self, team: str, charge: Charge, now: float) -> Balance:
        return Balance(charge.account, *await self._run("balance", team, now, msgpack.encode(_charges([charge]))))

    async def set_spent(self, team: str, charge: Charge, now: float) -> Balance:
        await self._register(team, now)
        return Balance(charge.account, *await self._run("set_spent", team, now, msgpack.encode(_charges([charge]))))

    async def claim(self, team: str, name: str, keep_s: float, now: float) -> bool:
        return bool(await self._run("claim", team, name, now, now + keep_s))

    async def spend(self, query: SpendQuery) -> Sequence[SpendRow]:
        """A report. Every entry asked for is read: one round trip for a thousand."""
        sums = Sums(query)
        for team in [query.team] if query.team is not None else await self._active_teams():
            since, after = query.since, ""
            while page := await self._page(team, since, query.until, after, _PAGE):
                sums.add(page)
                since, after = page[-1].at, page[-1].exchange_id
        return sums.rows()

    async def entries(
        self, since: float, until: float, after: str = "", limit: int = 1000, team: str | None = None
    ) -> Sequence[LedgerEntry]:
        teams = [team] if team is not None else await self._active_teams()
        pages = await asyncio.gather(*(self._page(name, since, until, after, limit) for name in teams))
        return list(heapq.merge(*pages, key=attrgetter("at", "exchange_id")))[:limit]

    async def forget_entries(self, before: float) -> int:
        forgotten = 0
        for team in await self._active_teams():
            while found := await self._run("forget_entries", team, before, _PAGE):
                forgotten += found
        return forgotten

    async def directory_version(self) -> int:
        return int(await self._link.command("GET", _VERSION) or 0)

    async def records(self, record_type: type[R]) -> Sequence[R]:
        # In pairs on the wire, by name or not: redis-py makes a mapping of them.
        found: Mapping[bytes, bytes] = await self._link.command("HGETALL", _directory(RECORD_KINDS[record_type]))
        return [json.decode(found[name], type=record_type) for name in sorted(found)]

    async def put(self, record: Record) -> None:
        keys = [_directory(RECORD_KINDS[type(record)]), _VERSION]
        await self._link.run(self._scripts["put"], keys, record_name(record), json.encode(record))

    async def remove(self, kind: RecordKind, name: str) -> bool:
        return bool(await self._link.run(self._scripts["remove"], [_directory(kind), _VERSION], name))

    async def remember(self, team: str, records: Sequence[ObjectRecord], most: int, now: float) -> None:
        await self._register(team, now)
        await self._objects.remember(team, records, most, now)

    async def load(self, scope: str, names: Sequence[str], now: float) -> Sequence[bytes | None]:
        found: list[bytes | None] = await self._state_link.run(
            self._scripts["state_load"], _keys("s", scope, _STATE_KEYS), repr(now), *names
        )
        return found

    async def page(self, scope: str, behind: Place, limit: int, now: float) -> Sequence[tuple[str, float, bytes]]:
        until, name = behind
        keys = _keys("s", scope, _STATE_KEYS)
        found = await self._state_link.run(self._scripts["state_page"], keys, repr(now), limit, repr(until), name)
        return [(name.decode(), float(until), blob) for name, until, blob in found]

    async def save(self, scope: str, blobs: Mapping[str, bytes], ttl_s: float, now: float) -> None:
        """Write blobs of one scope. Beyond a bound the ones that were saved first are forgotten."""
        if not blobs:
            return
        pairs = (word for pair in blobs.items() for word in pair)
        await self._state_link.run(
            self._scripts["state_save"], _keys("s", scope, _STATE_KEYS),
            repr(now), repr(now + ttl_s), max(1, int(ttl_s * 1000)), self._scope_bytes, *pairs,
        )  # fmt: skip

    async def time(self) -> float | None:
        """The server's clock; of a cluster that of the node with the directory."""
        seconds, microseconds = await self._link.run(self._scripts["time"], [_VERSION])
        return int(seconds) + int(microseconds) / 1e6

    async def aclose(self) -> None:
        await self._link.aclose()
        await self._state_link.aclose()

    async def _run(self, script: str, team: str, *arguments: str | bytes | float) -> Any:
        words = [repr(word) if isinstance(word, float) else word for word in arguments]
        return await self._link.run(self._scripts[script], _keys("t", team, _MONEY_KEYS), *words)

    async def _expire_team(self, team: str, now: float) -> int:
        await self._objects.prune(team, now)
        billed = 0
        while found := await self._run("expire", team, now, _PAGE):
            billed += found
            if found < _PAGE:
                break
        return billed

    async def _page(self, team: str, since: float, until: float, after: str, limit: int) -> list[LedgerEntry]:
        found = await self._run("entries", team, since, until, after, limit)
        return [_ENTRY.decode(entry) for entry in found]

    async def _register(self, team: str, now: float) -> None:
        """Enter the team into the set that ``expire`` and reports go through. Mostly this is a look into a dict."""
        if abs(now - self._registered.get(team, float("-inf"))) >= _REGISTERED_S:
            await self._link.command("SADD", _TEAMS, team)
            self._registered[team] = now

    async def _register_again(self) -> None:
        """Enter all teams again, because the set was lost. Without it reports are empty, and dead workers are not
        billed."""
        if self._registered:
            await self._link.command("SADD", _TEAMS, *self._registered)

    async def _active_teams(self) -> list[str]:
        return sorted(team.decode() for team in await self._link.command("SMEMBERS", _TEAMS))


def _keys(kind: str, owner: str, names: Iterable[str]) -> list[str]:
    """Keys of one hash slot. A brace in the owner's name must not end the hash tag, so the name is quoted."""
    tag = f"{PREFIX}{{{kind}:{quote(owner, safe='')}}}:"
    return [tag + name for name in names]


def _directory(kind: str) -> str:
    return f"{PREFIX}{{directory}}:{kind}"


def _packed(entry: LedgerEntry) -> str:
    """An entry without the fields that have their default value, which are two thirds of it in most cases."""
    values = ((name, getattr(entry, name)) for name in LedgerEntry.__slots__)
    return json.encode({name: value for name, value in values if value not in ("", 0)}).decode()


def _charges(charges: Iterable[Charge]) -> list[tuple[object, ...]]:
    """Charges as the scripts read them."""
    return [
        (charge.account, charge.amount, charge.limit, charge.keep_s, charge.expected, charge.within)
        for charge in charges
    ]


def _put_off(call: PutOff) -> Sequence[bytes]:
    """A call as the script ``carry_out`` reads it."""
    match call:
        case Settle(entry, final):
            return [msgpack.encode((entry.exchange_id, repr(entry.at), _packed(entry), _charges(final)))]
        case Reserve():
            return [msgpack.encode((call.exchange_id, repr(call.expires_at))), _record(call)]
        case Release():
            return [msgpack.encode((call.exchange_id,))]


def _record(ask: Reserve) -> bytes:
    """A reservation as the scripts keep it."""
    entry = _packed(replace(ask.entry, estimated=True))
    return msgpack.encode((repr(ask.entry.at), entry, _charges(ask.charges)))


def _balances(accounts: Iterable[str], found: Iterable[Sequence[int]]) -> list[Balance]:
    return [Balance(account, *numbers) for account, numbers in zip(accounts, found, strict=True)]


class Sums:
    """The sums of one report."""

    def __init__(self, query: SpendQuery) -> None:
        self._query = query
        self._sums: dict[tuple[str, ...], list[int]] = {}

    def add(self, entries: Iterable[LedgerEntry]) -> None:
        by, offset_s = self._query.by, self._query.utc_offset_s
        for entry in entries:
            if not _is_asked(entry, self._query):
                continue
            sums = self._sums.setdefault(tuple(_group(entry, name, offset_s) for name in by), [0] * 8)
            for index, value in enumerate(_values(entry)):
                sums[index] += value

    def rows(self) -> Sequence[SpendRow]:
        by = self._query.by
        rows = [SpendRow(dict(zip(by, names, strict=True)), *sums) for names, sums in self._sums.items()]
        return sorted(rows, key=lambda row: (-row.cost, *row.group.values()))


def _values(entry: LedgerEntry) -> tuple[int, ...]:
    """What is added up, in the order of ``SpendRow``."""
    return (
        1,
        entry.read_tokens,
        entry.write_5m_tokens + entry.write_1h_tokens,
        entry.plain_tokens,
        entry.output_tokens,
        entry.cost,
        entry.saved,
        int(entry.estimated),
    )


def _is_asked(entry: LedgerEntry, query: SpendQuery) -> bool:
    return (
        query.since <= entry.at < query.until
        and query.team in (None, entry.team)
        and query.key_id in (None, entry.key_id)
        and query.user in (None, entry.user)
        and query.model in (None, entry.model)
    )


def _group(entry: LedgerEntry, by: SpendGroup, utc_offset_s: int) -> str:
    if by == "day":
        return datetime.fromtimestamp(entry.at + utc_offset_s, UTC).strftime("%Y-%m-%d")
    return str(getattr(entry, GROUP_FIELDS[by]))
