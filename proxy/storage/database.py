"""A SQLite file with one writer thread and group commit.

The event loop never waits for the disk: work is handed to the thread that owns the connection. Work that arrives while
one transaction is committed goes into the next transaction together, each piece in its own savepoint. So 200 exchanges
that end at once cost only a few commits. An answer is given after its commit. Requests and reports each read on their
own connection and thread: in WAL mode, readers do not delay the writer, and a report that reads for seconds delays no
request.

With ``synchronous=NORMAL`` a commit survives the death of the process; only a power cut or a crash of the operating
system can undo the last commits (https://www.sqlite.org/pragma.html#pragma_synchronous). With ``fsync``
(``synchronous=FULL``) a commit also survives those.

A connection that has found damage, or that could not roll back, is closed. The next work opens the file again, so that
a repaired or replaced file is used without a restart.

The file begins with the schemas, version by version: ``PRAGMA user_version`` holds the version of a file. Then come the
errors that show damage, and the search for it (``PRAGMA quick_check``). The search is bounded in time and runs outside
the event loop. The tables are checked one after the other, the most important ones first. The search can be interrupted
only between two tables, so its thread may go on for a while after its time is over. Nobody waits for it then.

Only the user of the proxy may read its files, with any umask. A small file, such as the known epoch of the store, is
read and replaced by all workers of a host. If there is no path, or the disk is full or read-only, nothing is kept: the
process goes on with what it has in memory.
"""

import asyncio
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec

from proxy.kit.errors import StoreError
from proxy.kit.value import dataclass

_log = logging.getLogger("stratiform.store")

# Each entry migrates a file to the next version. Entries are never edited.
STORE = (
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
    # Money in nano-dollars. A team's total becomes the counter of its budget over all time.
    """
    CREATE TABLE entry (
        exchange_id TEXT PRIMARY KEY,
        at REAL NOT NULL,
        team TEXT NOT NULL,
        key_id TEXT NOT NULL DEFAULT '',
        user TEXT NOT NULL DEFAULT '',
        model TEXT NOT NULL DEFAULT '',
        mode TEXT NOT NULL DEFAULT '',
        reason TEXT NOT NULL DEFAULT '',
        status INTEGER NOT NULL DEFAULT 0,
        ending TEXT NOT NULL DEFAULT '',
        read_tokens INTEGER NOT NULL DEFAULT 0,
        write_5m_tokens INTEGER NOT NULL DEFAULT 0,
        write_1h_tokens INTEGER NOT NULL DEFAULT 0,
        plain_tokens INTEGER NOT NULL DEFAULT 0,
        output_tokens INTEGER NOT NULL DEFAULT 0,
        cost INTEGER NOT NULL DEFAULT 0,
        saved INTEGER NOT NULL DEFAULT 0,
        latency_ms INTEGER NOT NULL DEFAULT 0,
        estimated INTEGER NOT NULL DEFAULT 0
    ) WITHOUT ROWID;
    CREATE INDEX entry_at ON entry (at, exchange_id);
    CREATE TABLE counter (
        team TEXT NOT NULL,
        account TEXT NOT NULL,
        spent INTEGER NOT NULL DEFAULT 0,
        reserved INTEGER NOT NULL DEFAULT 0,
        expected INTEGER NOT NULL DEFAULT 0,
        forget_at REAL,
        PRIMARY KEY (team, account)
    ) WITHOUT ROWID;
    CREATE INDEX counter_forget_at ON counter (forget_at) WHERE forget_at IS NOT NULL;
    CREATE TABLE hold (
        exchange_id TEXT PRIMARY KEY,
        state TEXT NOT NULL,
        at REAL NOT NULL,
        charges TEXT NOT NULL,
        entry TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX hold_at ON hold (state, at);
    CREATE TABLE claim (
        team TEXT NOT NULL,
        name TEXT NOT NULL,
        forget_at REAL NOT NULL,
        PRIMARY KEY (team, name)
    ) WITHOUT ROWID;
    CREATE TABLE directory (
        kind TEXT NOT NULL,
        name TEXT NOT NULL,
        record TEXT NOT NULL,
        PRIMARY KEY (kind, name)
    ) WITHOUT ROWID;
    CREATE TABLE directory_version (version INTEGER NOT NULL);
    INSERT INTO directory_version VALUES (0);
    CREATE TABLE blob (
        scope TEXT NOT NULL,
        name TEXT NOT NULL,
        value BLOB NOT NULL,
        forget_at REAL NOT NULL,
        PRIMARY KEY (scope, name)
    );
    CREATE INDEX blob_forget_at ON blob (forget_at);
    INSERT INTO counter (team, account, spent)
        SELECT team, 'b:total:-:total', CAST(round(usd * 1000000000) AS INTEGER) FROM total;
    INSERT INTO entry (exchange_id, at, team, status, cost)
        SELECT exchange_id, at, team, 200, CAST(round(usd * 1000000000) AS INTEGER) FROM spend;
    DROP TABLE spend;
    DROP TABLE total;
    """,
    # The owners of objects in the provider's account.
    """
    CREATE TABLE object (
        team TEXT NOT NULL,
        name TEXT NOT NULL,
        family TEXT NOT NULL,
        server TEXT NOT NULL,
        deployment TEXT NOT NULL,
        forget_at REAL NOT NULL,
        bill TEXT NOT NULL DEFAULT '',
        PRIMARY KEY (team, name)
    ) WITHOUT ROWID;
    CREATE UNIQUE INDEX object_server ON object (server, name);
    CREATE INDEX object_forget_at ON object (team, forget_at);
    CREATE INDEX object_end ON object (forget_at);
    """,
    # Facts of the file about itself (proxy.storage).
    """
    CREATE TABLE fact (
        name TEXT PRIMARY KEY,
        value TEXT NOT NULL
    ) WITHOUT ROWID;
    """,
    # The cause of a cache break, and its cost.
    """
    ALTER TABLE entry ADD COLUMN break_kind TEXT NOT NULL DEFAULT '';
    ALTER TABLE entry ADD COLUMN break_cost INTEGER NOT NULL DEFAULT 0;
    """,
    # The cause that the provider itself reports.
    """
    ALTER TABLE entry ADD COLUMN provider_cause TEXT NOT NULL DEFAULT '';
    """,
)

