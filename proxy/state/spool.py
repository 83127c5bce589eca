"""What could not be written while the store was away: a worker's own SQLite file, read in pages when the store is back.

Each file belongs to the worker that opened it, which holds SQLite's exclusive lock for as long as it lives; so the
files of workers that died are those that another one can open, and it takes them over. A spooled call is durable when
``add`` returns. Whoever reads a page has the store carry its calls out, and has the spool forget them afterwards; a
call that is carried out twice counts once (``proxy.store``).
"""

import asyncio
import secrets
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from proxy.ports import StoreError
from proxy.state.database import Database
from proxy.state.migrations import SPOOL
from proxy.store import PutOff, Release, Settle

PAGE = 250
"""The most calls of a page: the store carries out those of one team in one step, and answers nobody else meanwhile."""
MAX_BYTES = 1 << 30
"""The most bytes of calls that one worker keeps. What it takes over from workers that died is kept beyond that."""
_SUFFIX = ".spool"

_TYPES: dict[str, Callable[[str], PutOff]] = {
    "settle": msgspec.json.Decoder(Settle).decode,
    "release": msgspec.json.Decoder(Release).decode,
}


class Spool:
    """The pending calls of one worker. The file is made when there is something to write."""

    def __init__(self, folder: Path, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._folder = folder
        self._path = folder / f"{secrets.token_hex(8)}{_SUFFIX}"
        self._database: Database | None = None
        # Many calls may be put off at once; a second connection would find the file locked by the first.
        self._opening = asyncio.Lock()
        self.size = 0
        self._bytes = 0

    async def add(self, call: PutOff) -> None:
        """Keep a call. Durable when it returns. Raises StoreError, also beyond the bound."""
        kind = "settle" if isinstance(call, Settle) else "release"
        text = msgspec.json.encode(call).decode()
        if self._bytes + len(text) > self._max_bytes:
            raise StoreError(f"it holds {self._max_bytes >> 20} MiB already (stratiform.spool_max_mib)")
        database = await self._opened()
        await database.write(
            lambda connection: connection.execute("INSERT INTO pending (kind, call) VALUES (?, ?)", (kind, text))
        )
        self.size += 1
        self._bytes += len(text)

    async def adopt(self) -> Sequence[PutOff]:
        """Take over what workers that died have left, and return it. Raises StoreError."""
        adopted: list[PutOff] = []
        for path in sorted(self._folder.glob(f"*{_SUFFIX}")) if self._folder.is_dir() else ():
            if path != self._path:
                adopted += await self._take_over(path)
        return adopted

    async def page(self, after: int) -> Sequence[tuple[int, PutOff]]:
        """The oldest calls whose number is higher than ``after``, with their numbers. Raises StoreError."""
        if not self.size or self._database is None:
            return ()
        rows = await self._database.write(lambda connection: _page(connection, after))
        return [(number, _TYPES[kind](text)) for number, kind, text in rows]

    async def forget(self, numbers: Sequence[int]) -> None:
        """Delete calls that the store has carried out. Raises StoreError."""
        if numbers and self._database is not None:
            await self._database.write(_forgetting(numbers))
            self._bytes -= self._bytes * len(numbers) // max(self.size, 1)  # calls are of much the same length
            self.size -= len(numbers)

    async def aclose(self) -> None:
        """Release the file, and remove it where nothing is pending."""
        if self._database is None:
            return
        await self._database.aclose()
        self._database = None
        if not self.size:
            _remove(self._path)

    async def _opened(self) -> Database:
        async with self._opening:
            if self._database is None:
                self._database = await Database.open(self._path, SPOOL, exclusive=True)
            return self._database

    async def _take_over(self, path: Path) -> Sequence[PutOff]:
        """Move another file's calls into this one; nothing, where its worker lives."""
        try:
            other = await Database.open(path, SPOOL, exclusive=True, busy_timeout_s=0.0)
        except StoreError:
            return ()
        try:
            rows = await other.write(_all)
            if rows:
                own = await self._opened()
                await own.write(_inserting([(kind, text) for _, kind, text in rows]))
                self.size += len(rows)
                self._bytes += sum(len(text) for _, _, text in rows)
                await other.write(_forgetting([number for number, _, _ in rows]))
        finally:
            await other.aclose()
        _remove(path)
        return [_TYPES[kind](text) for _, kind, text in rows]


def _page(connection: sqlite3.Connection, after: int) -> Sequence[tuple[int, str, str]]:
    return connection.execute(
        "SELECT number, kind, call FROM pending WHERE number > ? ORDER BY number LIMIT ?", (after, PAGE)
    ).fetchall()


def _all(connection: sqlite3.Connection) -> Sequence[tuple[int, str, str]]:
    return connection.execute("SELECT number, kind, call FROM pending ORDER BY number").fetchall()


def _inserting(rows: Sequence[tuple[str, str]]) -> Callable[[sqlite3.Connection], object]:
    return lambda connection: connection.executemany("INSERT INTO pending (kind, call) VALUES (?, ?)", rows)


def _forgetting(numbers: Sequence[int]) -> Callable[[sqlite3.Connection], object]:
    return lambda connection: connection.executemany("DELETE FROM pending WHERE number = ?", [(n,) for n in numbers])


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
