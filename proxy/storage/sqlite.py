"""The store in a SQLite file, for one process. It survives a restart, and a kill at any moment. ``proxy.storage``
describes what each method promises. ``MemoryStore`` is the same without a file.

The command line may open the file while the proxy uses it; a second proxy should not (``is_shared``).

A damaged file is not written any more, because data that is written to a damaged file may be lost with it. The store is
used again when another file is in its place, or the file was repaired. If only the layout state is damaged, only that
is lost.

The second part is the spool. It keeps calls that the store did not take, in a SQLite file of the worker's own, until
the store is back. Each file belongs to the worker that opened it, which holds SQLite's exclusive lock as long as it
lives. A file that another worker can open belongs to a worker that died, and is taken over. A call is durable when
``add`` returns. The caller reads a page of calls, has the store carry them out, and then has the spool delete them. A
call that is carried out twice counts once (``proxy.storage``). A spool without a folder is kept in memory.

A reservation among the calls is an *intent*: it is billed if its exchange is never settled. The end of the exchange
replaces it, in one transaction. A damaged file is renamed, and its readable calls go into a new file.
"""

import asyncio
import logging
import os
import secrets
import sqlite3
import stat
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from typing import Any, Concatenate, Literal

import msgspec

from proxy.kit.errors import StoreError
from proxy.kit.value import dataclass, replace
from proxy.storage import ObjectRecord, Place, PutOff, R, Release, Reserve, Settle, tables
from proxy.storage.database import (
    SERVING_WAIT_S,
    SPOOL,
    STORE,
    DamagedFile,
    Database,
    P,
    T,
    Work,
    damage_of,
    migrate,
)

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


def _method(work: Work[P, T], how: _How = "write") -> Callable[Concatenate["SqliteStore", P], Coroutine[Any, Any, T]]:
    """A method of the store that does this work."""

    async def method(store: "SqliteStore", /, *args: P.args, **named: P.kwargs) -> T:
        return await store._do(how, work, *args, **named)

    return method


class MemoryDatabase:
    """A database that only this process can see, and that ends with it. Each piece of work runs at once, in the
    caller's thread."""

    path = Path(":memory:")

    def __init__(self, migrations: Sequence[str] = STORE) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        weakref.finalize(self, self._connection.close)
        migrate(self._connection, migrations)

    async def write(self, work: Work[P, T], *args: P.args, **named: P.kwargs) -> T:
        return work(self._connection, *args, **named)

    read = report = write

    async def let_go(self) -> None:
        """Do nothing: there is no file to close."""

    aclose = let_go


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

        expired = await self._do("write", work)
        with suppress(DamagedFile):  # of the layout state
            await self._database.write(tables.forget_blobs, now)
        return expired

    async def forget_entries(self, before: float) -> int:
        total = 0
        while forgotten := await self._do("write", tables.forget_entries, before, _FORGOTTEN_AT_ONCE):
            total += forgotten
        return total

    async def records(self, record_type: type[R]) -> Sequence[R]:
        return await self._do("read", tables.records, record_type)

    async def remember(self, team: str, records: Sequence[ObjectRecord], most: int, now: float) -> None:

        def work(connection: sqlite3.Connection) -> None:
            tables.remember(connection, records, now)
            added = self._untrimmed.get(team, most) + len(records)
            if added > most // 16:  # counting costs time, so it is not done at every call
                tables.trim_objects(connection, team, most)
                added = 0
            self._untrimmed[team] = added

        await self._do("write", work)

    async def load(self, scope: str, names: Sequence[str], now: float) -> Sequence[bytes | None]:
        return await self._database.read(tables.load_blobs, scope, names, now)

    async def page(self, scope: str, behind: Place, limit: int, now: float) -> Sequence[tuple[str, float, bytes]]:
        return await self._database.report(tables.page_blobs, scope, behind, limit, now)

    async def save(self, scope: str, blobs: Mapping[str, bytes], ttl_s: float, now: float) -> None:
        """Write blobs of one scope. Beyond a bound, the blobs that were saved first are deleted."""
        self._refuse_damaged()
        await self._database.write(tables.save_blobs, scope, blobs, now + ttl_s)
        # About the room that they take in the file (``tables``). The rows themselves are counted now and then.
        self._saved_bytes += sum([len(blob) + min(len(blob), 2048) + 512 for blob in blobs.values()])
        if self._saved_bytes >= self._state_bytes // 16:
            self._saved_bytes = 0
            excess = await self._database.report(tables.blobs_total) - self._state_bytes
            while excess > 0 and (freed := await self._database.write(tables.trim_blobs, excess)):
                excess -= freed

    async def time(self) -> float | None:
        """None: the store uses the machine's clock."""
        return None

    async def ping(self) -> None:
        """Raises StoreError if the file cannot be written: it is damaged, locked, or on a full disk."""
        if self._damage and await asyncio.to_thread(self._stamp) != self._damaged:
            await self.check(_CHECK_AGAIN_S)
        await self._do("write", _probe)

    async def _do(self, how: _How, work: Work[P, T], *args: P.args, **named: P.kwargs) -> T:
        if self._damage and how == "write":
            self._refuse_damaged()
        run: Callable[..., Awaitable[T]] = getattr(self._database, how)
        try:
            return await run(work, *args, **named)
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
        await self._do("write", tables.keep_entries, _MOST_ENTRIES)
        return await super().expire(now)