SPOOL = (
    """
    CREATE TABLE pending (
        number INTEGER PRIMARY KEY,
        kind TEXT NOT NULL,
        call TEXT NOT NULL
    );
    """,
    # The exchange of the call: the end of an exchange replaces its intent.
    """
    ALTER TABLE pending ADD COLUMN exchange TEXT NOT NULL DEFAULT '';
    CREATE INDEX pending_exchange ON pending (exchange);
    """,
)


def migrate(connection: sqlite3.Connection, migrations: Sequence[str]) -> None:
    """Migrate the file to the last version. If two processes try at once, the second finds it done."""
    with connection:  # commits, or rolls back
        connection.execute("BEGIN IMMEDIATE")
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if version > len(migrations):
            raise sqlite3.DatabaseError(f"the file has version {version}, this program knows {len(migrations)}")
        for statements in migrations[version:]:
            for statement in statements.split(";"):
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(migrations)}")


_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_MOST_CHARS = 200


class DamagedFile(StoreError):
    """The file holds content that this program did not write."""


def _is_one_of(codes: frozenset[int], error: BaseException | None) -> bool:
    """Whether the error is SQLite's and has one of these primary result codes."""
    code = getattr(error, "sqlite_errorcode", None)
    return isinstance(code, int) and code & 0xFF in codes  # the other bytes give details


def _store_error(error: Exception) -> StoreError:
    """The error as a StoreError, which the callers of a store expect."""
    is_damaged = isinstance(error, msgspec.MsgspecError) or _is_one_of(_DAMAGE, error)
    return DamagedFile(str(error)) if is_damaged else StoreError(str(error))


async def damage_of(path: Path, tables: Sequence[str], most_s: float) -> str | None:
    """The damage of a file, in SQLite's words. Empty: nothing is wrong. None: the time was too short to know."""
    found: Future[str | None] = Future()
    ended = threading.Event()
    threading.Thread(
        target=lambda: found.set_result(_checked(path, tables, ended.is_set)), name=f"check {path.name}", daemon=True
    ).start()
    try:
        async with asyncio.timeout(most_s):
            return await asyncio.shield(asyncio.wrap_future(found))
    except TimeoutError:
        return None
    finally:
        ended.set()


def _checked(path: Path, tables: Sequence[str], is_ended: Callable[[], bool]) -> str | None:
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            for table in tables:
                if is_ended():
                    return None
                (said,) = connection.execute(f"PRAGMA quick_check('{table}')").fetchone()
                if said != "ok":
                    return " ".join(said.split())[:_MOST_CHARS]
    except sqlite3.DatabaseError as error:
        return str(error) if _is_one_of(_DAMAGE, error) else None
    return ""


_MODE = 0o600
_OTHERS = 0o077
_MOST_SMALL_BYTES = 256


