"""The spend ledger in a SQLite file: survives a restart, and a kill at any moment.

One thread owns the connection, so the event loop never waits for the disk. The file is in WAL mode with
``synchronous=NORMAL``: a commit is on record when the process dies right after it; only a power cut or a crash of the
operating system can take the last commits back (https://www.sqlite.org/pragma.html#pragma_synchronous).
"""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from proxy.ports import StoreError

_T = TypeVar("_T")

# Each entry brings a file one version further; ``PRAGMA user_version`` says where it is. Entries are never edited.
_MIGRATIONS = (
    """
    CREATE TABLE spend (
        exchange_id TEXT PRIMARY KEY,
        team TEXT NOT NULL,
        usd REAL NOT NULL,
        at REAL NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX spend_at ON spend (at);
    CREATE TABLE total (
        team TEXT PRIMARY KEY,
        usd REAL NOT NULL
    ) WITHOUT ROWID;
    """,
)

_ADD = "INSERT OR IGNORE INTO spend (exchange_id, team, usd, at) VALUES (?, ?, ?, ?)"
_SUM_UP = "INSERT INTO total (team, usd) VALUES (?, ?) ON CONFLICT (team) DO UPDATE SET usd = usd + excluded.usd"
_TOTAL = "SELECT usd FROM total WHERE team = ?"
# Single exchanges are only kept to know an exchange again; the totals stand on their own.
_FORGET = "DELETE FROM spend WHERE at < (SELECT max(at) FROM spend) - ?"
_KEPT_S = 30 * 86400.0


class SqliteStore:
    """A SpendStore in a file. ``open`` makes one."""

    def __init__(self, connection: sqlite3.Connection, thread: ThreadPoolExecutor) -> None:
        self._connection = connection
        self._thread = thread
        self._is_closed = False

    @classmethod
    async def open(cls, path: Path, busy_timeout_s: float = 1.0) -> "SqliteStore":
        """The ledger in this file, which is made if need be. Raises StoreError."""
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spend-store")
        try:
            connection = await _run(thread, lambda: _connect(path, busy_timeout_s))
        except StoreError:
            thread.shutdown(wait=False)
            raise
        return cls(connection, thread)

    async def add_spend(self, exchange_id: str, team: str, usd: float, at: float) -> float:
        """Record one exchange; the team's total after it. Raises StoreError."""

        def add() -> float:
            with _transaction(self._connection):
                if self._connection.execute(_ADD, (exchange_id, team, usd, at)).rowcount:
                    self._connection.execute(_SUM_UP, (team, usd))
                return self._total(team)

        return await _run(self._thread, add)

    async def spent(self, team: str) -> float:
        """The team's total in USD. Raises StoreError."""
        return await _run(self._thread, lambda: self._total(team))

    async def aclose(self) -> None:
        """Finish what was handed over, and close the file. May be called more than once."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            await _run(self._thread, self._connection.close)
        finally:
            self._thread.shutdown(wait=False)

    def _total(self, team: str) -> float:
        row = self._connection.execute(_TOTAL, (team,)).fetchone()
        return float(row[0]) if row else 0.0


async def _run(thread: ThreadPoolExecutor, work: Callable[[], _T]) -> _T:
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, work)
    except (sqlite3.Error, OSError, RuntimeError) as error:
        # RuntimeError: the executor has been shut down.
        raise StoreError(str(error)) from error


def _connect(path: Path, busy_timeout_s: float) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    connection = sqlite3.connect(path, timeout=busy_timeout_s, isolation_level=None, check_same_thread=True)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        _migrate(connection)
        connection.execute(_FORGET, (_KEPT_S,))
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _migrate(connection: sqlite3.Connection) -> None:
    """Bring the file to the version that this code knows. Two processes may try at once: the second finds it done."""
    with _transaction(connection):
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if version > len(_MIGRATIONS):
            raise sqlite3.DatabaseError(f"the file has version {version}, this program knows {len(_MIGRATIONS)}")
        for statements in _MIGRATIONS[version:]:
            for statement in statements.split(";"):
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(_MIGRATIONS)}")


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All or nothing. The write lock is taken at once, so that it cannot be refused half-way."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
