"""The store in a SQLite file: survives a restart, and a kill at any moment. For the workers of one process.

The command line may open the file beside the proxy; a second proxy should not (``is_shared``).

A file that turns out to be damaged is written no more: what is written on top of damage may be lost with it. It is used
again once another file is in its place, or it was mended. Damage of the layout state alone costs that alone.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from proxy.storage import layout_blobs, money, objects
from proxy.storage.database import SERVING_WAIT_S, DamagedFile, Database, Work
from proxy.storage.integrity import damage_of
from proxy.storage.migrations import STORE
from proxy.storage.port import (
    Balance,
    BudgetRecord,
    Charge,
    Granted,
    KeyRecord,
    LedgerEntry,
    ObjectRecord,
    PutOff,
    Refused,
    Release,
    Reserve,
    Settle,
    SpendQuery,
    SpendRow,
    TeamRecord,
)

T = TypeVar("T")
_R = TypeVar("_R", TeamRecord, KeyRecord, BudgetRecord)

# Entries that one transaction deletes at most: others wait no longer than that.
_FORGOTTEN_AT_ONCE = 2000
STATE_BYTES = 256 << 20
"""The most room that layout state takes in a file, give or take a sixteenth: what was saved first goes first."""
_CHECK_S = 2.0  # how long the start waits for the search for damage
_CHECK_AGAIN_S = 1.0
_TABLES = ("counter", "hold", "entry", "directory_version", "directory", "claim", "object")
# As much as a busy moment writes: where this has room, a reservation has it, too.
_PROBE = "probe" * 8192

_log = logging.getLogger("stratiform.store")


class SqliteStore:
    """A store in a file. ``open`` makes one; every method may raise StoreError."""

    is_shared = False
    is_durable = True

    def __init__(self, database: Database, state_bytes: int = STATE_BYTES) -> None:
        self._database = database
        self._state_bytes = state_bytes
        self._saved_bytes = state_bytes
        self._untrimmed: dict[str, int] = {}
        self._damage = ""
        self._damaged: tuple[int, ...] = ()

    @classmethod
    async def open(
        cls, path: Path, busy_timeout_s: float = SERVING_WAIT_S, *, is_patient: bool = False
    ) -> "SqliteStore":
        """The store in this file, made if need be. ``is_patient``: where the file is damaged, only its calls fail."""
        return cls(await Database.open(path, STORE, busy_timeout_s=busy_timeout_s, is_patient=is_patient))

    async def check(self, most_s: float = _CHECK_S) -> None:
        """Look for damage, and log what is found."""
        damage = await damage_of(self._database.path, _TABLES, most_s)
        if damage:
            await self._found(damage)
            return
        if damage is None:
            _log.info("the store %s was not looked through for damage within %.0f s", self._database.path, most_s)
        if self._damage:
            self._damage = ""
            _log.warning("the store %s is used again", self._database.path)

    async def reserve(self, ask: Reserve, now: float) -> Granted | Refused:
        """Grant all charges or none; expired reservations are billed first."""
        return await self._write(partial(money.reserve, ask=ask, now=now))

    async def settle(self, end: Settle, now: float) -> Sequence[Balance]:
        """Write the entry and replace the reservation."""
        return await self._write(partial(money.settle, end=end, now=now))

    async def release(self, exchange_id: str, team: str, now: float) -> None:
        """Give a reservation back."""
        await self._write(partial(money.release, exchange_id=exchange_id, team=team, now=now))

    async def carry_out(self, team: str, calls: Sequence[PutOff], now: float) -> None:
        """Settle, release and reserve what was put off for one team, in one transaction."""

        def work(connection: sqlite3.Connection) -> None:
            for call in calls:
                match call:
                    case Settle():
                        money.settle(connection, call, now)
                    case Reserve():
                        money.reserve(connection, call, now)
                    case Release():
                        money.release(connection, call.exchange_id, team, now)

        await self._write(work)

    async def renew(self, team: str, exchange_ids: Sequence[str], expires_at: float) -> None:
        """These exchanges still run."""
        await self._write(partial(money.renew, exchange_ids=exchange_ids, expires_at=expires_at))

    async def expire(self, now: float) -> int:
        """Bill every expired reservation as it stands, and forget what may be forgotten."""

        def work(connection: sqlite3.Connection) -> int:
            money.forget(connection, now)
            objects.remember(connection, (), now)
            return money.expire(connection, now)

        expired = await self._write(work)
        with suppress(DamagedFile):  # of the layout state
            await self._database.write(partial(layout_blobs.forget, now=now))
        return expired

    async def balances(self, team: str, accounts: Sequence[str], now: float) -> Sequence[Balance]:
        """Counters as they are."""
        return await self._read(
            lambda connection: [money.balance(connection, team, Charge(account, 0)) for account in accounts]
        )

    async def set_spent(self, team: str, charge: Charge, now: float) -> Balance:
        """Correct a counter; the balance before."""
        return await self._write(partial(money.set_spent, team=team, charge=charge, now=now))

    async def claim(self, team: str, name: str, keep_s: float, now: float) -> bool:
        """Whether nobody has claimed this name in the last ``keep_s``."""
        return await self._write(partial(money.claim, team=team, name=name, keep_s=keep_s, now=now))

    async def spend(self, query: SpendQuery) -> Sequence[SpendRow]:
        """A report."""
        return await self._report(partial(money.spend, query=query))

    async def entries(
        self, since: float, until: float, after: str = "", limit: int = 1000, team: str | None = None
    ) -> Sequence[LedgerEntry]:
        """A page of the ledger."""
        return await self._report(partial(money.entries, since=since, until=until, after=after, limit=limit, team=team))

    async def forget_entries(self, before: float) -> int:
        """Delete older entries."""
        total = 0
        while count := await self._write(partial(money.forget_entries, before=before, most=_FORGOTTEN_AT_ONCE)):
            total += count
        return total

    async def directory_version(self) -> int:
        """Grows with every change."""
        return await self._read(_version)

    async def teams(self) -> Sequence[TeamRecord]:
        """All teams, by name."""
        return await self._records("team", TeamRecord)

    async def keys(self) -> Sequence[KeyRecord]:
        """All keys, by id."""
        return await self._records("key", KeyRecord)

    async def budgets(self) -> Sequence[BudgetRecord]:
        """All budgets, by id."""
        return await self._records("budget", BudgetRecord)

    async def put(self, record: TeamRecord | KeyRecord | BudgetRecord) -> None:
        """Create or replace."""
        kind, name = _kind_and_name(record)
        text = msgspec.json.encode(record).decode()

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT OR REPLACE INTO directory VALUES (?, ?, ?)", (kind, name, text))
            _changed(connection)

        await self._write(work)

    async def remove(self, kind: Literal["team", "key", "budget"], name: str) -> bool:
        """Delete; whether there was one."""

        def work(connection: sqlite3.Connection) -> bool:
            deleted = connection.execute("DELETE FROM directory WHERE kind = ? AND name = ?", (kind, name)).rowcount
            if deleted:
                _changed(connection)
            return deleted > 0

        return await self._write(work)

    async def remember(self, team: str, records: Sequence[ObjectRecord], most: int, now: float) -> None:
        """Keep records of one team."""

        def work(connection: sqlite3.Connection) -> None:
            objects.remember(connection, records, now)
            added = self._untrimmed.get(team, most) + len(records)
            if added > most // 16:  # to count is not free
                objects.trim(connection, team, most)
                added = 0
            self._untrimmed[team] = added

        await self._write(work)

    async def owned(self, team: str, names: Sequence[str], now: float) -> Sequence[ObjectRecord | None]:
        """The team's objects of these names."""
        return await self._read(partial(objects.owned, team=team, names=names, now=now))

    async def disown(self, team: str, name: str) -> None:
        """The object was deleted."""
        await self._write(partial(objects.disown, team=team, name=name))

    async def take_bill(self, team: str, name: str) -> str:
        """The object's bill, once."""
        return await self._write(partial(objects.take_bill, team=team, name=name))

    async def facts(self) -> Mapping[str, str]:
        """All facts."""
        return await self._read(lambda connection: dict(connection.execute("SELECT name, value FROM fact").fetchall()))

    async def add_facts(self, facts: Mapping[str, str]) -> None:
        """Write those that are not there."""
        await self._put_facts("INSERT OR IGNORE", facts)

    async def set_facts(self, facts: Mapping[str, str]) -> None:
        """Write them."""
        await self._put_facts("INSERT OR REPLACE", facts)

    async def load(self, scope: str, names: Sequence[str], now: float) -> Sequence[bytes | None]:
        """Blobs of one scope."""
        return await self._database.read(partial(layout_blobs.load, scope=scope, names=names, now=now))

    async def save(self, scope: str, blobs: Mapping[str, bytes], ttl_s: float, now: float) -> None:
        """Write blobs of one scope. Beyond a bound the ones that were saved first are forgotten."""
        self._refuse_damaged()
        await self._database.write(partial(layout_blobs.save, scope=scope, blobs=blobs, forget_at=now + ttl_s))
        self._saved_bytes += layout_blobs.weight(scope, blobs)
        if self._saved_bytes >= self._state_bytes // 16:
            self._saved_bytes = 0
            excess = await self._database.report(layout_blobs.total) - self._state_bytes
            while excess > 0 and (freed := await self._database.write(partial(layout_blobs.trim, excess=excess))):
                excess -= freed

    async def time(self) -> float | None:
        """The machine's clock is the store's."""
        return None

    async def ping(self) -> None:
        """Raises StoreError where the file cannot be written: damaged, locked, or on a full disk."""
        if self._damage and await asyncio.to_thread(self._stamp) != self._damaged:
            await self.check(_CHECK_AGAIN_S)
        await self._write(_probe)

    async def aclose(self) -> None:
        """Finish what was handed over, and close the file. May be called more than once."""
        await self._database.aclose()

    async def _write(self, work: Work[T]) -> T:
        self._refuse_damaged()
        return await self._watched(self._database.write(work))

    async def _read(self, work: Work[T]) -> T:
        return await self._watched(self._database.read(work))

    async def _report(self, work: Work[T]) -> T:
        return await self._watched(self._database.report(work))

    async def _watched(self, call: Awaitable[T]) -> T:
        try:
            return await call
        except DamagedFile as error:
            await self._found(str(error))
            raise

    def _refuse_damaged(self) -> None:
        if self._damage:
            raise DamagedFile(f"{self._database.path} is damaged: {self._damage}")

    async def _found(self, damage: str) -> None:
        is_news = not self._damage
        self._damage = damage
        await self._database.let_go()
        self._damaged = await asyncio.to_thread(self._stamp)
        if is_news:
            text = "the store %s is damaged (%s): it is written no more, and hard budgets go by on_store_error, until "
            _log.error(text + "a whole file is in its place", self._database.path, damage)

    def _stamp(self) -> tuple[int, ...]:
        """What changes when another file comes into this one's place, or it is mended."""
        try:
            found = self._database.path.stat()
        except OSError:
            return ()
        return found.st_dev, found.st_ino, found.st_mtime_ns

    async def _put_facts(self, how: str, facts: Mapping[str, str]) -> None:
        rows = list(facts.items())
        await self._write(lambda connection: connection.executemany(f"{how} INTO fact VALUES (?, ?)", rows))

    async def _records(self, kind: str, record_type: type[_R]) -> Sequence[_R]:
        decoder = msgspec.json.Decoder(record_type)

        def work(connection: sqlite3.Connection) -> Sequence[_R]:
            sql = "SELECT record FROM directory WHERE kind = ? ORDER BY name"
            return [decoder.decode(text) for (text,) in connection.execute(sql, (kind,))]

        return await self._read(work)


def _kind_and_name(record: TeamRecord | KeyRecord | BudgetRecord) -> tuple[str, str]:
    match record:
        case TeamRecord():
            return "team", record.name
        case KeyRecord():
            return "key", record.id
        case BudgetRecord():
            return "budget", record.id


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT version FROM directory_version").fetchone()[0])


def _probe(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT OR REPLACE INTO claim VALUES ('', ?, 0)", (_PROBE,))


def _changed(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE directory_version SET version = version + 1")