PAGE = 250
"""The most calls of a page. The store carries out the calls of one team in one step, and answers nobody else
meanwhile."""
MAX_BYTES = 1 << 30
"""The most bytes of calls that one worker keeps. Calls that it takes over from dead workers are kept beyond this
limit."""
_SUFFIX = ".spool"
_FILES = ("", "-wal", "-shm", "-journal")
_INTENT = "intent"
_KINDS: dict[type[PutOff], str] = {Reserve: _INTENT, Settle: "settle", Release: "release"}
_READ = {kind: msgspec.json.Decoder(call_type).decode for call_type, kind in _KINDS.items()}
# Columns are read as bytes, so that damaged text does not fail the other rows.
_SELECT = (
    "SELECT number, CAST(kind AS BLOB), CAST(exchange AS BLOB), CAST(call AS BLOB) FROM pending WHERE number > ? "
    "ORDER BY number LIMIT ?"
)
_SALVAGE = "SELECT number, CAST(kind AS BLOB), x'', CAST(call AS BLOB) FROM pending ORDER BY number"
_ADD = (
    "INSERT INTO pending (number, kind, exchange, call) SELECT ?1, ?2, ?3, ?4 WHERE ?2 <> :intent OR NOT EXISTS "
    "(SELECT 1 FROM pending WHERE exchange = ?3 AND kind <> :intent)"
).replace(":intent", f"'{_INTENT}'")
_END_INTENT = f"DELETE FROM pending WHERE exchange = ? AND kind = '{_INTENT}' RETURNING length(CAST(call AS BLOB))"


@dataclass(frozen=True, slots=True)
class _Row:
    """A call as it stands in the file."""

    number: int
    kind: str
    exchange: str
    text: bytes

    def call(self) -> PutOff | None:
        """The call; None if it cannot be read."""
        try:
            return _READ[self.kind](self.text)
        except (KeyError, msgspec.MsgspecError):
            return None