def make_private(path: Path) -> None:
    """Create the file if there is none; at no moment can other users read it. An existing file is tightened without
    opening it: closing it would release the locks that SQLite holds on it. Raises OSError."""
    with suppress(FileExistsError):
        os.close(os.open(path.resolve(), os.O_CREAT | os.O_EXCL | os.O_WRONLY, _MODE))
    tighten(path)


def tighten(path: Path) -> None:
    """Remove all access of other users to an existing file. A file of another user stays as it is, and so does what is
    no file: a folder, or a device."""
    with suppress(OSError):
        if path.is_file() and path.stat().st_mode & _OTHERS:
            path.chmod(_MODE)
            _log.warning("%s could be used by other users of this machine: its mode is 0600 from now on", path)


def read_small(path: Path | None) -> bytes:
    """The content of the file; empty if there is no file."""
    if path is not None:
        tighten(path)
        with suppress(OSError), path.open("rb") as file:
            return file.read(_MOST_SMALL_BYTES)
    return b""


def replace_small(path: Path | None, content: bytes) -> None:
    """Replace the content of the file."""
    if path is None:
        return
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        whole = path.with_name(f"{path.name}.{os.getpid()}")
        make_private(whole)
        whole.write_bytes(content)
        whole.replace(path)


T = TypeVar("T")
P = ParamSpec("P")
Work = Callable[Concatenate[sqlite3.Connection, P], T]

_MOST_AT_ONCE = 256
_BESIDE = ("-wal", "-shm", "-journal")
_PASSING = _DAMAGE | {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}
SERVING_WAIT_S = 1.0
"""How long a process that serves requests waits for another process that writes to the file. Its requests wait as
long."""


class _LetGo(Exception):
    """Raised by the work that asks for the connection to be closed."""


