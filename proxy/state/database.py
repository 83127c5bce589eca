"""A SQLite file behind one writer thread, with group commit.

The event loop never waits for the disk: work is handed to the thread that owns the connection. What has gathered while
one transaction was committed goes into the next one together, each piece of work in a savepoint of its own, so that 200
exchanges that end at once cost a handful of commits. An answer is given after the commit that it belongs to. Reports
are read on a connection and a thread of their own: in WAL mode readers do not hold up the writer.

``synchronous=NORMAL``: a commit is on record when the process dies right after it; only a power cut or a crash of the
operating system can take the last commits back (https://www.sqlite.org/pragma.html#pragma_synchronous).
"""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from proxy.ports import StoreError
from proxy.state.migrations import migrate

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

_MOST_AT_ONCE = 256
SERVING_WAIT_S = 1.0
"""How long a process that serves requests waits for others that write to its file: requests wait with it."""


@dataclass(slots=True)
class _Job:
    work: Work[Any]
    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[Any]"
    result: Any = None
    error: BaseException | None = field(default=None)

    def deliver(self) -> None:
        """In the event loop: hand the result over, if anybody still waits for it."""
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


class Database:
    """One file. ``open`` makes one; every method may raise StoreError."""

    def __init__(self, path: Path, connection: sqlite3.Connection, busy_timeout_s: float) -> None:
        self._path = path
        self._connection = connection
        self._busy_timeout_s = busy_timeout_s
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._closing = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._serve, name=f"store {path.name}", daemon=True)
        self._thread.start()
        self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store-reader")
        self._reading: sqlite3.Connection | None = None

    @classmethod
    async def open(
        cls, path: Path, migrations: Sequence[str], *, busy_timeout_s: float = SERVING_WAIT_S, exclusive: bool = False
    ) -> "Database":
        """The file, which is made if need be. ``exclusive``: no other process may open it meanwhile."""
        connection = await asyncio.to_thread(_opened, path, migrations, busy_timeout_s, exclusive)
        return cls(path, connection, busy_timeout_s)

    async def write(self, work: Work[T]) -> T:
        """Run work in a transaction; its result, once that is committed."""
        loop = asyncio.get_running_loop()
        job = _Job(work, loop, loop.create_future())
        with self._closing:
            if self._is_closed:
                raise StoreError("the store is closed")
            self._jobs.put(job)
        try:
            result: T = await job.future
        except (sqlite3.Error, OSError) as error:
            raise StoreError(str(error)) from error
        return result

    async def read(self, work: Work[T]) -> T:
        """Run work that only reads, beside the writer."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._reader, self._read, work)
        except (sqlite3.Error, OSError, RuntimeError) as error:
            # RuntimeError: the executor has been shut down.
            raise StoreError(str(error)) from error

    async def aclose(self) -> None:
        """Finish what was handed over, and close the file. May be called more than once."""
        with self._closing:
            if not self._is_closed:
                self._is_closed = True
                self._jobs.put(None)
        await asyncio.to_thread(self._ended)

    def _ended(self) -> None:
        self._thread.join()
        self._reader.shutdown(wait=True)
        if self._reading is not None:
            self._reading.close()
            self._reading = None

    def _read(self, work: Work[T]) -> T:
        if self._reading is None:
            uri = f"{self._path.absolute().as_uri()}?mode=ro"
            self._reading = sqlite3.connect(uri, uri=True, timeout=self._busy_timeout_s, check_same_thread=False)
        return work(self._reading)

    def _serve(self) -> None:
        """The writer thread: batches until it is told to stop."""
        try:
            while (job := self._jobs.get()) is not None:
                jobs = [job, *self._waiting()]
                _run(self._connection, jobs)
                _deliver(jobs)
        finally:
            self._connection.close()

    def _waiting(self) -> list[_Job]:
        jobs: list[_Job] = []
        while len(jobs) < _MOST_AT_ONCE:
            try:
                job = self._jobs.get_nowait()
            except Empty:
                break
            if job is None:
                self._jobs.put(None)
                break
            jobs.append(job)
        return jobs


def _run(connection: sqlite3.Connection, jobs: list[_Job]) -> None:
    """All jobs in one transaction; one that fails takes none of the others with it."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        for job in jobs:
            _attempt(connection, job)
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        for job in jobs:
            job.error = error


def _attempt(connection: sqlite3.Connection, job: _Job) -> None:
    connection.execute("SAVEPOINT job")
    try:
        job.result = job.work(connection)
    except BaseException as error:  # raised again where the result is awaited
        if not connection.in_transaction:  # a full disk, an I/O error: SQLite has rolled everything back
            raise
        job.error = error
        connection.execute("ROLLBACK TO job")
    connection.execute("RELEASE job")


def _deliver(jobs: list[_Job]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
    for job in jobs:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, theirs in by_loop.items():
        try:
            loop.call_soon_threadsafe(_deliver_all, theirs)
        except RuntimeError:  # the loop is closed: nobody waits any more
            continue


def _deliver_all(jobs: list[_Job]) -> None:
    for job in jobs:
        job.deliver()


def _opened(path: Path, migrations: Sequence[str], busy_timeout_s: float, exclusive: bool) -> sqlite3.Connection:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        connection = sqlite3.connect(path, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False)
    except (sqlite3.Error, OSError) as error:
        raise StoreError(str(error)) from error
    try:
        if exclusive:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        migrate(connection, migrations)
    except sqlite3.Error as error:
        connection.close()
        raise StoreError(str(error)) from error
    return connection