class Spool:
    """The pending calls of one worker. The file is made when there is something to write. ``fsync``: calls also survive
    a power cut. ``is_shared``: other users may write to the parent folder, so the spool's folder is used only if it
    belongs to this user alone."""

    def __init__(
        self, folder: Path | None, max_bytes: int = MAX_BYTES, *, fsync: bool = True, is_shared: bool = False
    ) -> None:
        self._max_bytes = max_bytes
        self._folder = folder
        self._fsync = fsync
        self._is_shared = is_shared
        self.path = _new_path(folder)
        self._database: Database | MemoryDatabase | None = None
        # Many calls may be put off at once; a second connection would find the file locked by the first.
        self._opening = asyncio.Lock()
        # No number is given twice, not even when a new file replaces a damaged one, because calls are deleted by the
        # number under which they were read.
        self._numbers = count(1)
        self.size = 0
        self._bytes = 0

    async def add(self, calls: Sequence[PutOff], *, is_last: bool = False) -> None:
        """Keep all of the calls or none. They are durable on return. Raises StoreError, also if the bound is reached.
        Even then, the end of an exchange replaces its intent. No bound holds for the last calls of a worker."""
        rows = [
            _Row(next(self._numbers), _KINDS[type(call)], call.exchange_id, msgspec.json.encode(call)) for call in calls
        ]
        await self._add(rows, None if is_last else self._max_bytes - self._bytes)

    async def adopt(self) -> Sequence[PutOff]:
        """Take over the calls that dead workers have left, and return them. Raises StoreError."""
        first = next(self._numbers)
        for path in await asyncio.to_thread(self._found):
            await self._take_over(path)
        rows = await self._database.write(_behind, first) if self._database is not None else ()
        return [call for _, call in await self._read(rows)]

    async def page(self, after: int) -> Sequence[tuple[int, PutOff]]:
        """The oldest calls whose number is higher than ``after``, with their numbers. Raises StoreError."""
        if not self.size or self._database is None:
            return ()
        return await self._read(await self._done(self._database, _behind, after, PAGE) or ())

    async def forget(self, numbers: Sequence[int]) -> None:
        """Delete calls that the store has carried out. Raises StoreError."""
        if not numbers or self._database is None:
            return
        fewer = await self._done(self._database, _deleted, numbers) or 0
        self._bytes -= self._bytes * fewer // max(self.size, 1)  # calls have about the same length
        self.size -= fewer

    async def aclose(self) -> None:
        """Release the file, and remove it if no call is pending."""
        database, self._database = self._database, None
        if database is not None:
            await database.aclose()
        if self._folder is not None and not self.size:
            with suppress(OSError):  # the path may be no folder, or not exist
                _remove(self.path)

    async def _add(self, rows: Sequence[_Row], room_bytes: int | None = None) -> None:
        database = await self._opened()
        try:
            more, size = await database.write(_added, rows, room_bytes)
        except DamagedFile as error:
            await self._give_up(database, error)
            more, size = await (await self._opened()).write(_added, rows, room_bytes)
        self.size += more
        self._bytes += size

    async def _done(
        self, database: Database | MemoryDatabase, work: Work[P, T], *args: P.args, **named: P.kwargs
    ) -> T | None:
        """The result of the work. If the file is damaged, it is set aside, and the result is None."""
        try:
            return await database.write(work, *args, **named)
        except DamagedFile as error:
            await self._give_up(database, error)
            return None

    async def _read(self, rows: Sequence[_Row]) -> Sequence[tuple[int, PutOff]]:
        """Calls with their numbers. A row that cannot be read is logged and deleted."""
        calls = [(row.number, call) for row in rows if (call := _readable(row)) is not None]
        await self.forget(sorted({row.number for row in rows} - {number for number, _ in calls}))
        return calls

    async def _opened(self) -> Database | MemoryDatabase:
        async with self._opening:
            if self._database is None:
                if self._folder is None:
                    self._database = MemoryDatabase(SPOOL)
                else:
                    await asyncio.to_thread(self._check_folder, self._folder)
                    self._database = await Database.open(self.path, SPOOL, exclusive=True, fsync=self._fsync)
            return self._database

    def _check_folder(self, folder: Path) -> None:
        if self._is_shared:
            with suppress(OSError):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _is_own(folder):
                raise StoreError(f"{folder} must be a folder to which this user alone may write")

    def _found(self) -> Sequence[Path]:
        """The files that other workers have left."""
        folder = self._folder
        if folder is None or not folder.is_dir() or (self._is_shared and not _is_own(folder)):
            return ()
        return [path for path in sorted(folder.glob(f"*{_SUFFIX}")) if path != self.path]

    async def _give_up(self, database: Database | MemoryDatabase, error: DamagedFile) -> None:
        """Give up this worker's damaged file, and go on in a new file with the readable calls of the old one."""
        async with self._opening:
            if self._database is not database:  # another call has already done it
                return
            await database.aclose()
            damaged, self.path = self.path, _new_path(self._folder)
            self._database, self.size, self._bytes = None, 0, 0
        await self._salvage(damaged, error, await asyncio.to_thread(_salvaged, damaged))

    async def _take_over(self, path: Path) -> None:
        """Move the calls of another file into this one. If the worker of that file is alive, do nothing."""
        try:
            other = await Database.open(path, SPOOL, exclusive=True, busy_timeout_s=0.0)
            try:
                rows = [row for row in await other.write(_behind, 0) if _readable(row) is not None]
                if rows:
                    await self._add(self._renumbered(rows))
                _remove(path)
            finally:
                await other.aclose()
        except DamagedFile as error:
            await self._salvage(path, error, self._renumbered(await asyncio.to_thread(_salvaged, path)))
        except StoreError as error:
            _log.debug("%s is not taken over: %s", path, error)

    def _renumbered(self, rows: Sequence[_Row]) -> Sequence[_Row]:
        return [replace(row, number=next(self._numbers)) for row in rows]

    async def _salvage(self, path: Path, error: DamagedFile, rows: Sequence[_Row]) -> None:
        """Keep the calls that could be read from a damaged file, and set the file aside. If that fails, the file keeps
        its name, and the next worker tries again."""
        if rows:
            await self._add(rows)
        aside = await asyncio.to_thread(_set_aside, path)
        _log.error(
            "the spool %s is damaged (%s): %d calls were read from it, and it is kept as %s",
            path, error, len(rows), aside,
        )  # fmt: skip


