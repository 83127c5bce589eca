"""The store in Redis, 7 or later: shared by any number of workers and hosts; one server, or a cluster.
``proxy.storage`` describes what each method promises.

Every method that a request waits for is one script, which is one round trip and atomic. Its keys carry a hash tag of
their team or scope, so that a cluster keeps them on one node. An acknowledged write is as durable as the server's
configuration makes it: with ``appendonly yes`` and ``appendfsync always``, no acknowledged write is lost; with
``everysec``, up to the last second (https://redis.io/docs/latest/operate/oss_and_stack/management/persistence/).

The owners of objects in the provider's account stand under one hash tag, so that a script sees the owners of every
team: no team can take over an object that another team has made.

The facts stand in one hash. A copy of the epoch (``proxy.storage``) also stands among the counters of every team,
where each script of the team reads it. If that copy is missing or differs, either the team is new under this epoch, or
its counters were lost. For each epoch there is a set of teams, which tells the two cases apart, even if one node of a
cluster was emptied, or a server evicted only these counters: a team's copy is written before the team is entered into
the set.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import wraps
from inspect import iscoroutinefunction
from operator import add, attrgetter
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar
from urllib.parse import quote

from msgspec import DecodeError, json, msgpack

from proxy.kit.errors import StoreError
from proxy.storage import (
    EPOCH,
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
    facts_to_replace,
    largest_first,
    record_name,
)
from proxy.storage.redis_link import PREFIX, Argument, RedisLink, Script

_MONEY_KEYS = ("accounts", "forget", "open", "due", "closed", "closed_until", "entries", "order", "claims")
_STATE_KEYS = ("blobs", "until", "sizes")
_OBJECTS = PREFIX + "{objects}:"
_DIRECTORY = PREFIX + "{directory}:"
_TEAMS = _DIRECTORY + "active"
_VERSION = _DIRECTORY + "version"
_FACTS = _DIRECTORY + "facts"
_TEAMS_OF_EPOCH = _DIRECTORY + "counted:"
_COPY = "epoch"  # the field of a team's copy
NO_EPOCH = ""
"""The epoch of a store that has lost its epoch."""
# Each worker enters a team that it serves into the set of teams this often, because the set may have been lost.
_REGISTERED_S = 60.0
# Lua keeps the arguments of a script on its stack, which has room for a few thousand values.
_PAGE = 1000
_PRUNED_AT_ONCE = 500
SCOPE_BYTES = 64 << 20
"""The most memory of the server that the layout state of one scope (a team's key) takes."""

# The scripts, by the name of the file whose text is put in front of each script.
_SCRIPTS: Mapping[str, Sequence[str]] = {
    "team": (
        "reserve", "settle", "carry_out", "renew", "expire", "balance", "claim", "entries", "forget_entries",
        "set_spent",
    ),
    "objects": ("objects_remember", "objects_owned", "objects_disown", "objects_take_bill", "objects_prune"),
    "state": ("state_load", "state_page", "state_save"),
    "": ("put", "remove", "time"),
}  # fmt: skip

_ENTRY: Final = json.Decoder(LedgerEntry)
_OBJECT: Final = json.Decoder(ObjectRecord)
_UNREADABLE = (DecodeError, ValueError, TypeError, AttributeError)

S = TypeVar("S")
T = TypeVar("T")
P = ParamSpec("P")


def _raises_store_errors(store_type: type[S]) -> type[S]:
    """Let the calls of a store raise StoreError for data that they cannot read, because another program has written
    it. No other error may leave an engine, because the loops that use it would end."""
    for name, method in list(vars(store_type).items()):
        if iscoroutinefunction(method) and not name.startswith("_"):
            setattr(store_type, name, _translated(method))
    return store_type


def _translated(method: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    @wraps(method)
    async def call(*args: P.args, **named: P.kwargs) -> T:
        try:
            return await method(*args, **named)
        except _UNREADABLE as error:
            raise StoreError(f"Redis holds something unreadable: {error}") from error

    return call


@_raises_store_errors
class RedisStore:
    """A store that several workers and hosts share."""

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
        self._scripts = {name: Script.load(front, name) for front, names in _SCRIPTS.items() for name in names}
        self._registered: dict[str, float] = {}
        self._epoch = NO_EPOCH
        self.ping = self._link.ping

    async def reserve(self, ask: Reserve, now: float) -> Granted | Refused:
        await self._register(ask.team, now)
        is_granted, *rest = await self._run("reserve", ask.team, ask.exchange_id, now, ask.expires_at, _record(ask))
        if is_granted:
            return Granted(_balances(ask.charges, rest[0]), await self._epoch_of(ask.team, rest[1].decode()))
        charge = ask.charges[rest[0]]
        return Refused(charge, Balance(charge.account, *rest[1]))

    async def settle(self, end: Settle, now: float) -> Sequence[Balance]:
        entry = end.entry
        await self._register(entry.team, now)
        final = msgpack.encode(_charges(end.final))
        found = await self._run("settle", entry.team, entry.exchange_id, now, entry.at, _packed(entry), final)
        return _balances(end.final, found)

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
        """A report. Every entry of the report is read, in one round trip for each thousand."""
        sums: dict[tuple[str, ...], Sequence[int]] = {}
        for team in [query.team] if query.team is not None else await self._active_teams():
            since, after = query.since, ""
            while page := await self._page(team, since, query.until, after, _PAGE):
                _sum_up(page, query, sums)
                since, after = page[-1].at, page[-1].exchange_id
        return largest_first(SpendRow(dict(zip(query.by, group, strict=True)), *sums[group]) for group in sums)

    async def entries(
        self, since: float, until: float, after: str = "", limit: int = 1000, team: str | None = None
    ) -> Sequence[LedgerEntry]:
        teams = [team] if team is not None else await self._active_teams()
        pages = await asyncio.gather(*(self._page(name, since, until, after, limit) for name in teams))
        return sorted((one for page in pages for one in page), key=attrgetter("at", "exchange_id"))[:limit]

    async def forget_entries(self, before: float) -> int:
        forgotten = 0
        for team in await self._active_teams():
            while found := await self._run("forget_entries", team, before, _PAGE):
                forgotten += found
        return forgotten

    async def directory_version(self) -> int:
        return int(await self._link.command("GET", _VERSION) or 0)

    async def records(self, record_type: type[R]) -> Sequence[R]:
        # Redis sends pairs of names and records; redis-py makes a mapping of them.
        found: Mapping[bytes, bytes] = await self._link.command("HGETALL", _DIRECTORY + RECORD_KINDS[record_type])
        return [json.decode(found[name], type=record_type) for name in sorted(found)]

    async def put(self, record: Record, version: int | None = None) -> bool:
        keys = [_DIRECTORY + RECORD_KINDS[type(record)], _VERSION]
        words = record_name(record), json.encode(record), "" if version is None else version
        return bool(await self._link.run(self._scripts["put"], keys, *words))

    async def remove(self, kind: RecordKind, name: str) -> bool:
        return bool(await self._link.run(self._scripts["remove"], [_DIRECTORY + kind, _VERSION], name))

    async def facts(self) -> Mapping[str, str]:
        found: Mapping[bytes, bytes] = await self._link.command("HGETALL", _FACTS)
        facts = {name.decode(): value.decode() for name, value in found.items()}
        current = facts.get(EPOCH, NO_EPOCH)
        is_news = current not in (self._epoch, NO_EPOCH)
        self._epoch = current
        if is_news and self._registered:
            # The set of teams was lost. Without it, reports are empty, and reservations of dead workers are not billed.
            await self._link.command("SADD", _TEAMS, *self._registered)
        return facts

    async def put_facts(self, facts: Mapping[str, str], *, overwrite: bool) -> None:
        if overwrite and facts:  # all at once, so that nobody sees only some of them
            await self._link.command("HSET", _FACTS, *(word for fact in facts.items() for word in fact))
        elif not overwrite:
            for name, value in facts.items():
                await self._link.command("HSETNX", _FACTS, name, value)

    async def remember(self, team: str, records: Sequence[ObjectRecord], most: int, now: float) -> None:
        await self._register(team, now)
        for start in range(0, len(records), _PAGE):
            words: list[Argument] = []
            for record in records[start : start + _PAGE]:
                words += [record.name, record.server, record.forget_at, json.encode(record)]
            await self._run_objects("remember", team, now, most, *words)

    async def owned(self, team: str, names: Sequence[str], now: float) -> Sequence[ObjectRecord | None]:
        found: list[bytes | None] = []
        for start in range(0, len(names), _PAGE):
            found += await self._run_objects("owned", team, now, *names[start : start + _PAGE])
        return [None if record is None else _OBJECT.decode(record) for record in found]

    async def disown(self, team: str, name: str) -> None:
        await self._run_objects("disown", team, name)

    async def take_bill(self, team: str, name: str) -> str:
        bill: bytes = await self._run_objects("take_bill", team, name)
        return bill.decode()

    async def load(self, scope: str, names: Sequence[str], now: float) -> Sequence[bytes | None]:
        found: list[bytes | None] = await self._run_state("load", scope, now, *names)
        return found

    async def page(self, scope: str, behind: Place, limit: int, now: float) -> Sequence[tuple[str, float, bytes]]:
        blobs = await self._run_state("page", scope, now, limit, *behind)
        return [(name.decode(), float(until), blob) for name, until, blob in blobs]

    async def save(self, scope: str, blobs: Mapping[str, bytes], ttl_s: float, now: float) -> None:
        """Write blobs of one scope. Beyond a bound, the blobs that were saved first are deleted."""
        if blobs:
            pairs = (word for pair in blobs.items() for word in pair)
            ttl_ms = max(1, int(ttl_s * 1000))
            await self._run_state("save", scope, now, now + ttl_s, ttl_ms, self._scope_bytes, *pairs)

    async def time(self) -> float | None:
        """The server's clock; in a cluster, the clock of the node with the directory."""
        seconds, microseconds = await self._link.run(self._scripts["time"], [_VERSION])
        return int(seconds) + int(microseconds) / 1e6

    async def aclose(self) -> None:
        await self._link.aclose()
        await self._state_link.aclose()

    async def _run(self, script: str, team: str, *words: Argument) -> Any:
        return await self._link.run(self._scripts[script], _keys("t", team, _MONEY_KEYS), *words)

    async def _run_objects(self, script: str, team: str, *words: Argument) -> Any:
        keys = [_OBJECTS + "records", _OBJECTS + "owners", f"{_OBJECTS}ends:{quote(team, safe='')}"]
        return await self._link.run(self._scripts[f"objects_{script}"], keys, team, *words)

    async def _run_state(self, script: str, scope: str, *words: Argument) -> Any:
        return await self._state_link.run(self._scripts[f"state_{script}"], _keys("s", scope, _STATE_KEYS), *words)

    async def _expire_team(self, team: str, now: float) -> int:
        await self._run_objects("prune", team, now, _PRUNED_AT_ONCE)
        billed = found = int(await self._run("expire", team, now, _PAGE))
        while found >= _PAGE:
            billed += (found := await self._run("expire", team, now, _PAGE))
        return billed

    async def _page(self, team: str, since: float, until: float, after: str, limit: int) -> list[LedgerEntry]:
        return [_ENTRY.decode(entry) for entry in await self._run("entries", team, since, until, after, limit)]

    async def _register(self, team: str, now: float) -> None:
        """Enter the team into the set of teams that ``expire`` and reports read. In most cases this is only a dict
        lookup."""
        if abs(now - self._registered.get(team, float("-inf"))) >= _REGISTERED_S:
            await self._link.command("SADD", _TEAMS, team)
            self._registered[team] = now

    async def _epoch_of(self, team: str, copy: str) -> str:
        """The store's epoch if the team's counters belong to it, otherwise empty. ``copy`` is the team's copy of the
        epoch, which a script has read."""
        if copy and copy == self._epoch:
            return copy
        current = (await self.facts()).get(EPOCH, NO_EPOCH)
        if current in (NO_EPOCH, copy):
            return current
        [accounts] = _keys("t", team, ["accounts"])
        if not await self._link.command("SISMEMBER", _TEAMS_OF_EPOCH + current, team):
            await self._link.command("HSET", accounts, _COPY, current)
            await self._link.command("SADD", _TEAMS_OF_EPOCH + current, team)
            return current
        # Another worker may have entered the team meanwhile. Then the copy exists by now.
        if await self._link.command("HGET", accounts, _COPY) == current.encode():
            return current
        # The counters of the team were lost, perhaps with other keys: a new epoch of the store begins.
        if (facts := await self.facts()).get(EPOCH):
            await self.put_facts(facts_to_replace(facts, secrets.token_hex(8)), overwrite=True)
            await self._link.command("DEL", _TEAMS_OF_EPOCH + facts[EPOCH])
        return NO_EPOCH

    async def _active_teams(self) -> list[str]:
        return sorted(team.decode() for team in await self._link.command("SMEMBERS", _TEAMS))


def _keys(kind: str, owner: str, names: Iterable[str]) -> list[str]:
    """Keys of one hash slot. A brace in the owner's name must not end the hash tag, so the name is quoted."""
    tag = f"{PREFIX}{{{kind}:{quote(owner, safe='')}}}:"
    return [tag + name for name in names]


def _packed(entry: LedgerEntry) -> str:
    """An entry without the fields that have their default value. In most cases these are two thirds of the entry."""
    values = {name: getattr(entry, name) for name in LedgerEntry.__slots__}
    return json.encode({name: value for name, value in values.items() if value not in ("", 0)}).decode()


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
    return msgpack.encode((repr(ask.entry.at), _packed(replace(ask.entry, estimated=True)), _charges(ask.charges)))


def _balances(charges: Sequence[Charge], found: Iterable[Sequence[int]]) -> list[Balance]:
    return [Balance(charge.account, *numbers) for charge, numbers in zip(charges, found, strict=True)]


def _sum_up(entries: Iterable[LedgerEntry], query: SpendQuery, sums: dict[tuple[str, ...], Sequence[int]]) -> None:
    """Add the entries that the query asks for to the sums of their groups, in the order of ``SpendRow``."""
    for entry in entries:
        if all(getattr(query, name) in (None, getattr(entry, name)) for name in GROUP_FIELDS.values()):
            group = tuple(_group(entry, by, query.utc_offset_s) for by in query.by)
            values = (
                1, entry.read_tokens, entry.write_5m_tokens + entry.write_1h_tokens, entry.plain_tokens,
                entry.output_tokens, entry.cost, entry.saved, int(entry.estimated),
            )  # fmt: skip
            sums[group] = [*map(add, sums[group], values)] if group in sums else values


def _group(entry: LedgerEntry, by: SpendGroup, utc_offset_s: int) -> str:
    if by == "day":
        return datetime.fromtimestamp(entry.at + utc_offset_s, UTC).strftime("%Y-%m-%d")
    return str(getattr(entry, GROUP_FIELDS[by]))
