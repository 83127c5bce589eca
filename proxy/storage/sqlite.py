"""The store in a SQLite file, for one process. It survives a restart, and a kill at any moment. ``proxy.storage.port``
describes what each method promises. ``MemoryStore`` is the same without a file.

The command line may open the file while the proxy uses it; a second proxy should not (``is_shared``).

A damaged file is not written any more, because data that is written to a damaged file may be lost with it. The store is
used again when another file is in its place, or the file was repaired. If only the layout state is damaged, only that
is lost.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

from proxy.storage import tables
from proxy.storage.database import SERVING_WAIT_S, STORE, DamagedFile, Database, MemoryDatabase, Work, damage_of
from proxy.storage.port import ObjectRecord, Place, R

T = TypeVar("T")
P = ParamSpec("P")

# The most entries that one transaction deletes, so that other work does not wait long.
_FORGOTTEN_AT_ONCE = 2000
STATE_BYTES = 256 << 20
"""The most room that layout state takes in a file, a sixteenth more or less. Blobs that were saved first are deleted
first."""
_CHECK_S = 2.0  # how long the start waits for the search for damage
_CHECK_AGAIN_S = 1.0
_TABLES = ("counter", "hold", "entry", "directory_version", "directory", "claim", "object")
# As much as a busy moment writes: if this fits on the disk, a reservation also fits.
_PROBE = "probe" * 8192

_log = logging.getLogger("stratiform.store")

# How work runs: in a transaction of the writer ("write"), or beside the writer for work that reads a few rows ("read")
# or many rows ("report").
_How = Literal["write", "read", "report"]


def _method(
    work: Callable[Concatenate[sqlite3.Connection, P], T], how: _How = "write"
) -> Callable[Concatenate["SqliteStore", P], Coroutine[Any, Any, T]]:
    """A method of the store that does this work."""

    async def method(store: "SqliteStore", /, *args: P.args, **named: P.kwargs) -> T:
        return await store._do(lambda connection: work(connection, *args, **named), how)

    return method


class SqliteStore:
    """A store in a file. ``open`` makes one; every method may raise StoreError."""

    is_shared = False
    is_durable = True

    def __init__(self, database: Database | MemoryDatabase, state_bytes: int = STATE_BYTES) -> None:
        self._database = database
        self.aclose = database.aclose
        self._state_bytes = state_bytes
        self._saved_bytes = state_bytes
        self._untrimmed: dict[str, int] = {}
        self._damage = ""
        self._damaged: tuple[int, ...] = ()

    @classmethod
    async def open(
        cls, path: Path, busy_timeout_s: float = SERVING_WAIT_S, *, is_patient: bool = False
    ) -> "SqliteStore":
        """Open the store in this file, or create it. ``is_patient``: if the file is damaged, opening succeeds and the
        calls fail."""
        return cls(await Database.open(path, STORE, busy_timeout_s=busy_timeout_s, is_patient=is_patient))

    async def check(self, most_s: float = _CHECK_S) -> None:
        """Search for damage, and log the result."""
        if damage := await damage_of(self._database.path, _TABLES, most_s):
            await self._found(damage)
            return
        if damage is None:
            _log.info("the store %s was not looked through for damage within %.0f s", self._database.path, most_s)
        if self._damage:
            self._damage = ""
            _log.warning("the store %s is used again", self._database.path)

    reserve = _method(tables.reserve)
    settle = _method(tables.settle)
    carry_out = _method(tables.carry_out)
    renew = _method(tables.renew)
    balance = _method(tables.balance, "read")
    set_spent = _method(tables.set_spent)
    claim = _method(tables.claim)
    spend = _method(tables.spend, "report")
    entries = _method(tables.entries, "report")
    directory_version = _method(tables.directory_version, "read")
    put = _method(tables.put)
    remove = _method(tables.remove)
    owned = _method(tables.owned, "read")
    disown = _method(tables.disown)
    take_bill = _method(tables.take_bill)
    facts = _method(tables.facts, "read")
    put_facts = _method(tables.put_facts)

    async def expire(self, now: float) -> int:

        def work(connection: sqlite3.Connection) -> int:
            tables.forget(connection, now)
            tables.remember(connection, (), now)
            return tables.expire(connection, now)

        expired = await self._do(work)
        with suppress(DamagedFile):  # of the layout state
            await self._database.write(partial(tables.forget_blobs, now=now))
        return expired

    async def forget_entries(self, before: float) -> int:
        total = 0
        while count := await self._do(partial(tables.forget_entries, before=before, most=_FORGOTTEN_AT_ONCE)):
            total += count
        return total

    async def records(self, record_type: type[R]) -> Sequence[R]:
        return await self._do(lambda connection: tables.records(connection, record_type), "read")

    async def remember(self, team: str, records: Sequence[ObjectRecord], most: int, now: float) -> None:

        def work(connection: sqlite3.Connection) -> None:
            tables.remember(connection, records, now)
            added = self._untrimmed.get(team, most) + len(records)
            if added > most // 16:  # counting costs time, so it is not done at every call
                tables.trim_objects(connection, team, most)
                added = 0
            self._untrimmed[team] = added

        await self._do(work)

    async def load(self, scope: str, names: Sequence[str], now: float) -> Sequence[bytes | None]:
        return await self._database.read(partial(tables.load_blobs, scope=scope, names=names, now=now))

    async def page(self, scope: str, behind: Place, limit: int, now: float) -> Sequence[tuple[str, float, bytes]]:
        return await self._database.report(partial(tables.page_blobs, scope=scope, behind=behind, limit=limit, now=now))

    async def save(self, scope: str, blobs: Mapping[str, bytes], ttl_s: float, now: float) -> None:
        """Write blobs of one scope. Beyond a bound, the blobs that were saved first are deleted."""
        self._refuse_damaged()
        await self._database.write(partial(tables.save_blobs, scope=scope, blobs=blobs, forget_at=now + ttl_s))
        # About the room that they take in the file (``tables``). The rows themselves are counted now and then.
        self._saved_bytes += sum([len(blob) + min(len(blob), 2048) + 512 for blob in blobs.values()])
        if self._saved_bytes >= self._state_bytes // 16:
            self._saved_bytes = 0
            excess = await self._database.report(tables.blobs_total) - self._state_bytes
            while excess > 0 and (freed := await self._database.write(partial(tables.trim_blobs, excess=excess))):
                excess -= freed

    async def time(self) -> float | None:
        """None: the store uses the machine's clock."""
        return None

    async def ping(self) -> None:
        """Raises StoreError if the file cannot be written: it is damaged, locked, or on a full disk."""
        if self._damage and await asyncio.to_thread(self._stamp) != self._damaged:
            await self.check(_CHECK_AGAIN_S)
        await self._do(_probe)

    async def _do(self, work: Work[T], how: _How = "write") -> T:
        if self._damage and how == "write":
            self._refuse_damaged()
        run: Callable[[Work[T]], Awaitable[T]] = getattr(self._database, how)
        try:
            return await run(work)
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
            _log.error(
                "the store %s is damaged (%s): it is written no more, and hard budgets go by on_store_error, until a "
                "whole file is in its place",
                self._database.path,
                damage,
            )

    def _stamp(self) -> tuple[int, ...]:
        """A value that changes when another file replaces this one, or when the file is repaired."""
        try:
            found = self._database.path.stat()
        except OSError:
            return ()
        return found.st_dev, found.st_ino, found.st_mtime_ns


def _probe(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT OR REPLACE INTO claim VALUES ('', ?, 0)", (_PROBE,))


_MOST_ENTRIES = 100_000


class MemoryStore(SqliteStore):
    """A store in memory, which ends with the process. It never fails, its ledger is bounded, and its calls never
    wait."""

    is_durable = False

    def __init__(self) -> None:
        super().__init__(MemoryDatabase())

    async def expire(self, now: float) -> int:
        """Bill expired reservations. Of the ledger, the newest entries stay."""
        await self._do(lambda connection: tables.keep_entries(connection, _MOST_ENTRIES))
        return await super().expire(now)