def _added(connection: sqlite3.Connection, rows: Sequence[_Row], room_bytes: int | None) -> tuple[int, int]:
    """Write rows. Returns by how many rows and bytes the file has grown. The end of an exchange replaces its intent,
    and an intent is not written after the end of its exchange. Raises StoreError for rows that replace nothing and have
    no room."""
    more = size = 0
    for row in rows:
        ended = connection.execute(_END_INTENT, (row.exchange,)).fetchall() if row.kind != _INTENT else []
        if room_bytes is not None and not ended and size + len(row.text) > room_bytes:
            raise StoreError("it holds as much as it may already (stratiform.spool_max_mib)")
        added = connection.execute(_ADD, (row.number, row.kind, row.exchange, row.text.decode())).rowcount
        more += added - len(ended)
        size += added * len(row.text) - sum(length for (length,) in ended)
    return more, size


def _behind(connection: sqlite3.Connection, number: int, most: int = -1) -> Sequence[_Row]:
    """Rows with a higher number, the oldest first."""
    return [_row(*found) for found in connection.execute(_SELECT, (number, most))]


def _deleted(connection: sqlite3.Connection, numbers: Sequence[int]) -> int:
    """Delete rows. Returns how many there were."""
    values = [(number,) for number in numbers]
    return connection.executemany("DELETE FROM pending WHERE number = ?", values).rowcount


def _salvaged(path: Path) -> Sequence[_Row]:
    """The readable rows of a damaged file, which is read forwards from the first row and backwards from the last
    row."""
    found: dict[int, _Row] = {}
    for order in ("ASC", "DESC"):
        with suppress(sqlite3.Error), closing(sqlite3.connect(path)) as connection:
            for values in connection.execute(f"{_SALVAGE} {order}"):
                row = _row(*values)
                if (call := row.call()) is not None:
                    found[row.number] = replace(row, exchange=call.exchange_id)
    return [found[number] for number in sorted(found)]


def _row(number: int, kind: bytes, exchange: bytes, text: bytes) -> _Row:
    return _Row(number, kind.decode("ascii", "replace"), exchange.decode("utf-8", "replace"), text)


def _readable(row: _Row) -> PutOff | None:
    if (call := row.call()) is None:
        _log.error("a spooled call of exchange %r cannot be read, and is dropped", row.exchange)
    return call


def _new_path(folder: Path | None) -> Path:
    return (folder or Path()) / f"{secrets.token_hex(8)}{_SUFFIX}"


def _is_own(folder: Path) -> bool:
    """Whether the folder belongs to this user, and no other user may write to it."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    of_others = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not of_others


def _set_aside(path: Path) -> Path:
    aside = path.with_name(f"{path.name}.damaged")
    for suffix in _FILES:
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    return aside


def _remove(path: Path) -> None:
    for suffix in _FILES:
        path.with_name(path.name + suffix).unlink(missing_ok=True)