def _opened(
    path: Path, migrations: Sequence[str], busy_timeout_s: float, *, exclusive: bool, fsync: bool
) -> sqlite3.Connection:
    """A connection to the file. Raises sqlite3.Error and OSError."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    make_private(path)  # SQLite gives the files beside it the same mode
    for suffix in _BESIDE:
        tighten(path.with_name(path.name + suffix))
    connection = sqlite3.connect(path, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False)
    try:
        if exclusive:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {'FULL' if fsync else 'NORMAL'}")
        migrate(connection, migrations)
    except BaseException:
        connection.close()
        raise
    return connection


@dataclass(slots=True)
class _Job:
    work: Callable[[sqlite3.Connection], Any]
    future: "asyncio.Future[Any]"
    result: Any = None
    error: BaseException | None = None


class _Reader:
    """A thread that reads the file at the same time as another thread writes it. In WAL mode neither waits for the
    other.

    There is one connection, which is made for the first work. A connection that has found damage is closed, and the
    next work opens the file again.
    """

    def __init__(self, path: Path, busy_timeout_s: float) -> None:
        self._path = path
        self._busy_timeout_s = busy_timeout_s
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store-reader")
        self._connection: sqlite3.Connection | None = None

    async def run(self, work: Work[P, T], *args: P.args, **named: P.kwargs) -> T:
        """Run work that only reads. Raises StoreError."""
        try:
            run = partial(self._run, work, *args, **named)
            return await asyncio.get_running_loop().run_in_executor(self._thread, run)
        except (sqlite3.Error, OSError, msgspec.MsgspecError, RuntimeError) as error:
            # RuntimeError: the executor has been shut down.
            raise _store_error(error) from error

    async def let_go(self) -> None:
        """Close the file until the next work."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)

    def close(self) -> None:
        """Finish the work, and close the file. May be called more than once."""
        self._thread.shutdown(wait=True)
        self._disconnect()

    def _run(self, work: Work[P, T], *args: P.args, **named: P.kwargs) -> T:
        if self._connection is None:
            self._connection = sqlite3.connect(
                f"{self._path.absolute().as_uri()}?mode=ro",
                uri=True,
                timeout=self._busy_timeout_s,
                check_same_thread=False,
            )
        try:
            return work(self._connection, *args, **named)
        except sqlite3.Error as error:
            if _is_one_of(_DAMAGE, error):
                self._disconnect()
            raise

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class Database:
    """One file. ``open`` makes one; every method may raise StoreError."""

    def __init__(
        self,
        path: Path,
        busy_timeout_s: float,
        opened: Callable[[], sqlite3.Connection],
        connection: sqlite3.Connection | None,
    ) -> None:
        self.path = path
        self._opened = opened
        self._connection = connection
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._closing = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._serve, name=f"store {path.name}", daemon=True)
        self._thread.start()
        # One reader for the few rows of a request and one for the many rows of a report. Both run beside the writer.
        self._reader, self._reports = (_Reader(path, busy_timeout_s) for _ in range(2))
        self.read, self.report = self._reader.run, self._reports.run

    @classmethod
    async def open(
        cls,
        path: Path,
        migrations: Sequence[str],
        *,
        busy_timeout_s: float = SERVING_WAIT_S,
        exclusive: bool = False,
        fsync: bool = False,
        is_patient: bool = False,
    ) -> "Database":
        """Open the file, or create it. ``exclusive``: no other process may open it meanwhile. ``is_patient``: if the
        file is damaged or on a full disk, opening succeeds and the calls fail."""
        opened = partial(_opened, path, migrations, busy_timeout_s, exclusive=exclusive, fsync=fsync)
        try:
            return cls(path, busy_timeout_s, opened, await asyncio.to_thread(opened))
        except (sqlite3.Error, OSError) as error:
            if is_patient and _is_one_of(_PASSING, error) and await asyncio.to_thread(path.is_file):
                return cls(path, busy_timeout_s, opened, None)
            raise _store_error(error) from error

    async def write(self, work: Work[P, T], *args: P.args, **named: P.kwargs) -> T:
        job = _Job(lambda connection: work(connection, *args, **named), asyncio.get_running_loop().create_future())
        with self._closing:
            if self._is_closed:
                raise StoreError("the store is closed")
            self._jobs.put(job)
        try:
            result: T = await job.future
        except (sqlite3.Error, OSError, msgspec.MsgspecError) as error:
            raise _store_error(error) from error
        return result

    async def let_go(self) -> None:
        """Close the file until the next work, so that another file can take its place."""
        with suppress(StoreError, RuntimeError, _LetGo):  # the database is closed, or this work was done
            await self._reader.let_go()
            await self._reports.let_go()
            await self.write(_let_go)

    async def aclose(self) -> None:
        """Finish all work that was handed over, and close the file. May be called more than once."""
        with self._closing:
            self._is_closed = True
        await asyncio.to_thread(self._end)

    def _end(self) -> None:
        # The connection that is closed last empties the journal. A connection that only reads cannot do that.
        self._reader.close()
        self._reports.close()
        self._jobs.put(None)
        self._thread.join()

    def _serve(self) -> None:
        """The writer thread: commits batches of jobs until it gets None."""
        try:
            while (job := self._jobs.get()) is not None:
                jobs = [job, *self._waiting()]
                self._commit(jobs)
                with suppress(RuntimeError):  # the loop that opened the database is closed: nobody waits any more
                    job.future.get_loop().call_soon_threadsafe(_hand_over, jobs)
        finally:
            self._disconnect()

    def _commit(self, jobs: list[_Job]) -> None:
        """Run all jobs in one transaction, on a new connection if there is none. If one job fails, the others still
        succeed."""
        try:
            if self._connection is None:
                self._connection = self._opened()
            with self._connection as connection:  # commits, or rolls back
                connection.execute("BEGIN IMMEDIATE")
                for job in jobs:
                    _attempt(connection, job)
        except (sqlite3.Error, OSError) as error:
            for job in jobs:
                job.error = error
            if self._connection is not None and self._connection.in_transaction:
                self._disconnect()
        if any(_is_one_of(_DAMAGE, job.error) or isinstance(job.error, _LetGo) for job in jobs):
            self._disconnect()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def _waiting(self) -> list[_Job]:
        jobs: list[_Job] = []
        while len(jobs) < _MOST_AT_ONCE and not self._jobs.empty():  # nobody else takes a job
            if (job := self._jobs.get()) is None:
                self._jobs.put(None)
                break
            jobs.append(job)
        return jobs


def _attempt(connection: sqlite3.Connection, job: _Job) -> None:
    connection.execute("SAVEPOINT job")
    try:
        job.result = job.work(connection)
    except BaseException as error:  # raised again by the caller that awaits the result
        if not connection.in_transaction:  # a full disk, an I/O error: SQLite has rolled everything back
            if isinstance(error, sqlite3.Error):
                raise
            raise sqlite3.OperationalError("the transaction was rolled back") from error
        job.error = error
        connection.execute("ROLLBACK TO job")
    connection.execute("RELEASE job")


def _let_go(connection: sqlite3.Connection) -> None:
    raise _LetGo


def _hand_over(jobs: list[_Job]) -> None:
    """Give the results to the callers that still wait for them. Runs in their event loop."""
    for job in jobs:
        if job.future.done():
            continue
        if job.error is None:
            job.future.set_result(job.result)
        else:
            job.future.set_exception(job.error)
