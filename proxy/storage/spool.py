"""Keeps calls that the store did not take, in a SQLite file of the worker's own, until the store is back.

Each file belongs to the worker that opened it, which holds SQLite's exclusive lock as long as it lives. A file that
another worker can open belongs to a worker that died, and is taken over. A call is durable when ``add`` returns. A
caller that reads a page has the store carry its calls out, and then has the spool forget them. A call that is carried
out twice counts once (``proxy.storage.port``).

A reservation among the calls is an *intent*: what is billed if its exchange is never settled. The end of the exchange
replaces it, in one transaction. A damaged file is set aside, and what can be read of it goes into a new file.
"""

import asyncio
import logging
import os
import secrets
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

from proxy.ports import StoreError
from proxy.storage import spooled
from proxy.storage.damage import DamagedFile
from proxy.storage.database import Database, T, Work
from proxy.storage.migrations import SPOOL
from proxy.storage.port import PutOff
from proxy.storage.spooled import Row

PAGE = 250
"""The most calls of a page. The store carries out those of one team in one step, and answers nobody else meanwhile."""
MAX_BYTES = 1 << 30
"""The most bytes of calls that one worker keeps. Calls that it takes over from dead workers are kept beyond that."""
_SUFFIX = ".spool"
_FILES = ("", "-wal", "-shm", "-journal")

_log = logging.getLogger("stratiform.store")


class Spool:
    """The pending calls of one worker. The file is made when there is something to write. ``refuges`` are folders for
    calls that neither the store nor this spool takes when the worker ends. ``fsync``: calls survive a power cut,
    too."""

    def __init__(
        self, folder: Path, max_bytes: int = MAX_BYTES, *, refuges: Sequence[Path] = (), fsync: bool = True
    ) -> None:
        self._max_bytes = max_bytes
        self._folder = folder
        self._refuges = refuges
        self._fsync = fsync
        self._path = _new_path(folder)
        self._database: Database | None = None
        # Many calls may be put off at once; a second connection would find the file locked by the first.
        self._opening = asyncio.Lock()
        # No number is given twice, not even when a new file replaces a damaged one: calls are forgotten by the number
        # under which they were read.
        self._numbers = count(1)
        self.size = 0
        self._bytes = 0

    async def add(self, call: PutOff) -> None:
        """Keep a call. It is durable on return. Raises StoreError, also where the bound is reached; the end of an
        exchange replaces its intent even then."""
        if not await self._add([spooled.row_of(next(self._numbers), call)], self._max_bytes - self._bytes):
            raise StoreError(f"it holds {self._max_bytes >> 20} MiB already (stratiform.spool_max_mib)")

    async def adopt(self) -> Sequence[PutOff]:
        """Take over what workers that died have left, and return it. Raises StoreError."""
        first = next(self._numbers)
        for folder in (*self._refuges, self._folder):  # an end in a refuge replaces its intent in this folder
            for path in await asyncio.to_thread(_found_in, folder, is_refuge=folder in self._refuges):
                if path != self._path:
                    await self._take_over(path)
        if self._database is None:
            return []
        return [call for _, call in await self._read(await self._database.write(spooled.behind(first)))]

    async def page(self, after: int) -> Sequence[tuple[int, PutOff]]:
        """The oldest calls whose number is higher than ``after``, with their numbers. Raises StoreError."""
        if not self.size or self._database is None:
            return ()
        return await self._read(await self._done(self._database, spooled.behind(after, PAGE)) or ())

    async def forget(self, numbers: Sequence[int]) -> None:
        """Delete calls that the store has carried out. Raises StoreError."""
        if not numbers or self._database is None:
            return
        fewer = await self._done(self._database, spooled.forgetting(numbers)) or 0
        self._bytes -= self._bytes * fewer // max(self.size, 1)  # calls are of much the same length
        self.size -= fewer

    async def rescue(self, calls: Sequence[PutOff]) -> tuple[Sequence[Path], Sequence[PutOff]]:
        """Write calls that the store does not take to any place that does, this spool first: the files in the refuges,
        and the calls that no place takes."""
        files, left = [], await self._take(list(calls))
        for folder in self._refuges:
            if not left:
                break
            if not await asyncio.to_thread(_is_usable, folder):
                _log.error("%s takes nothing: it must be a folder to which this user alone may write", folder)
                continue
            refuge = Spool(folder, fsync=self._fsync)
            left = await refuge._take(left)
            if refuge.size:
                files.append(refuge._path)
            try:
                await refuge.aclose()
            except StoreError as error:
                _log.error("%s: %s", refuge._path, error)
        return files, left

    async def aclose(self) -> None:
        """Release the file, and remove it where nothing is pending."""
        database, self._database = self._database, None
        if database is not None:
            await database.aclose()
        if not self.size:
            with suppress(OSError):  # the folder may be none, or not be there
                _remove(self._path)

    async def _take(self, calls: list[PutOff]) -> list[PutOff]:
        """Keep calls, page by page; those that do not fit."""
        while calls:
            page = calls[:PAGE]
            try:
                await self._add([spooled.row_of(next(self._numbers), call) for call in page])
            except StoreError:
                break
            calls = calls[PAGE:]
        return calls

    async def _add(self, rows: Sequence[Row], room_bytes: int | None = None) -> bool:
        """Keep rows; whether there was room."""
        database = await self._opened()
        try:
            added = await database.write(spooled.adding(rows, room_bytes))
        except DamagedFile as error:
            await self._set_aside(database, error)
            database = await self._opened()
            added = await database.write(spooled.adding(rows, room_bytes))
        if added is None:
            return False
        self.size += added.rows
        self._bytes += added.bytes
        return True

    async def _done(self, database: Database, work: Work[T]) -> T | None:
        """What the work returns; None where the file is damaged, which is set aside then."""
        try:
            return await database.write(work)
        except DamagedFile as error:
            await self._set_aside(database, error)
            return None

    async def _read(self, rows: Sequence[Row]) -> Sequence[tuple[int, PutOff]]:
        """Calls with their numbers. A row that cannot be read is logged and deleted."""
        calls = [(row, call) for row in rows if (call := _readable(row)) is not None]
        if len(calls) < len(rows):
            kept = {row.number for row, _ in calls}
            await self.forget([row.number for row in rows if row.number not in kept])
        return [(row.number, call) for row, call in calls]

    async def _opened(self) -> Database:
        async with self._opening:
            if self._database is None:
                self._database = await Database.open(self._path, SPOOL, exclusive=True, fsync=self._fsync)
            return self._database

    async def _set_aside(self, database: Database, error: DamagedFile) -> None:
        """Give up this worker's damaged file, and go on in a new file with what can be read of the old one."""
        async with self._opening:
            if self._database is not database:  # another call has done it
                return
            await database.aclose()
            damaged, self._path = self._path, _new_path(self._folder)
            self._database, self.size, self._bytes = None, 0, 0
        await self._salvage(damaged, error, await asyncio.to_thread(spooled.salvaged, damaged))

    async def _take_over(self, path: Path) -> None:
        """Move the calls of another file into this one. Where the worker of that file lives, do nothing."""
        try:
            other = await Database.open(path, SPOOL, exclusive=True, busy_timeout_s=0.0)
            try:
                rows = await other.write(spooled.behind(0))
                if rows:
                    await self._add(self._renumbered([row for row in rows if _readable(row) is not None]))
                _remove(path)
            finally:
                await other.aclose()
        except DamagedFile as error:
            rows = await asyncio.to_thread(spooled.salvaged, path)
            await self._salvage(path, error, self._renumbered(rows))
        except StoreError as error:
            _log.debug("%s is not taken over: %s", path, error)

    def _renumbered(self, rows: Sequence[Row]) -> Sequence[Row]:
        return [replace(row, number=next(self._numbers)) for row in rows]

    async def _salvage(self, path: Path, error: DamagedFile, rows: Sequence[Row]) -> None:
        """Keep what could be read of a damaged file, and set the file aside. Where that fails the file keeps its name,
        and the next worker tries again."""
        if rows:
            await self._add(rows)
        aside = await asyncio.to_thread(_set_aside, path)
        _log.error(
            "the spool %s is damaged (%s): %d calls were read from it, and it is kept as %s",
            path,
            error,
            len(rows),
            aside,
        )


def _readable(row: Row) -> PutOff | None:
    call = row.call()
    if call is None:
        _log.error("a spooled call of exchange %r cannot be read, and is dropped", row.exchange)
    return call


def _new_path(folder: Path) -> Path:
    return folder / f"{secrets.token_hex(8)}{_SUFFIX}"


def _found_in(folder: Path, *, is_refuge: bool) -> Sequence[Path]:
    """The spools in a folder. A refuge may be in a folder that everybody writes to: only this user's files count."""
    if not folder.is_dir() or (is_refuge and not _is_own(folder)):
        return ()
    return [path for path in sorted(folder.glob(f"*{_SUFFIX}")) if not is_refuge or _is_own(path)]


def _is_usable(folder: Path) -> bool:
    """Whether calls may be written there: the folder belongs to this user, and nobody else may write to it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return False
    return _is_own(folder)


def _is_own(path: Path) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    is_plain = stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)
    return is_plain and found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _set_aside(path: Path) -> Path:
    aside = path.with_name(f"{path.name}.damaged")
    for suffix in _FILES:
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    return aside


def _remove(path: Path) -> None:
    for suffix in _FILES:
        path.with_name(path.name + suffix).unlink(missing_ok=True)
